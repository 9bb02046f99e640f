package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/admin"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

func (a *application) events() *cobra.Command {
	var of admin.Of
	var filter operate.Filter
	mapping := config.Mapping()
	cmd := command("events", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		return a.browse(cmd, of, mapping, func(v view) error {
			rows, next, err := v.List(cmd.Context(), filter)
			if err != nil {
				return err
			}
			if err := v.MarkPaused(cmd.Context(), rows); err != nil {
				return err
			}
			a.printTroubles(v.c.Output, admin.TroublesOf(cmd.Context(), v.db, of.Table))
			chosen := lookedFor(cmd.Flags())
			none := "no such events in " + of.String() + chosen
			if chosen == "" && !cmd.Flags().Changed("after") {
				none = "no events in " + of.String()
			}
			return list[operate.EventRow]{rows, next, none, "ID,STATUS,TOPIC,KEY,TENANT,WRITTEN,FAILURES,NEXT TRY," +
				"WAITS BEHIND,LAST ERROR", eventCells}.print(a, v.c.Output)
		})
	})
	all, own := cmd.PersistentFlags(), cmd.Flags()
	all.StringVar(&of.Table, "table", "outbox_events", "`name` of the table")
	all.StringVar(&of.Sink, "sink", "", "`name` of a sink, for its deliveries instead of the table")
	all.StringVar(&filter.Tenant, "tenant", "", "`name` of the tenant")
	all.AddFlagSet(mapping)
	eventFlags(own, &filter)
	pageFlags(own, &filter.Limit, &filter.After, 10000, "events")
	cmd.AddCommand(a.showEvent(&of, &filter.Tenant, mapping), a.retryEvents(&of, &filter.Tenant, mapping),
		a.skipEvents(&of, &filter.Tenant, mapping))
	return cmd
}

// eventFlags add what chooses events, but for the tenant.
func eventFlags(flags *pflag.FlagSet, f *operate.Filter) {
	flags.StringSliceVar(&f.Statuses, "status", nil, "`names` of the states, such as NEW,FAILED")
	flags.StringVar(&f.Key, "key", "", "key of the event")
	flags.StringVar(&f.Topic, "topic", "", "`pattern` of the topic")
	flags.StringVar(&f.Type, "type", "", "`pattern` of the aggregate type")
	flags.StringVar(&f.Trace, "trace", "", "`id` of the trace in the metadata")
	spanFlags(flags, &f.Since, &f.Until, "the writes")
	for _, name := range []string{"status", "key", "topic", "type", "trace", "since", "until"} {
		isFilter(flags.Lookup(name))
	}
}

func eventCells(e operate.EventRow) []any {
	key := text(e.Key)
	if e.AggregateType != nil && e.Key != nil {
		key = *e.AggregateType + "/" + key
	}
	try := upcoming(e.NextRetryAt)
	if e.Paused {
		try = "paused"
	}
	return []any{e.ID, e.Status, e.Topic, key, e.Tenant, e.WrittenAt, e.Attempts, try, e.WaitsBehind,
		cut(text(e.LastError), 60)}
}

func (a *application) showEvent(of *admin.Of, tenant *string, mapping *pflag.FlagSet) *cobra.Command {
	var position int64
	cmd := command("events show", cobra.MaximumNArgs(1), func(cmd *cobra.Command, args []string) error {
		which, err := oneEvent(args, position)
		if err != nil {
			return err
		}
		return a.browse(cmd, *of, mapping, func(v view) error {
			event, err := v.Show(cmd.Context(), which, *tenant)
			if errors.Is(err, operate.ErrNoEvent) {
				return fmt.Errorf("%w, and no sink owes it: look into another table with --table, "+
					"or into job_dlq for a dead event of crawl_outbox", err)
			}
			if err != nil {
				return err
			}
			row := []operate.EventRow{event.EventRow}
			err = v.MarkPaused(cmd.Context(), row)
			event.Paused = row[0].Paused
			if err = cmp.Or(err, v.MarkDeliveriesPaused(cmd.Context(), event)); err != nil {
				return err
			}
			if v.c.Output == "json" {
				return printJSON(a.Out, event)
			}
			return a.printEvent(event)
		})
	})
	positionFlag(cmd.Flags(), &position)
	return cmd
}

func (a *application) printEvent(e operate.EventDetail) error {
	var next, waits, paused string
	switch {
	case e.NextRetryAt != nil && e.WaitsBehind != nil:
		waits = fmt.Sprintf("%s, next try at %s", e.WaitsBehind, when(e.NextRetryAt))
	case e.NextRetryAt != nil:
		next = when(e.NextRetryAt)
	}
	if e.Paused {
		paused = "by an operator: see outbox pauses"
	}
	return a.printDetails(slices.Concat([]detail{
		{"id", e.ID}, {"position", e.Position}, {"status", e.Status}, {"topic", e.Topic}, {"key", e.Key},
		{"aggregate type", e.AggregateType}, {"tenant", e.Tenant}, {"source", e.Source},
		{"schema", strings.TrimSpace(text(e.SchemaID) + " " + text(e.SchemaVersion))}, {"sequence", e.Sequence},
		{"occurred", e.OccurredAt}, {"written", e.WrittenAt}, {"delivered", e.DeliveredAt}, {"failures", e.Attempts},
		{"next try", next}, {"waits behind", waits}, {"paused", paused}, {"last error", e.LastError},
		{"destinations", e.Destinations}, {"delivered to", e.DeliveredTo}}, owed(e), history(e.ErrorHistory), []detail{
		{"replays", e.Generation}, {"lane", e.Lane}, {"metadata", e.Metadata}, {"payload", e.Payload},
	})...)
}

// owed says what the event's sinks did not take at once, a line a delivery.
func owed(e operate.EventDetail) (lines []detail) {
	if e.DeliveriesHidden {
		return []detail{{"owed to", "not known: this role may not read outbox_deliveries"}}
	}
	for _, d := range e.Deliveries {
		to := d.Sink + ":" + d.Destination
		switch d.Status {
		case "delivered":
			lines = append(lines, detail{"delivered to", to + " at " + text(d.DeliveredAt)})
			continue
		case "dead":
			lines = append(lines, detail{"dead at",
				fmt.Sprintf("%s after %s: %s", to, counted(d.Attempts, "failure"), text(d.LastError))})
			continue
		}
		to += ", " + counted(d.Attempts, "failure")
		if d.Paused {
			to += ", paused by an operator: see outbox pauses"
		} else if d.NextRetryAt != nil {
			to += ", next try at " + when(d.NextRetryAt)
		}
		if d.LastError != nil {
			to += ": " + *d.LastError
		}
		lines = append(lines, detail{"owed to", to})
	}
	return lines
}

// when is a time, and how far away it is.
func when(at *time.Time) string { return text(at) + " (" + upcoming(at) + ")" }

// upcoming says how far away a time is, by this machine's clock. The year 9999 is where
// PostgreSQL's infinity is shown.
func upcoming(at *time.Time) string {
	if at == nil {
		return ""
	}
	left := time.Until(*at).Seconds()
	switch {
	case at.UTC().Year() >= 9999:
		return "never"
	case left <= 0:
		return "now"
	}
	return "in " + seconds(&left)
}

// eventsDone is what outbox events retry and skip print with -o json.
type eventsDone struct {
	Table  string `json:"table"`
	To     string `json:"to,omitempty"`
	Events int    `json:"events"`
	DryRun bool   `json:"dryRun,omitempty"`
}

// errPreviewed ends outbox events skip --dry-run.
var errPreviewed = errors.New("previewed")

// chosenEvents is a command that does something with undelivered events.
type chosenEvents struct {
	operate.Selection
	by     operatorFlags
	of     *admin.Of
	tenant *string
	// do counts what it has done also when it fails half way.
	do func(context.Context, view, operate.Selection) (int, error)
	// none, unfit and said are what it says of no event, of ids that do not fit, and of so many
	// events.
	none, unfit, said string
}

func (e *chosenEvents) flags(flags *pflag.FlagSet) {
	eventFlags(flags, &e.Filter)
	flags.BoolVar(&e.All, "all", false, "selection of all events")
}

// selection refuses a command line that names no events: it could mean all of them.
func (e *chosenEvents) selection(args []string) (operate.Selection, error) {
	s := e.Selection
	s.Tenant = *e.tenant
	var err error
	if s.IDs, err = parseIDs(args, "event's id, which is a UUID as outbox events prints it"); err != nil {
		return s, err
	}
	others := s
	others.All = false
	switch {
	case s.None():
		return s, usagef("say which events: ids, a filter such as --key or --topic, or --all")
	case s.All && !others.None():
		return s, usagef("--all contradicts what else chooses events: use one of them")
	}
	return s, nil
}

// run does it and says how many events it did it with. Ids that it did not fit are a failure.
func (e *chosenEvents) run(a *application, cmd *cobra.Command, args []string, mapping *pflag.FlagSet) error {
	if err := checkFilters(cmd.Flags()); err != nil {
		return err
	}
	chosen, err := e.selection(args)
	if err != nil {
		return err
	}
	return a.browse(cmd, *e.of, mapping, func(v view) error {
		done := eventsDone{Table: e.of.Table, To: e.of.Sink}
		if done.Events, err = e.do(cmd.Context(), v, chosen); err != nil {
			if done.Events == 0 {
				return err
			}
			err = fmt.Errorf("%w; %s done before, the same command goes on from there", err,
				counted(done.Events, "event"))
		} else if named := len(chosen.IDs); done.Events < named {
			err = fmt.Errorf("%d of %s "+e.unfit+": see outbox events show ID", named-done.Events,
				counted(named, "event"))
		} else if done.Events == 0 {
			fmt.Fprintf(a.Err, e.none+"%s\n", e.of, lookedFor(cmd.Flags()))
		}
		if done.Events == 0 && v.c.Output != "json" {
			return err // it was said
		}
		return cmp.Or(a.printResult(v.c.Output, done, e.said, counted(done.Events, "event"), e.of), err)
	})
}

func (a *application) retryEvents(of *admin.Of, tenant *string, mapping *pflag.FlagSet) *cobra.Command {
	e := chosenEvents{of: of, tenant: tenant, none: "no event of %s waits for its next attempt",
		unfit: "do not wait for an attempt", said: "%s of %s will be tried now"}
	e.do = func(ctx context.Context, v view, chosen operate.Selection) (int, error) {
		by := e.by.operator()
		return v.RetryNow(ctx, chosen, by.Actor, by.Reason)
	}
	cmd := command("events retry", cobra.ArbitraryArgs, func(cmd *cobra.Command, args []string) error {
		return e.run(a, cmd, args, mapping)
	})
	e.flags(cmd.Flags())
	e.by.addTo(cmd.Flags(), "")
	return cmd
}

func (a *application) skipEvents(of *admin.Of, tenant *string, mapping *pflag.FlagSet) *cobra.Command {
	var ask consent
	e := chosenEvents{of: of, tenant: tenant, none: "no undelivered events of %s are chosen", unfit: "not undelivered",
		said: "skipped %s of %s: see outbox dlq list --error 'skipped by'"}
	e.do = func(ctx context.Context, v view, chosen operate.Selection) (int, error) {
		total, _, err := v.Undelivered(ctx, chosen)
		if err != nil || total == 0 {
			return total, err
		}
		plan := eventsDone{Table: of.Table, To: of.Sink, Events: total, DryRun: true}
		sure, err := ask.confirm(ctx, a, v.c.Output, plan, fmt.Sprintf("%s of %s will become dead letters instead of "+
			"being delivered", counted(total, "undelivered event"), of))
		if err != nil {
			return 0, err
		}
		if !sure {
			return 0, errPreviewed
		}
		by, err := e.by.skip()
		if err != nil {
			return 0, err
		}
		return v.Skip(ctx, chosen, by, total)
	}
	cmd := command("events skip", cobra.ArbitraryArgs, func(cmd *cobra.Command, args []string) error {
		if e.by.unreasoned() && !ask.dryRun {
			return usagef("--reason is required: say why these need not arrive")
		}
		if err := e.run(a, cmd, args, mapping); !errors.Is(err, errPreviewed) {
			return err
		}
		return nil
	})
	e.flags(cmd.Flags())
	e.by.addTo(cmd.Flags(), " (required)")
	ask.destroy(a, cmd)
	return cmd
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// eventPage is a page of events, and what it ends with for --after.
type eventPage struct {
	Events []operate.EventRow
	Next   string
}

// looked is what a command looks into: a table, or what one of its sinks has not taken.
type looked struct{ table, sink string }

// String is what messages call it.
func (l looked) String() string {
	if l.sink == "" {
		return l.table
	}
	return l.table + " to " + l.sink
}

// find returns what the settings say of it.
func (l looked) find(c config.Config) (config.Table, error) {
	deliveries := outbox.DeliveriesOf("", "").Table
	if l.table == deliveries {
		return config.Table{}, usagef("--table %s: name the events' table and the sink, as --table outbox_events --to NAME; "+
			"outbox sinks lists them", deliveries)
	}
	t, err := c.Find(l.table)
	if err == nil && l.sink != "" {
		t.Layout = outbox.DeliveriesOf(t.Layout.Table, l.sink)
	}
	return t, err
}

func (a *application) events() *cobra.Command {
	var table looked
	var filter operate.Filter
	mapping := config.Mapping()
	cmd := &cobra.Command{
		Use:   "events",
		Short: "List the events of a table",
		Long: `events lists a table's events, the newest first, with their state: by position in a
table with an index of positions, as crawl_outbox, else by event id. There, ids that are no UUIDv7 tell no
time and stand anywhere in the list. Where there are more, it prints how to see the next page. outbox events
show ID prints one with its payload and every error it met.

The states are the table's own: NEW, FAILED (will be retried), SENT and DEAD in outbox_events; pending, published and
failed (dead) in event_outbox; pending, retry and delivered in crawl_outbox, whose dead events are in job_dlq.

NEXT TRY says when an event that failed is tried again. An event behind it in its key waits until then: it has
the same time, and WAITS BEHIND names the one that is retried. It is "paused" where an operator has paused the
table, the topic or the destination (outbox pauses). outbox events retry tries it now, outbox events show ID
says why it failed.

Of a table with routes, an event is delivered once every sink has it or owes it. --to NAME lists what a
sink did not take at once, instead of the table: pending, delivered and dead. outbox events show ID says of one event
what its sinks owe.`,
		Example: `  outbox events
  outbox events --status FAILED,DEAD --tenant acme
  outbox events --topic 'invoice.*'
  outbox events --to audit --status pending
  outbox events --table crawl_outbox --key 6fa7… --limit 10 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if filter.Limit < 1 || filter.Limit > 10000 {
				return usagef("--limit is %d, must be between 1 and 10000", filter.Limit)
			}
			if err := checkFilters(cmd.Flags()); err != nil {
				return err
			}
			c, err := a.settings(config.Database, mapping)
			if err != nil {
				return err
			}
			var page eventPage
			var troubles []operate.Trouble
			err = browse(cmd.Context(), c, table, func(ctx context.Context, db app.Database, b *operate.Browser) (err error) {
				if page.Events, page.Next, err = b.List(ctx, filter); err != nil {
					return err
				}
				troubles = troublesOf(ctx, db, table.table)
				return markPaused(ctx, c, db, table, page.Events)
			})
			if err != nil {
				return err
			}
			a.printTroubles(c.Output, troubles)
			if c.Output == "json" {
				return printPage(a.Out, page.Events, page.Next)
			}
			none := "no such events in " + table.String() + lookedFor(cmd.Flags())
			if !slices.ContainsFunc([]string{"status", "key", "topic", "tenant", "after"}, cmd.Flags().Changed) {
				none = "no events in " + table.String()
			}
			return a.printEvents(page, none)
		},
	}
	cmd.PersistentFlags().StringVar(&table.table, "table", "outbox_events", "`table` to look into")
	cmd.PersistentFlags().StringVar(&table.sink, "to", "", "`sink` of a table with routes: what it did not take at once")
	cmd.PersistentFlags().StringVar(&filter.Tenant, "tenant", "", "`tenant` whose events to show")
	cmd.PersistentFlags().AddFlagSet(mapping)
	cmd.Flags().StringSliceVar(&filter.Statuses, "status", nil, "`states` to show, for instance NEW,FAILED (default: all)")
	cmd.Flags().StringVar(&filter.Key, "key", "", "`key` whose events to show: the aggregate's or the run's id")
	cmd.Flags().StringVar(&filter.Topic, "topic", "", "`topic` to show, or a pattern in which * stands for any text")
	cmd.Flags().IntVar(&filter.Limit, "limit", 50, "`events` a page")
	cmd.Flags().StringVar(&filter.After, "after", "", "`place` where the previous page ended, as it was printed under it")
	cmd.AddCommand(a.showEvent(&table, &filter.Tenant, mapping), a.retryEvents(&table, &filter.Tenant, mapping),
		a.skipEvents(&table, &filter.Tenant, mapping))
	return cmd
}

// browse opens a table for people and runs fn.
func browse(
	ctx context.Context, c config.Config, of looked, fn func(context.Context, app.Database, *operate.Browser) error,
) error {
	table, err := of.find(c)
	if err != nil {
		return err
	}
	db, err := app.OpenDatabase(ctx, c.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	b, err := db.Browser(ctx, table.Layout)
	if err != nil {
		return err
	}
	if of.sink != "" {
		if err := knownSink(ctx, c, db, of); err != nil {
			return err
		}
	}
	err = fn(ctx, db, b)
	switch {
	case errors.Is(err, outbox.ErrRowsHidden):
		return usagef("%w: name it with --tenant", err)
	case errors.Is(err, operate.ErrFilter):
		return usageError{err}
	}
	return err
}

// printEvents prints a page, or that there are none in these words.
func (a *application) printEvents(page eventPage, none string) error {
	var rows [][]string
	for _, e := range page.Events {
		key := value(e.Key)
		if e.AggregateType != nil && e.Key != nil {
			key = *e.AggregateType + "/" + key
		}
		rows = append(rows, []string{e.ID.String(), e.Status, e.Topic, key, value(e.Tenant), moment(e.WrittenAt),
			fmt.Sprint(e.Attempts), soonest(e),
			value(e.WaitsBehind), cut(value(e.LastError), 60)})
	}
	if err := printTable(a.Out, []string{"ID", "STATUS", "TOPIC", "KEY", "TENANT", "WRITTEN", "FAILURES", "NEXT TRY",
		"WAITS BEHIND", "LAST ERROR"}, rows); err != nil {
		return err
	}
	switch {
	case len(rows) == 0:
		fmt.Fprintln(a.Err, none)
	case page.Next != "":
		fmt.Fprintf(a.Err, "there are more: add --after %s\n", page.Next)
	}
	return nil
}

func (a *application) showEvent(table *looked, tenant *string, mapping *pflag.FlagSet) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Print one event with its payload and errors",
		Long: `show prints everything about one event, found by its id or by its position in the
table. In crawl_outbox the position is the faster way, since event ids have no index there.

Of a table with routes it says which sinks still owe the event: OWED TO names the sink and the destination, the
failures so far and the next try. DEAD AT is a dead letter (outbox dlq). What a sink did not take at once and has
taken since is there until retention removes it. An event that is owed is found by its id also when its own row has
left the table.`,
		Example: `  outbox events show 01890a5d-ac96-774b-bcce-b302099a8057
  outbox events show 4711 --table crawl_outbox -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFilters(cmd.Flags()); err != nil {
				return err
			}
			c, err := a.settings(config.Database, mapping)
			if err != nil {
				return err
			}
			var event operate.EventDetail
			err = browse(cmd.Context(), c, *table, func(ctx context.Context, db app.Database, b *operate.Browser) (err error) {
				if event, err = b.Show(ctx, args[0], *tenant); err != nil {
					return err
				}
				row := []operate.EventRow{event.EventRow}
				err = markPaused(ctx, c, db, *table, row)
				event.Paused = row[0].Paused
				return firstOf(err, markDeliveriesPaused(ctx, db, table.table, event.Topic, event.Deliveries))
			})
			if errors.Is(err, operate.ErrNoEvent) {
				return fmt.Errorf("%w, and no sink owes it: look into another table with --table, or into job_dlq for a dead "+
					"event of crawl_outbox", err)
			}
			if err != nil {
				return err
			}
			if c.Output == "json" {
				return printJSON(a.Out, event)
			}
			return a.printEvent(event)
		},
	}
}

func (a *application) printEvent(e operate.EventDetail) error {
	return a.printDetails(slices.Concat([]detail{
		{"id", e.ID.String()}, {"position", fmt.Sprint(e.Position)}, {"status", e.Status}, {"topic", e.Topic},
		{"key", value(e.Key)}, {"aggregate type", value(e.AggregateType)}, {"tenant", value(e.Tenant)},
		{"source", value(e.Source)},
		{"schema", strings.TrimSpace(value(e.SchemaID) + " " + value(e.SchemaVersion))}, {"sequence", value(e.Sequence)},
		{"occurred", moment(e.OccurredAt)}, {"written", moment(e.WrittenAt)}, {"delivered", moment(e.DeliveredAt)},
		{"failures", fmt.Sprint(e.Attempts)}, {"next try", nextTry(e.EventRow)}, {"waits behind", waits(e.EventRow)},
		{"paused", paused(e.EventRow)}, {"last error", value(e.LastError)},
		{"destinations", string(e.Destinations)}, {"delivered to", string(e.DeliveredTo)}}, owed(e),
		history(e.ErrorHistory), []detail{
			{"replays", fmt.Sprint(e.Generation)}, {"lane", fmt.Sprint(e.Lane)}, {"metadata", string(e.Metadata)},
			{"payload", string(e.Payload)},
		}))
}

// owed says what the event's sinks did not take at once, a line a delivery.
func owed(e operate.EventDetail) (lines []detail) {
	if e.DeliveriesHidden {
		return []detail{{"owed to", "not known: this role may not read outbox_deliveries"}}
	}
	for _, d := range e.Deliveries {
		text := d.Sink + ":" + d.Destination
		switch d.Status {
		case "delivered":
			lines = append(lines, detail{"delivered to", text + " at " + moment(d.DeliveredAt)})
			continue
		case "dead":
			lines = append(lines, detail{"dead at", fmt.Sprintf("%s after %s: %s", text, counted(d.Attempts, "failure"),
				value(d.LastError))})
			continue
		}
		text += ", " + counted(d.Attempts, "failure")
		if d.Paused {
			text += ", paused by an operator: see outbox pauses"
		} else if d.NextRetryAt != nil {
			text += ", next try at " + moment(d.NextRetryAt) + " (" + upcoming(d.NextRetryAt) + ")"
		}
		if d.LastError != nil {
			text += ": " + *d.LastError
		}
		lines = append(lines, detail{"owed to", text})
	}
	return lines
}

// nextTry is when the event itself is tried.
func nextTry(e operate.EventRow) string {
	if e.NextRetryAt == nil || e.WaitsBehind != nil {
		return ""
	}
	return moment(e.NextRetryAt) + " (" + upcoming(e.NextRetryAt) + ")"
}

func waits(e operate.EventRow) string {
	if e.WaitsBehind == nil {
		return ""
	}
	return fmt.Sprintf("%s, next try at %s (%s)", e.WaitsBehind, moment(e.NextRetryAt), upcoming(e.NextRetryAt))
}

// soonest is when the event or what it waits behind is tried, for a list.
func soonest(e operate.EventRow) string {
	if e.Paused {
		return "paused"
	}
	return upcoming(e.NextRetryAt)
}

func paused(e operate.EventRow) string {
	if !e.Paused {
		return ""
	}
	return "by an operator: see outbox pauses"
}

// upcoming says how far away a time is, by this machine's clock. The year 9999 is where PostgreSQL's infinity is shown.
func upcoming(at *time.Time) string {
	if at == nil {
		return ""
	}
	if at.UTC().Year() >= 9999 {
		return "never"
	}
	left := time.Until(*at)
	if left <= 0 {
		return "now"
	}
	s := left.Seconds()
	return "in " + seconds(&s)
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pause"
)

// pauseFlags name what to pause or resume.
type pauseFlags struct {
	operate.Pause
	operatorFlags
	mapping *pflag.FlagSet
}

func (f *pauseFlags) addTo(cmd *cobra.Command, required string) {
	f.mapping = config.Mapping()
	cmd.Flags().StringVar(&f.Table, "table", "", "`table` of the events (default: every one)")
	cmd.Flags().StringVar(&f.Topic, "topic", "",
		"`topic` of the events, or a pattern in which * stands for any text (default: every one)")
	cmd.Flags().StringVar(&f.Destination, "destination", "",
		"`destination` of the events, or a pattern in which * stands for any text (default: every one)")
	cmd.Flags().StringVar(&f.To, "to", "", "`sink` that the events go to, of a --table with routes")
	f.operatorFlags.addTo(cmd.Flags(), required)
	cmd.Flags().AddFlagSet(f.mapping)
	cmd.Flags().SortFlags = false
}

// open checks what is named and opens the pauses.
func (f *pauseFlags) open(
	cmd *cobra.Command, a *application, fn func(context.Context, config.Config, app.Database, *operate.Pauses) error,
) error {
	if err := checkFilters(cmd.Flags()); err != nil {
		return err
	}
	switch {
	case f.To != "" && f.Table == "":
		return usagef("--to %s: of which table? Give its --table, which has routes", f.To)
	case f.Table == "" && f.Topic == "" && f.Destination == "":
		return usagef("say what: --table, --topic or --destination, or one of the last two with a --table")
	case f.Topic != "" && f.Destination != "":
		return usagef("--topic and --destination: pause the one or the other, or each by itself")
	}
	by := f.operator()
	f.Actor, f.Reason = by.Actor, strings.TrimSpace(by.Reason)
	c, err := a.settings(config.Database, f.mapping)
	if err != nil {
		return err
	}
	if f.Table != "" {
		t, err := c.Find(f.Table)
		if err != nil {
			return err
		}
		f.Table = t.Layout.Table
	}
	db, err := app.OpenDatabase(cmd.Context(), c.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	p, err := db.Pauses(cmd.Context())
	if err != nil {
		return err
	}
	return fn(cmd.Context(), c, db, p)
}

func (a *application) pause() *cobra.Command {
	var f pauseFlags
	cmd := &cobra.Command{
		Use:   "pause (--table TABLE | --topic PATTERN | --destination PATTERN) --reason TEXT",
		Short: "Let events of a table, topic or destination wait",
		Long: `pause keeps every relay from delivering the events of a table, of a topic, or of a
destination; of a topic or destination in one table, with --table; or what goes to one sink of a table with routes,
with --to. They stay undelivered in their table, in their order, and no attempt is counted; producers notice
nothing. What is behind a paused event in its key waits with it, whatever its topic: the order of a key holds.
An event with several destinations waits as soon as one of them is paused. Running relays obey within a second,
after the batch in flight, and log it. outbox resume ends it, and nothing else does.

--to takes a sink of the settings given here, or one of which the database has deliveries or a pause. One that has
owed nothing yet is known from the relay's settings: give their --config, or --sink NAME=URL.

While a topic or a destination is paused, each claim reads over all that is undelivered: for 100,000 events 0.4
s of the database for a topic and 0.6 to 0.9 s for a destination. A claim that brings nothing is not made again
before ten times as long, 5 s at most. Where a whole table is meant, pause the table, which costs nothing.`,
		Example: `  outbox pause --topic 'invoice.*' --reason 'billing is migrated until 14:00'
  outbox pause --destination billing --reason 'its consumer is broken'
  outbox pause --table event_outbox --reason 'INC-4711'
  outbox pause --table outbox_events --to audit --reason 'audit is moved'
  outbox pause --table outbox_events --topic order.placed --reason 'double orders'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if strings.TrimSpace(f.operatorFlags.Reason) == "" {
				return usagef("--reason is required: say why these events wait, for whoever wonders")
			}
			return f.open(cmd, a, func(ctx context.Context, c config.Config, db app.Database, p *operate.Pauses) error {
				if f.To != "" {
					if err := pausableSink(ctx, c, db, looked{f.Table, f.To}); err != nil {
						return err
					}
				}
				if err := p.Pause(ctx, f.Pause); err != nil {
					return err
				}
				return a.printPause(c.Output, f.Pause, true, "paused %s: relays obey within a second\n")
			})
		},
	}
	f.addTo(cmd, " (required)")
	return cmd
}

func (a *application) resume() *cobra.Command {
	var f pauseFlags
	cmd := &cobra.Command{
		Use:   "resume (--table TABLE | --topic PATTERN | --destination PATTERN)",
		Short: "End a pause",
		Long: `resume ends a pause: name the table, sink, topic and destination as outbox pauses lists them.
Relays deliver what has gathered within a second, oldest first. An event that another pause concerns as well
goes on waiting.`,
		Example: `  outbox pauses
  outbox resume --table outbox_events --to audit
  outbox resume --topic 'invoice.*' --reason 'billing is migrated'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.open(cmd, a, func(ctx context.Context, c config.Config, _ app.Database, p *operate.Pauses) error {
				found, err := p.Resume(ctx, f.Pause)
				if err != nil {
					return err
				}
				if !found {
					return fmt.Errorf("resume %s: it is not paused by these names, see outbox pauses",
						whatPaused(f.Pause))
				}
				return a.printPause(c.Output, f.Pause, false, "resumed %s\n")
			})
		},
	}
	f.addTo(cmd, "")
	return cmd
}

// pausedNow is what outbox pause and outbox resume print with -o json.
type pausedNow struct {
	Table       string `json:"table"`
	To          string `json:"to"`
	Topic       string `json:"topic"`
	Destination string `json:"destination"`
	Paused      bool   `json:"paused"` // false: it was until now
}

func (a *application) printPause(form string, p operate.Pause, paused bool, text string) error {
	if form == "json" {
		return printJSON(a.Out, pausedNow{p.Table, p.To, p.Topic, p.Destination, paused})
	}
	_, err := fmt.Fprintf(a.Out, text, whatPaused(p))
	return err
}

func (a *application) pauses() *cobra.Command {
	return &cobra.Command{
		Use:   "pauses",
		Short: "List what is paused",
		Long: `pauses lists what operators have paused, since when, who and why. TO is the sink that a pause is of,
of a table with routes. outbox dlq audit has pauses that were ended.`,
		Example: `  outbox pauses -o json | jq '.items[].topic'`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.settings(config.Database)
			if err != nil {
				return err
			}
			db, err := app.OpenDatabase(cmd.Context(), c.Database)
			if err != nil {
				return err
			}
			defer db.Close()
			all, err := allPauses(cmd.Context(), db)
			if err != nil {
				return err
			}
			if c.Output == "json" {
				return printPage(a.Out, all, "")
			}
			var rows [][]string
			for _, p := range all {
				rows = append(rows, []string{anyOr(p.Table), anyOr(p.To), anyOr(p.Topic), anyOr(p.Destination), moment(&p.At),
					p.Actor, p.Reason})
			}
			if len(rows) == 0 {
				fmt.Fprintln(a.Err, "nothing is paused")
			}
			return printTable(a.Out, []string{"TABLE", "TO", "TOPIC", "DESTINATION", "SINCE", "ACTOR", "REASON"}, rows)
		},
	}
}

func anyOr(name string) string {
	if name == "" {
		return "(all)"
	}
	return name
}

// whatPaused names a pause's events.
func whatPaused(p operate.Pause) string {
	part := "topic " + p.Topic
	if p.Destination != "" {
		part = "destination " + p.Destination
	}
	whole := "table " + p.Table
	switch {
	case p.Table == "":
		whole = "every table"
	case p.To != "":
		whole = "sink " + p.To + " of table " + p.Table
	}
	if p.Topic == "" && p.Destination == "" {
		return whole
	}
	return part + " of " + whole
}

// pausesOf returns the pauses that concern a table, or what one of its sinks owes. A database that has none yet, and a
// role that may not see them, has none to show.
func pausesOf(ctx context.Context, db app.Database, of looked) ([]operate.Pause, error) {
	var old *outbox.SchemaError
	p, err := db.Pauses(ctx)
	if errors.As(err, &old) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := p.Pauses(ctx)
	if err != nil {
		return nil, nil //nolint:nilerr // a reader of one table need not have rights on this one
	}
	return slices.DeleteFunc(all, func(p operate.Pause) bool {
		return p.Table != "" && !sameTable(p.Table, of.table) || p.To != "" && p.To != of.sink
	}), nil
}

// sameTable tells whether two names may be one table's: pauses have its schema only where that is not the relays' own.
func sameTable(a, b string) bool {
	return a == b || strings.HasSuffix(a, "."+b) || strings.HasSuffix(b, "."+a)
}

// markPaused marks the undelivered rows of a table that wait for a pause to end.
func markPaused(ctx context.Context, c config.Config, db app.Database, of looked, rows []operate.EventRow) error {
	t, err := of.find(c)
	if err != nil {
		return err
	}
	template, err := outbox.ParseTemplate(t.Destination)
	if err != nil {
		return err
	}
	paused, err := holding(ctx, db, of)
	for i := range rows {
		r := &rows[i]
		r.Paused = r.Undelivered(t.Layout) && paused.Holds(r.Topic, r.GoesTo(t.Layout, template))
	}
	return err
}

// markDeliveriesPaused marks what sinks owe of an event of a table, and waits for a pause to end.
func markDeliveriesPaused(
	ctx context.Context, db app.Database, table, topic string, deliveries []operate.Delivery,
) error {
	for i := range deliveries {
		d := &deliveries[i]
		if d.Status != "pending" {
			continue
		}
		paused, err := holding(ctx, db, looked{table, d.Sink})
		if err != nil {
			return err
		}
		d.Paused = paused.Holds(topic, []string{d.Destination})
	}
	return nil
}

// holding returns what is paused of a table, or of what one of its sinks owes.
func holding(ctx context.Context, db app.Database, of looked) (paused outbox.Paused, err error) {
	pauses, err := pausesOf(ctx, db, of)
	for _, p := range pauses {
		pause.Add(&paused, p.Topic, p.Destination)
	}
	return paused, err
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

const replayEvents = 500 // a transaction of outbox replay

// replayed is what `outbox replay -o json` prints.
type replayed struct {
	Table    string    `json:"table"`
	Events   int       `json:"events"`           // that were put back, or would be
	Archived int       `json:"archived"`         // of them, how many are in the archive
	Gone     int       `json:"gone,omitempty"`   // put back by somebody else meanwhile, or removed
	Until    time.Time `json:"until"`            // with which the same command goes on
	DryRun   bool      `json:"dryRun,omitempty"` // nothing was changed
}

// deliveredFlags are the flags of outbox replay.
type deliveredFlags struct {
	operate.Delivered
	operatorFlags
	table, since, until string
	rate                int
	yes                 bool
}

func (a *application) replayDelivered() *cobra.Command {
	var f deliveredFlags
	mapping := config.Mapping()
	cmd := &cobra.Command{
		Use:   "replay --since TIME [--topic PATTERN] [--yes]",
		Short: "Deliver events again that were delivered before",
		Long: `replay puts events back that were delivered, for a consumer that lost its state:
relays deliver them again under their own ids, in their order within a key, from the table and from
outbox_archive. (What could not be delivered is a dead letter: outbox dlq replay. An archive of files, and
what was deleted, by retention or settle mode delete, it cannot reach.)

It goes by the time of delivery, --since inclusive to --until exclusive. An event with destinations
of its own goes to all of them again, or to --destination alone; one without goes where the relay sends it.
Its generation rises, so no sink refuses it as a copy: every subscriber there receives it again, and those
that did not lose their state need an inbox that knows its id. Newer events of a key that are not delivered
yet wait behind those that are put back.

Without --yes it says how many there are. With it, it works in transactions of 500, at --rate, and
is one line of outbox dlq audit. Interrupted, it finishes the one it is at, and prints the --until with which
the same command goes on: what was put back is delivered later than that. It reads the table once, and keeps
40 bytes for each event that is chosen.`,
		Example: `  outbox replay --topic 'order.*' --since 6h
  outbox replay --topic 'order.*' --since 6h --yes --rate 500 --reason 'search index lost'
  outbox replay --since 2025-01-31T12:00:00Z --until 2025-01-31T14:00:00Z --destination mails --yes
  outbox replay --table crawl_outbox --key 6fa7… --since 30d`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if f.since == "" {
				return usagef("say since when they were delivered: --since")
			}
			if f.rate < 0 {
				return usagef("--rate is %d, must be positive", f.rate)
			}
			if err := checkFilters(cmd.Flags(), "destination"); err != nil {
				return err
			}
			if f.Since, err = parseMoment("since", f.since); err != nil {
				return err
			}
			if f.Until, err = parseMoment("until", f.until); err != nil {
				return err
			}
			if err := checkSpan(f.Since, f.Until); err != nil {
				return err
			}
			c, err := a.settings(config.Database, mapping)
			if err != nil {
				return err
			}
			return browse(cmd.Context(), c, looked{table: f.table},
				func(ctx context.Context, db app.Database, b *operate.Browser) error {
					return a.replayChosen(ctx, db, b, c.Output, f, lookedFor(cmd.Flags()))
				})
		},
	}
	cmd.Flags().StringVar(&f.since, "since", "",
		"`time` from which on they were delivered: RFC 3339, or how long ago, as 90m or 7d (required)")
	cmd.Flags().StringVar(&f.until, "until", "", "`time` before which, likewise (default: now)")
	cmd.Flags().StringVar(&f.Topic, "topic", "", "`topic` of the events, or a pattern in which * stands for any text")
	cmd.Flags().StringVar(&f.Key, "key", "", "`key` of the events: the aggregate's or the run's id")
	cmd.Flags().StringVar(&f.Tenant, "tenant", "", "`tenant` of the events")
	cmd.Flags().StringVar(&f.Destination, "destination", "",
		"the one `channel` of events with several that they go to again")
	cmd.Flags().StringVar(&f.table, "table", "outbox_events", "`table` of the events")
	cmd.Flags().IntVar(&f.rate, "rate", 0, "`events` a second (default: as fast as it goes)")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do it, instead of saying how many events there are")
	f.addTo(cmd.Flags(), "")
	cmd.Flags().AddFlagSet(mapping)
	cmd.Flags().SortFlags = false
	return cmd
}

func (a *application) replayChosen(
	ctx context.Context, db app.Database, b *operate.Browser, form string, f deliveredFlags, lookedFor string,
) error {
	places, until, err := b.Replayable(ctx, f.Delivered)
	if err != nil {
		return err
	}
	done := replayed{Table: f.table, Events: len(places), Until: until, DryRun: !f.yes}
	for _, p := range places {
		if p.Archived {
			done.Archived++
		}
	}
	if len(places) == 0 {
		fmt.Fprintf(a.Err, "no delivered events of %s are chosen%s\n", f.table, lookedFor)
	}
	if !f.yes || len(places) == 0 {
		return a.printReplayable(form, done)
	}
	run, err := outbox.NewID()
	if err != nil {
		return err
	}
	r := operate.Replay{Delivered: f.Delivered, Run: run, Reason: f.Reason, Actor: f.operator().Actor}
	r.Until = until
	err = a.replayPages(ctx, db, b, r, places, f.rate, &done)
	back, bound := counted(done.Events, "event"), until.UTC().Format(time.RFC3339Nano)
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("interrupted after %s: the same command goes on from there with --until %s", back, bound)
	} else if err != nil {
		err = fmt.Errorf("%w; %s put back before, go on with --until %s", err, back, bound)
	}
	return firstOf(a.printReplayable(form, done), err)
}

// replayPages puts events back page by page, and counts in done.
func (a *application) replayPages(
	ctx context.Context, db app.Database, b *operate.Browser, r operate.Replay, places []operate.Place, rate int,
	done *replayed,
) error {
	wake := newWaker(ctx, db)
	defer wake.close()
	bar := newProgress(a.Err)
	defer bar.done()
	page := replayEvents
	if rate > 0 {
		page = min(page, max(rate/4, 1)) // four pages a second, so that it flows
	}
	total, began := len(places), time.Now()
	done.Events = 0
	for seen := 0; seen < total; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(page, total-seen)
		back, err := b.ReplayPage(context.WithoutCancel(ctx), r, places[seen:seen+n])
		if err != nil {
			return err
		}
		seen += n
		done.Events, done.Gone = done.Events+back, done.Gone+n-back
		wake.wake(done.Table)
		bar.show("%s %d of %s", gauge(seen, total), seen, counted(total, "event"))
		if rate > 0 {
			due := began.Add(time.Duration(float64(seen) / float64(rate) * float64(time.Second)))
			select {
			case <-ctx.Done():
			case <-time.After(time.Until(due)):
			}
		}
	}
	return nil
}

func (a *application) printReplayable(form string, r replayed) error {
	if form == "json" {
		return printJSON(a.Out, r)
	}
	switch {
	case r.DryRun && r.Events > 0:
		fmt.Fprintf(a.Out, "%s of %s would be delivered again, %d of them from the archive: add --yes\n",
			counted(r.Events, "event"), r.Table, r.Archived)
		fmt.Fprintln(a.Out,
			"No sink refuses them as copies: every subscriber receives them again, under the same event ids.")
	case r.Events+r.Gone == 0: // it was said
	default:
		fmt.Fprintf(a.Out, "put back %s of %s\n", counted(r.Events, "event"), r.Table)
		if r.Gone > 0 {
			fmt.Fprintf(a.Out, "%d were put back by somebody else meanwhile, or removed\n", r.Gone)
		}
	}
	return nil
}

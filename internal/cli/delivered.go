package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/admin"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/backoff"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/retention"
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
	consent
	by   operatorFlags
	of   admin.Of
	rate int
}

func (a *application) replayDelivered() *cobra.Command {
	var f deliveredFlags
	mapping := config.Mapping()
	cmd := command("replay", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		if f.Since.IsZero() {
			return usagef("say since when they were delivered: --since")
		}
		if err := checkSpan(f.Since, f.Until); err != nil {
			return err
		}
		return a.browse(cmd, f.of, mapping, func(v view) error {
			return a.replayChosen(cmd.Context(), v, f, lookedFor(cmd.Flags()))
		}, "destination")
	})
	flags := cmd.Flags()
	spanFlags(flags, &f.Since, &f.Until, "the deliveries")
	flags.StringVar(&f.Topic, "topic", "", "`pattern` of the topic")
	flags.StringVar(&f.Key, "key", "", "key of the event")
	flags.StringVar(&f.Tenant, "tenant", "", "`name` of the tenant")
	flags.StringVar(&f.Destination, "destination", "", "`name` of the only destination to deliver to")
	isFilter(flags.Lookup("destination"))
	flags.StringVar(&f.of.Table, "table", "outbox_events", "`name` of the table")
	countFlag(flags, &f.rate, "rate", 0, 0, 0, "maximum events per second; 0: no limit")
	f.by.addTo(flags, "")
	f.addTo(a, cmd)
	flags.AddFlagSet(mapping)
	return cmd
}

func (a *application) replayChosen(ctx context.Context, v view, f deliveredFlags, lookedFor string) error {
	places, until, err := v.Replayable(ctx, f.Delivered)
	if err != nil {
		return err
	}
	done := replayed{Table: f.of.Table, Events: len(places), Until: until, DryRun: f.dryRun}
	for _, p := range places {
		if p.Archived {
			done.Archived++
		}
	}
	if len(places) == 0 {
		fmt.Fprintf(a.Err, "no delivered events of %s are chosen%s\n", f.of.Table, lookedFor)
	}
	if len(places) == 0 {
		return a.printReplayable(v.c.Output, done)
	}
	sure, err := f.confirm(ctx, a, v.c.Output, done, fmt.Sprintf(
		"%s of %s will be delivered again, %d of them from the archive\n"+
			"No sink rejects them as duplicates: every subscriber receives them again, under the same event ids.",
		counted(done.Events, "event"), done.Table, done.Archived))
	if err != nil || !sure {
		return err
	}
	by, err := f.by.skip()
	if err != nil {
		return err
	}
	r := operate.Replay{Delivered: f.Delivered, Run: by.Run, Reason: by.Reason, Actor: by.Actor}
	r.Until = until
	err = a.replayPages(ctx, v, r, places, f.rate, &done)
	back, bound := counted(done.Events, "event"), until.UTC().Format(time.RFC3339Nano)
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("interrupted after %s: the same command goes on from there with --until %s", back, bound)
	} else if err != nil {
		err = fmt.Errorf("%w; %s put back before, go on with --until %s", err, back, bound)
	}
	return cmp.Or(a.printReplayable(v.c.Output, done), err)
}

// replayPages puts events back page by page, and counts in done.
func (a *application) replayPages(
	ctx context.Context, v view, r operate.Replay, places []operate.Place, rate int, done *replayed,
) error {
	wake := newWaker(ctx, v.db)
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
		back, err := v.ReplayPage(context.WithoutCancel(ctx), r, places[seen:seen+n])
		if err != nil {
			return err
		}
		seen += n
		done.Events, done.Gone = done.Events+back, done.Gone+n-back
		wake.wake(done.Table)
		bar.show("%s %d of %s", gauge(seen, total), seen, counted(total, "event"))
		if rate > 0 {
			due := began.Add(time.Duration(float64(seen) / float64(rate) * float64(time.Second)))
			backoff.Wait(ctx, time.Until(due))
		}
	}
	return nil
}

func (a *application) printReplayable(form string, r replayed) error {
	if r.Events+r.Gone == 0 && form != "json" {
		return nil // it was said
	}
	events := counted(r.Events, "event")
	if r.Gone > 0 {
		fmt.Fprintf(a.Err, "%d were put back by somebody else meanwhile, or removed\n", r.Gone)
	}
	return a.printResult(form, r, "put back %s of %s", events, r.Table)
}

// purge is what the command line of outbox purge asks for.
type purge struct {
	tables    []string
	olderThan time.Duration
	consent
}

func (a *application) purge() *cobra.Command {
	var p purge
	settings := config.Mapping()
	settings.AddFlagSet(config.RetentionFlags())
	settings.Lookup("retention").Hidden = true // here --older-than says it; a relay's settings still count
	cmd := command("purge", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("table") && len(p.tables) == 0 {
			return usagef("--table is empty: give it a value, or leave it out")
		}
		c, err := a.settings(config.Database|config.Retaining, settings)
		if err != nil {
			return err
		}
		chosen, err := p.chosen(c)
		if err != nil {
			return err
		}
		preview, err := a.purgeRows(cmd.Context(), c, chosen, true)
		if err != nil {
			return err
		}
		says := ""
		for _, r := range preview {
			says += fmt.Sprintf("%s of %s will be %s\n", counted(int(r.Rows), "row"), r.Table, r.Action)
		}
		sure, err := p.confirm(cmd.Context(), a, c.Output, page[retention.Report]{Items: preview}, says)
		if err != nil || !sure {
			return err
		}
		reports, err := a.purgeRows(cmd.Context(), c, chosen, false)
		if len(reports) == 0 && err != nil {
			return err
		}
		printed := list[retention.Report]{items: reports, head: "TABLE,ACTION,ROWS,FILES", cells: reportCells}
		err = cmp.Or(printed.print(a, c.Output), err)
		for _, r := range reports {
			if r.Refused > 0 {
				fmt.Fprintf(a.Err, "%s: %s left in the table: %s\n", r.Table, counted(int(r.Refused), "row"), r.Refusal)
			}
		}
		return err
	})
	cmd.Flags().StringSliceVar(&p.tables, "table", nil, "`names` of the tables, or job_dlq (default: all that exist)")
	ageFlag(cmd.Flags(), &p.olderThan, "older-than", "", time.Nanosecond,
		"time since delivery or replay, such as 30d (default: --retention)")
	p.destroy(a, cmd)
	cmd.Flags().AddFlagSet(settings)
	return cmd
}

// purgeRows removes old rows, or counts them in a dry run.
func (a *application) purgeRows(
	ctx context.Context, c config.Config, chosen []app.Purging, dryRun bool,
) ([]retention.Report, error) {
	line := newProgress(a.Err)
	reports, err := app.Purge(ctx, c, chosen, dryRun,
		func(r retention.Report) { line.show("%s: %d rows", r.Table, r.Rows) })
	line.done()
	switch {
	case errors.Is(err, retention.ErrBusy):
		err = fmt.Errorf("%w: a relay, probably, in a long run: try again later, or see table "+
			"outbox_maintenance", err)
	case err == nil && len(reports) == 0 && len(chosen) > 0:
		missing := &outbox.SchemaError{Table: chosen[len(chosen)-1].Layout.Table, Remedy: "run: outbox migrate up"}
		err = fmt.Errorf("there is no table to purge: %w", missing)
	}
	return reports, err
}

func reportCells(r retention.Report) []any {
	return []any{r.Table, r.Action, r.Rows, strings.Join(r.Files, " ")}
}

// chosen are the tables to purge, each with its age and archive.
func (p purge) chosen(c config.Config) (purging []app.Purging, err error) {
	names := p.tables
	if len(names) == 0 {
		for _, t := range c.Known() {
			if t.Layout.KeepsState() { // its relays truncate it
				names = append(names, t.Name())
			}
		}
		names = append(names, config.Letters)
	}
	for _, name := range names {
		t := app.Purging{Layout: outbox.Layout{Table: config.Letters}, Required: len(p.tables) > 0}
		if name != config.Letters {
			known, err := c.Find(name)
			if err != nil {
				return nil, err
			}
			t.Layout = known.Layout
		}
		age, archive := c.RetentionOf(name)
		t.OlderThan, t.Archive = cmp.Or(p.olderThan, age), archive
		switch {
		case t.OlderThan > 0:
			purging = append(purging, t)
		case t.Required:
			return nil, usagef("retention of %s is off in the settings: say how old with --older-than", name)
		}
	}
	return purging, nil
}

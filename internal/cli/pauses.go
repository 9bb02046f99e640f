package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/admin"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/backoff"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// pausedNow is what outbox pause and outbox resume print with -o json.
type pausedNow struct {
	Table       string `json:"table"`
	To          string `json:"to"`
	Topic       string `json:"topic"`
	Destination string `json:"destination"`
	Paused      bool   `json:"paused"` // false: it was until now
	confirmation
}

// confirmation says which processes have reported that they obey a pause, or its end.
type confirmation struct {
	Confirmed   []string `json:"confirmedBy"`
	Unconfirmed []string `json:"unconfirmedBy"`
}

// obeyedCheck is the interval at which a command asks whether processes obey.
const obeyedCheck = 100 * time.Millisecond

// await waits until every process that a pause concerns has reported that it obeys, for so long at
// most, and puts what came of that into words.
func (c *confirmation) await(
	ctx context.Context, p *operate.Pauses, of operate.Pause, wait time.Duration,
) (words string, err error) {
	for end := time.Now().Add(wait); ; {
		if c.Confirmed, c.Unconfirmed, err = p.Obeyed(ctx, of); err != nil {
			return "", err
		}
		if len(c.Unconfirmed) == 0 || !time.Now().Before(end) {
			break
		}
		if !backoff.Wait(ctx, obeyedCheck) {
			return "", ctx.Err()
		}
	}
	switch {
	case len(c.Unconfirmed) > 0:
		words = "not confirmed by " + strings.Join(c.Unconfirmed, "; ")
		if wait > 0 {
			err = fmt.Errorf("wait %s for confirmation: %s; a process confirms once it has finished what it had begun: run the "+
				"same command again, or stop the process", wait, words)
		}
		return words, err
	case len(c.Confirmed) > 0:
		return "confirmed by " + strings.Join(c.Confirmed, "; "), nil
	}
	return "no process that it concerns is alive, and one that starts obeys it", nil
}

// waitFlag adds --wait.
func waitFlag(flags *pflag.FlagSet, to *time.Duration) {
	flags.DurationVar(to, "wait", 15*time.Second,
		"`duration` of the wait for confirmations; 0: none")
}

// pausing is outbox pause or outbox resume.
type pausing struct {
	operate.Pause
	by      operatorFlags
	wait    time.Duration
	did     string // paused or resumed
	what    string // it is of, for people; "": what whatPaused says
	allowed func(context.Context, config.Config, app.Database) error
}

// run pauses or resumes, waits until it is obeyed, and prints what came of it.
func (f *pausing) run(ctx context.Context, a *application, c config.Config, db app.Database) error {
	by := f.by.operator()
	f.Actor, f.Reason, f.what = by.Actor, strings.TrimSpace(by.Reason), cmp.Or(f.what, whatPaused(f.Pause))
	if f.allowed != nil {
		if err := f.allowed(ctx, c, db); err != nil {
			return err
		}
	}
	p, err := db.Pauses(ctx)
	if err != nil {
		return err
	}
	var found bool
	if f.did == "paused" {
		err = p.Pause(ctx, f.Pause)
	} else if found, err = p.Resume(ctx, f.Pause); err == nil && !found {
		err = fmt.Errorf("resume %s: it is not paused by these names, see outbox pauses", f.what)
	}
	if err != nil {
		return err
	}
	now := pausedNow{Table: f.Table, To: f.To, Topic: f.Topic, Destination: f.Destination, Paused: f.did == "paused"}
	words, err := now.await(ctx, p, f.Pause, f.wait)
	return cmp.Or(a.printResult(c.Output, now, "%s %s; %s", f.did, f.what, words), err)
}

// check refuses a command line that names nothing, or what is no pause.
func (f *pausing) check(cmd *cobra.Command) error {
	if err := checkFilters(cmd.Flags()); err != nil {
		return err
	}
	if err := f.Check("--"); err != nil {
		return usagef("%w", err)
	}
	return nil
}

// command makes cmd the command.
func (f *pausing) command(a *application, cmd *cobra.Command, required string) *cobra.Command {
	mapping := config.Mapping()
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if required != "" && f.by.unreasoned() {
			return usagef("--reason is required: say why these events wait, for whoever wonders")
		}
		if err := f.check(cmd); err != nil {
			return err
		}
		c, err := a.settings(config.Database, mapping)
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
		return withDatabase(cmd.Context(), c, func(db app.Database) error {
			return f.run(cmd.Context(), a, c, db)
		})
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Table, "table", "", "`name` of the table (default: all)")
	flags.StringVar(&f.Topic, "topic", "", "`pattern` of the topic (default: all)")
	flags.StringVar(&f.Destination, "destination", "", "`pattern` of the destination (default: all)")
	flags.StringVar(&f.To, "sink", "", "`name` of the sink, of a --table with routes")
	f.by.addTo(flags, required)
	waitFlag(flags, &f.wait)
	flags.AddFlagSet(mapping)
	return cmd
}

func (a *application) pause() *cobra.Command {
	f := pausing{did: "paused"}
	f.allowed = func(ctx context.Context, c config.Config, db app.Database) error {
		if f.To == "" {
			return nil
		}
		groups, err := groupsOf(ctx, c, db)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(groups, func(g operate.Group) bool { return g.Table == f.Table && g.Group == f.To }) {
			return usagef("--sink %[1]s: it is a consumer group of %[2]s and not a sink; run: outbox groups pause %[1]s "+
				"--table %[2]s", f.To, f.Table)
		}
		return admin.PausableSink(ctx, c, db, admin.Of{Table: f.Table, Sink: f.To})
	}
	return f.command(a, command("pause", nil, nil), " (required)")
}

func (a *application) resume() *cobra.Command {
	f := pausing{did: "resumed"}
	return f.command(a, command("resume", nil, nil), "")
}

func (a *application) pauses() *cobra.Command {
	return command("pauses", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		return a.onDatabase(cmd.Context(), func(c config.Config, db app.Database) error {
			all, err := admin.AllPauses(cmd.Context(), db)
			if err != nil {
				return err
			}
			orAll := func(name string) string { return cmp.Or(name, "(all)") }
			return list[operate.Pause]{all, "", "nothing is paused", "TABLE,SINK,TOPIC,DESTINATION,SINCE,ACTOR,REASON",
				func(p operate.Pause) []any {
					return []any{orAll(p.Table), orAll(p.To), orAll(p.Topic), orAll(p.Destination),
						p.At, p.Actor, p.Reason}
				}}.print(a, c.Output)
		})
	})
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

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

// obeyedCheck is how often a command asks whether processes obey.
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
		"`time` to wait until each process confirms that it obeys; 0: not at all")
}

// pausing is outbox pause or outbox resume.
type pausing struct {
	operate.Pause
	by   operatorFlags
	wait time.Duration
	did  string // of what was paused, for people
	do   func(context.Context, config.Config, app.Database, *operate.Pauses) (paused bool, err error)
}

// check refuses a command line that names nothing, or what is no pause.
func (f *pausing) check(cmd *cobra.Command) error {
	if err := checkFilters(cmd.Flags()); err != nil {
		return err
	}
	if err := f.Check("--"); err != nil {
		return usagef("%w", err)
	}
	by := f.by.operator()
	f.Actor, f.Reason = by.Actor, strings.TrimSpace(by.Reason)
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
			p, err := db.Pauses(cmd.Context())
			if err != nil {
				return err
			}
			paused, err := f.do(cmd.Context(), c, db, p)
			if err != nil {
				return err
			}
			now := pausedNow{Table: f.Table, To: f.To, Topic: f.Topic, Destination: f.Destination, Paused: paused}
			words, err := now.await(cmd.Context(), p, f.Pause, f.wait)
			return cmp.Or(a.printResult(c.Output, now, f.did, whatPaused(f.Pause), words), err)
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
	f := pausing{did: "paused %s; %s"}
	f.do = func(ctx context.Context, c config.Config, db app.Database, p *operate.Pauses) (bool, error) {
		if f.To != "" {
			groups, err := db.Groups(ctx, layouts(c), 0)
			if err != nil {
				return false, err
			}
			if slices.ContainsFunc(groups, func(g operate.Group) bool { return g.Table == f.Table && g.Name == f.To }) {
				return false, usagef("--to %s: it is a consumer group of %s and not a sink; run: outbox groups pause %s", f.To,
					f.Table, f.To)
			}
			if err := admin.PausableSink(ctx, c, db, admin.Of{Table: f.Table, Sink: f.To}); err != nil {
				return false, err
			}
		}
		return true, p.Pause(ctx, f.Pause)
	}
	return f.command(a, command("pause", nil, nil), " (required)")
}

func (a *application) resume() *cobra.Command {
	f := pausing{did: "resumed %s; %s"}
	f.do = func(ctx context.Context, _ config.Config, _ app.Database, p *operate.Pauses) (bool, error) {
		found, err := p.Resume(ctx, f.Pause)
		if err == nil && !found {
			err = fmt.Errorf("resume %s: it is not paused by these names, see outbox pauses", whatPaused(f.Pause))
		}
		return false, err
	}
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

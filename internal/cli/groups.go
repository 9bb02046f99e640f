package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

func (a *application) groups() *cobra.Command {
	return group("groups", a.groupsList(), a.groupsShow(), a.groupsPause(true), a.groupsPause(false))
}

// layouts are those of the tables that the settings know.
func layouts(c config.Config) (all []outbox.Layout) {
	for _, t := range c.Known() {
		all = append(all, t.Layout)
	}
	return all
}

func (a *application) groupsList() *cobra.Command {
	mapping := config.Mapping()
	cmd := command("groups list", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		return a.onDatabase(cmd.Context(), func(c config.Config, db app.Database) error {
			all, err := db.Groups(cmd.Context(), layouts(c), countedForLanes)
			if err != nil {
				return err
			}
			return list[operate.Group]{all, "", "there are no consumer groups",
				"GROUP,TABLE,STATE,PROCESSES,LAST SEEN,LANES,WAITING,OLDEST,FAILED,PAUSED", groupCells}.print(a, c.Output)
		}, mapping)
	})
	cmd.Flags().AddFlagSet(mapping)
	return cmd
}

// groupCells are the columns of outbox groups list.
func groupCells(g operate.Group) []any {
	waiting, failed := "?", "?"
	if !g.Hidden {
		waiting = about(g.Waiting, g.Bounded)
	}
	if !g.Hidden && !g.FailedHidden {
		failed = fmt.Sprint(g.Failed)
	}
	lanes := fmt.Sprintf("%d of %d", g.Held, outbox.LaneCount)
	return []any{g.Name, g.Table, g.State, len(g.Processes), lastSeen(g), lanes, waiting, seconds(g.Oldest), failed,
		len(g.Pauses) > 0}
}

// about is a count, with a + where counting stopped.
func about(n int, bounded bool) string {
	if bounded {
		return fmt.Sprintf("%d+", n)
	}
	return fmt.Sprint(n)
}

// lastSeen is how long ago a process of a group last gave a sign of life.
func lastSeen(g operate.Group) string {
	if g.LastSeen == nil {
		return "never"
	}
	ago := max(time.Since(*g.LastSeen), 0).Seconds()
	return seconds(&ago) + " ago"
}

// findGroup returns the group of a name, of a table if one is named.
func findGroup(
	ctx context.Context, c config.Config, db app.Database, name, table string, limit int,
) (g operate.Group, err error) {
	all, err := db.Groups(ctx, layouts(c), limit)
	if err != nil {
		return g, err
	}
	found := slices.DeleteFunc(slices.Clone(all), func(g operate.Group) bool {
		return g.Name != name || table != "" && g.Table != table
	})
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return g, usagef("several tables have a group %s: name one with --table %s or %s", name, found[0].Table,
			found[1].Table)
	}
	var names []string
	for _, g := range all {
		names = append(names, g.Name+" of "+g.Table)
	}
	return g, fmt.Errorf("find consumer group %s: it does not exist; this database has %s", oneLine(name),
		cmp.Or(strings.Join(names, ", "), "none"))
}

func (a *application) groupsShow() *cobra.Command {
	var table string
	mapping := config.Mapping()
	cmd := command("groups show", cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		return a.onDatabase(cmd.Context(), func(c config.Config, db app.Database) error {
			g, err := findGroup(cmd.Context(), c, db, args[0], table, countedForLanes)
			if err != nil {
				return err
			}
			if err := db.Blocked(cmd.Context(), &g); err != nil {
				return err
			}
			if c.Output == "json" {
				return printJSON(a.Out, g)
			}
			return a.printGroup(g)
		}, mapping)
	})
	cmd.Flags().StringVar(&table, "table", "", "`table` of the group, where several have one of that name")
	cmd.Flags().AddFlagSet(mapping)
	return cmd
}

func (a *application) printGroup(g operate.Group) error {
	cells := groupCells(g)
	state := fmt.Sprintf("%s, last seen %s", g.State, lastSeen(g))
	if g.State == "dead" || g.State == "stopped" {
		state += "; start a process of group " + g.Name + ", no relay handles its events"
	}
	waiting := fmt.Sprintf("%s, the oldest for %s", cells[6], cmp.Or(seconds(g.Oldest), "0 s"))
	if g.Bounded {
		waiting += " (counting stopped there)"
	}
	details := []detail{{"group", g.Name}, {"table", g.Table}, {"state", state},
		{"lanes", fmt.Sprintf("%d of %d held, %d lapsed", g.Held, outbox.LaneCount, g.Lapsed)},
		{"waiting", waiting}, {"failed", cells[8]}}
	for _, p := range g.Pauses {
		details = append(details, detail{"paused", fmt.Sprintf("since %s by %s: %s (%s)", text(p.At), p.Actor, whatPaused(p),
			p.Reason)})
	}
	for _, p := range g.Processes {
		ago := max(time.Since(p.SeenAt), 0).Seconds()
		says := fmt.Sprintf("%s: %d lanes, last seen %s ago", p.Name, p.Lanes, seconds(&ago))
		details = append(details, detail{"process", says})
	}
	if err := a.printDetails(details...); err != nil || len(g.Blocked) == 0 {
		return err
	}
	var rows [][]any
	for _, e := range g.Blocked {
		rows = append(rows, []any{e.Key, e.ID, e.Topic, e.Attempts, e.NextRetryAt, e.LastError})
	}
	fmt.Fprintln(a.Out)
	return a.printRows("BLOCKED KEY,EVENT,TOPIC,ATTEMPTS,NEXT,ERROR", rows)
}

// pausedGroup is what outbox groups pause and resume print with -o json.
type pausedGroup struct {
	Group  string `json:"group"`
	Table  string `json:"table"`
	Paused bool   `json:"paused"`
	confirmation
}

func (a *application) groupsPause(pause bool) *cobra.Command {
	var table string
	var by operatorFlags
	var wait time.Duration
	mapping := config.Mapping()
	path, did, required := "groups resume", "resumed", ""
	if pause {
		path, did, required = "groups pause", "paused", " (required)"
	}
	cmd := command(path, cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		if pause && by.unreasoned() {
			return usagef("--reason is required: say why the group waits")
		}
		return a.onDatabase(cmd.Context(), func(c config.Config, db app.Database) error {
			g, err := findGroup(cmd.Context(), c, db, args[0], table, 0)
			if err != nil {
				return err
			}
			p, err := db.Pauses(cmd.Context())
			if err != nil {
				return err
			}
			who := by.operator()
			of := operate.Pause{Table: g.Leased(), Actor: who.Actor, Reason: strings.TrimSpace(who.Reason)}
			if pause {
				err = p.Pause(cmd.Context(), of)
			} else if found, failed := p.Resume(cmd.Context(), of); failed != nil || !found {
				err = cmp.Or(failed, fmt.Errorf("resume group %s: it is not paused by its name, see outbox pauses", g.Name))
			}
			if err != nil {
				return err
			}
			now := pausedGroup{Group: g.Name, Table: g.Table, Paused: pause}
			words, err := now.await(cmd.Context(), p, of, wait)
			return cmp.Or(a.printResult(c.Output, now, "%s group %s of %s; %s", did, g.Name, g.Table, words), err)
		}, mapping)
	})
	cmd.Flags().StringVar(&table, "table", "", "`table` of the group, where several have one of that name")
	by.addTo(cmd.Flags(), required)
	waitFlag(cmd.Flags(), &wait)
	cmd.Flags().AddFlagSet(mapping)
	return cmd
}

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
	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

func (a *application) groups() *cobra.Command {
	return group("groups", a.groupsList(), a.groupsShow(), a.groupsPause("groups pause", " (required)", "paused"),
		a.groupsPause("groups resume", "", "resumed"))
}

// groupsOf returns the consumer groups of the tables that the settings know.
func groupsOf(ctx context.Context, c config.Config, db app.Database) ([]operate.Group, error) {
	facts, err := db.Facts(ctx, condition.WatchKnown(c), countedForLanes)
	if err != nil {
		return nil, err
	}
	if relays := facts.Parts["outbox_relays"]; relays.State != operate.Known {
		return nil, fmt.Errorf("read consumer groups: %s; use a login with outbox_reader or outbox_operator", relays.Why)
	}
	return facts.Groups(), nil
}

func (a *application) groupsList() *cobra.Command {
	mapping := config.Mapping()
	cmd := command("groups list", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		return a.onDatabase(cmd.Context(), func(c config.Config, db app.Database) error {
			all, err := groupsOf(cmd.Context(), c, db)
			if err != nil {
				return err
			}
			return list[operate.Group]{all, "", "there are no consumer groups", groupHead, groupCells}.print(a, c.Output)
		}, mapping)
	})
	cmd.Flags().AddFlagSet(mapping)
	return cmd
}

const groupHead = "GROUP,TABLE,STATE,PROCESSES,LAST SEEN,LANES,WAITING,OLDEST,FAILED,PAUSED"

// groupCells are the columns of groupHead.
func groupCells(g operate.Group) []any {
	waiting, failed, seen := fmt.Sprint(g.Waiting), fmt.Sprint(g.Failed), "never"
	if g.Bounded {
		waiting += "+" // counting stopped there
	}
	if g.State != operate.Known {
		waiting, failed = "?", "?"
	}
	if g.LastSeen != nil {
		seen = ago(*g.LastSeen)
	}
	lanes := fmt.Sprintf("%d of %d", g.Held, outbox.LaneCount)
	if g.Expired > 0 {
		lanes += fmt.Sprintf(", %d expired", g.Expired)
	}
	return []any{g.Group, g.Table, g.Life, len(g.Alive()), seen, lanes, waiting, seconds(g.Oldest), failed,
		len(g.Pauses) > 0}
}

// ago formats the time that has passed since at.
func ago(at time.Time) string {
	s := max(time.Since(at), 0).Seconds()
	return seconds(&s) + " ago"
}

// findGroup returns the group of a name, of a table if one is named.
func findGroup(
	ctx context.Context, c config.Config, db app.Database, name, table string,
) (g operate.Group, err error) {
	all, err := groupsOf(ctx, c, db)
	if err != nil {
		return g, err
	}
	found := slices.DeleteFunc(slices.Clone(all), func(g operate.Group) bool {
		return g.Group != name || table != "" && g.Table != table
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
		names = append(names, g.Group+" of "+g.Table)
	}
	return g, fmt.Errorf("find consumer group %s: it does not exist; this database has %s", oneLine(name),
		cmp.Or(strings.Join(names, ", "), "none"))
}

// onGroup makes a command that does something with one group.
func (a *application) onGroup(
	path string, do func(ctx context.Context, c config.Config, db app.Database, g operate.Group) error,
) *cobra.Command {
	var table string
	mapping := config.Mapping()
	cmd := command(path, cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		return a.onDatabase(cmd.Context(), func(c config.Config, db app.Database) error {
			g, err := findGroup(cmd.Context(), c, db, args[0], table)
			if err != nil {
				return err
			}
			return do(cmd.Context(), c, db, g)
		}, mapping)
	})
	cmd.Flags().StringVar(&table, "table", "", "`name` of the table, if several have a group of that name")
	cmd.Flags().AddFlagSet(mapping)
	return cmd
}

func (a *application) groupsShow() *cobra.Command {
	return a.onGroup("groups show",
		func(_ context.Context, c config.Config, _ app.Database, g operate.Group) error {
			if c.Output == "json" {
				return printJSON(a.Out, g)
			}
			return a.printGroup(g)
		})
}

func (a *application) printGroup(g operate.Group) error {
	cells := groupCells(g)
	var details []detail
	for i, name := range strings.Split(strings.ToLower(groupHead), ",") {
		details = append(details, detail{name, cells[i]})
	}
	if len(g.Alive()) == 0 {
		details = append(details, detail{"do", "start a process of group " + g.Group + "; no relay handles its events"})
	}
	for _, p := range g.Pauses {
		details = append(details, detail{"paused", fmt.Sprintf("since %s by %s: %s", text(p.At), p.Actor, p.Reason)})
	}
	for _, p := range g.Alive() {
		says := fmt.Sprintf("%s: %d lanes, last seen %s", p.Name, p.Lanes, ago(p.SeenAt))
		details = append(details, detail{"process", says})
	}
	if err := a.printDetails(details...); err != nil || len(g.Failing) == 0 {
		return err
	}
	var rows [][]any
	for _, e := range g.Failing {
		rows = append(rows, []any{e.Key, e.ID, e.Topic, e.Attempts, e.NextAt, e.Error})
	}
	fmt.Fprintln(a.Out)
	return a.printRows("BLOCKED KEY,EVENT,TOPIC,ATTEMPTS,NEXT,ERROR", rows)
}

// groupsPause is outbox groups pause, or resume.
func (a *application) groupsPause(path, required, did string) *cobra.Command {
	f := pausing{did: did}
	cmd := a.onGroup(path, func(ctx context.Context, c config.Config, db app.Database, g operate.Group) error {
		if required != "" && f.by.unreasoned() {
			return usagef("--reason is required: say why the group waits")
		}
		f.Table, f.what = g.Name, "group "+g.Group+" of "+g.Table
		return f.run(ctx, a, c, db)
	})
	f.by.addTo(cmd.Flags(), required)
	waitFlag(cmd.Flags(), &f.wait)
	return cmd
}

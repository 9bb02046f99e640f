package cli

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/admin"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// countedForLanes is how many undelivered events outbox lanes counts, as the metric
// outbox_backlog_events does.
const countedForLanes = 100_000

func (a *application) lanes() *cobra.Command {
	var of admin.Of
	var by string
	var all bool
	mapping := config.Mapping()
	cmd := command("lanes", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		if by != "" && by != "tenant" && by != "topic" {
			return usagef("--by is %q, want tenant or topic", by)
		}
		return a.browse(cmd, of, mapping, func(v view) error {
			if by != "" {
				return a.backlogBy(cmd.Context(), v, by)
			}
			report, err := v.Lanes(cmd.Context(), countedForLanes)
			if err != nil {
				return err
			}
			report.Troubles = admin.TroublesOf(cmd.Context(), v.db, report.Table)
			if v.c.Output == "json" {
				return printJSON(a.Out, report)
			}
			a.printTroubles(v.c.Output, report.Troubles)
			return a.printLanes(report, all)
		})
	})
	cmd.PersistentFlags().StringVar(&of.Table, "table", "outbox_events", "`name` of the table")
	cmd.PersistentFlags().AddFlagSet(mapping)
	cmd.Flags().BoolVar(&all, "all", false, "one line for each of the 64 lanes")
	cmd.Flags().StringVar(&by, "by", "", "`name` of the backlog's grouping: tenant or topic")
	cmd.MarkFlagsMutuallyExclusive("all", "by")
	cmd.AddCommand(a.moveReader(&of, mapping))
	return cmd
}

var readers = regexp.MustCompile(`^(sinks|group:[A-Za-z0-9_-]{1,63})$`)

// movedReader is what outbox lanes reader prints with -o json.
type movedReader struct {
	Table  string `json:"table"`
	From   string `json:"from"` // "": none was recorded
	Reader string `json:"reader"`
}

func (a *application) moveReader(of *admin.Of, mapping *pflag.FlagSet) *cobra.Command {
	var to string
	var by operatorFlags
	cmd := command("lanes reader", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		if !readers.MatchString(to) {
			return usagef("--to is %q, want sinks or group:NAME, where NAME is the name of a consumer group", to)
		}
		if by.unreasoned() {
			return usagef("--reason is required: say why the table gets another reader")
		}
		return a.browse(cmd, *of, mapping, func(v view) error {
			who := by.operator()
			from, err := v.MoveReader(cmd.Context(), to, who.Actor, strings.TrimSpace(who.Reason))
			if err != nil {
				return err
			}
			return a.printResult(v.c.Output, movedReader{of.Table, from, to}, "the reader of %s is %s now (before: %s)",
				of.Table, to, cmp.Or(from, "none"))
		})
	})
	cmd.Flags().StringVar(&to, "to", "", "`name` of the new reader: sinks or group:NAME (required)")
	by.addTo(cmd.Flags(), " (required)")
	return cmd
}

// sharesShown is how many tenants or topics outbox lanes --by prints.
const sharesShown = 20

func (a *application) backlogBy(ctx context.Context, v view, by string) error {
	found, err := v.Backlog(ctx, operate.BacklogQuery{By: by, Shares: sharesShown, Count: countedForLanes})
	if err != nil {
		return err
	}
	found.Troubles = admin.TroublesOf(ctx, v.db, found.Table)
	if v.c.Output == "json" {
		return printJSON(a.Out, found)
	}
	a.printTroubles(v.c.Output, found.Troubles)
	var rows [][]any
	for _, s := range found.Shares {
		name := "(none)"
		if s.Value != nil {
			name = *s.Value
		}
		rows = append(rows, []any{name, s.Waiting, seconds(s.Oldest)})
	}
	if err := a.printRows(strings.ToUpper(by)+",BACKLOG,OLDEST", rows); err != nil {
		return err
	}
	if more := found.Total - len(found.Shares); more > 0 {
		fmt.Fprintf(a.Err, "%d more %ss have smaller shares\n", more, by)
	}
	a.printBounds(found.Table, found.Hidden, found.Bounded, found.Counted)
	return nil
}

// printBounds says why a backlog is not all that there is.
func (a *application) printBounds(table string, hidden, bounded bool, counted int) {
	switch {
	case hidden:
		fmt.Fprintf(a.Err, "row-level security hides the rows of %s from this role: what is undelivered is not known\n",
			table)
	case bounded:
		fmt.Fprintf(a.Err, "only the oldest %d undelivered events were counted: there may be more\n", counted)
	}
}

func (a *application) printLanes(r operate.LaneReport, all bool) error {
	if !all {
		head := "RELAY,ID,LANES,SHARE,WHICH,LEASE,BACKLOG,OLDEST,RETRYING,HELD"
		if err := a.printRows(head, laneGroups(r)); err != nil {
			return err
		}
	}
	var rows [][]any
	for _, l := range r.Lanes {
		if all || l.Suspect {
			one := laneGroup{name: owner(l)}
			one.add(l)
			row := append([]any{l.Lane, l.State, one.name, l.Epoch}, one.cells(r.Hidden)...)
			rows = append(rows, append(row, suspicion(l)))
		}
	}
	if len(rows) > 0 {
		if !all {
			fmt.Fprintln(a.Out)
		}
		head := "LANE,STATE,RELAY,EPOCH,LEASE,BACKLOG,OLDEST,RETRYING,HELD,SUSPECT"
		if err := a.printRows(head, rows); err != nil {
			return err
		}
	}
	if r.Reader != "" && r.Reader != "sinks" {
		fmt.Fprintf(a.Err, "%s is read by %s, and not by relays for their sinks\n", r.Table, r.Reader)
	}
	for _, p := range r.Pauses {
		fmt.Fprintf(a.Err, "paused since %s by %s: %s (%s)\n", text(p.At), p.Actor, oneLine(whatPaused(p)),
			oneLine(p.Reason))
	}
	a.printBounds(r.Table, r.Hidden, r.Bounded, r.Counted)
	return nil
}

// laneGroup is what the lanes of one owner in one state have together.
type laneGroup struct {
	key, name, id, share              string
	lanes                             []int
	expires, oldest                   *float64
	backlog, retrying, heldKeys, held int
}

// laneGroups sums the lanes up: a line for each relay, one for what each that is gone has left
// behind, one for what nobody holds, one for all.
func laneGroups(r operate.LaneReport) (rows [][]any) {
	var found []*laneGroup
	find := func(key string) *laneGroup {
		for _, g := range found {
			if g.key == key {
				return g
			}
		}
		found = append(found, &laneGroup{key: key})
		return found[len(found)-1]
	}
	for _, relay := range r.Relays {
		if relay.ExpiresIn > 0 { // also one that stands by
			g := find("held" + relay.Owner.String())
			g.name, g.id, g.share = relay.Name, relay.Owner.String(), fmt.Sprint(relay.Share)
		}
	}
	total := &laneGroup{name: "all"}
	for _, l := range r.Lanes {
		g := find(l.State + text(l.Owner))
		g.name, g.id = owner(l), text(l.Owner)
		g.add(l)
		total.add(l)
	}
	total.expires = nil
	for _, g := range append(found, total) {
		row := []any{g.name, g.id, len(g.lanes), g.share, cut(ranges(g.lanes), 24)}
		rows = append(rows, append(row, g.cells(r.Hidden)...))
	}
	return rows
}

func (g *laneGroup) add(l operate.LaneView) {
	g.lanes = append(g.lanes, l.Lane)
	g.backlog += l.Backlog
	g.retrying += l.Retrying
	g.heldKeys += l.HeldKeys
	g.held += l.Held
	if l.Oldest != nil && (g.oldest == nil || *l.Oldest > *g.oldest) {
		g.oldest = l.Oldest
	}
	if l.ExpiresIn != nil && (g.expires == nil || *l.ExpiresIn < *g.expires) {
		g.expires = l.ExpiresIn
	}
}

// cells are the lease, the backlog, its age, and what of it is retried and held. What is mostly 0
// is left out then.
func (g *laneGroup) cells(hidden bool) []any {
	lease, backlog, retrying, held := seconds(g.expires), fmt.Sprint(g.backlog), "", ""
	if g.expires != nil && *g.expires <= 0 {
		lease = "lapsed"
	}
	if hidden {
		backlog = "?"
	}
	if g.retrying > 0 {
		retrying = fmt.Sprint(g.retrying)
	}
	if g.held > 0 {
		held = fmt.Sprintf("%d of %s", g.held, counted(g.heldKeys, "key"))
	}
	return []any{lease, backlog, seconds(g.oldest), retrying, held}
}

func owner(l operate.LaneView) string {
	switch {
	case l.Owner == nil:
		return "no relay"
	case l.Name == nil:
		return "a relay of the past"
	}
	return *l.Name
}

func suspicion(l operate.LaneView) string {
	switch {
	case !l.Suspect:
		return ""
	case l.TrialEvent != nil:
		return fmt.Sprintf("%d relays died here; trying event %s alone", l.Crashes, l.TrialEvent)
	case l.TrialSize > 0:
		return fmt.Sprintf("%d relays died here; trying %d events", l.Crashes, l.TrialSize)
	}
	return fmt.Sprintf("%d relays died here", l.Crashes)
}

// ranges prints ascending numbers as 0-15, 40, 42-63.
func ranges(n []int) string {
	var parts []string
	for i := 0; i < len(n); {
		j := i
		for j+1 < len(n) && n[j+1] == n[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, fmt.Sprint(n[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", n[i], n[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// countedForLanes is how many undelivered events outbox lanes counts, as the metric outbox_backlog_events does.
const countedForLanes = 100_000

func (a *application) lanes() *cobra.Command {
	var table, by string
	var all bool
	mapping := config.Mapping()
	cmd := &cobra.Command{
		Use:   "lanes",
		Short: "Show which relay serves what of a table, and how far behind it is",
		Long: `lanes shows who serves a table. Every event falls into one of 64 lanes, by a hash of
its key, so all events of a key are in one. A relay holds a lease on some lanes and delivers only those; that
is what keeps the order of a key with many relays. The lease is renewed all the time. When its relay dies it
lapses, after --lease-ttl (10 s), and another relay takes the lane over. The epoch counts the owners: whatever
a former one still wants to write is refused.

LEASE is how long the first of the lanes is still reserved, by the database's clock. BACKLOG counts
undelivered events, OLDEST is the age of the first. Of them RETRYING failed and wait for their next try, and
HELD wait behind those: so many events of so many keys. Above 100,000 undelivered events only the oldest
100,000 are counted. A log has neither: outbox events --table outbox_log --to SINK lists what waits.

Healthy: all 64 lanes are held, each relay holds its share, OLDEST stays below a few seconds. Otherwise:
  no relay     nobody serves these lanes: start outbox relay, or see its log and /readyz. For a second or so it
               is normal.
  lapsed       the relay died or lost the database. Another one takes the lanes over within a second; if none
               does, none runs.
  LANES other than SHARE for longer than the lease: a relay that joined or left has not been seen by the others.
  HELD         outbox events --status FAILED lists what is retried, and when; outbox events retry tries it now.
  NOT READY    what hinders a relay, as in its /readyz, is the first line: a sink, the database, a right it lacks.
  paused       an operator has paused the table, or topics or destinations of it: these events are in BACKLOG
               and wait (outbox pauses).
  suspect      relays died while they served this lane. Its events are tried in small batches until the one that
               kills is found; that becomes a dead letter.

--by tenant or --by topic says whose the backlog is: the 20 largest shares of the oldest 100,000 events, and the age
of the first of each.

--all prints each lane. -o json has everything, whether or not --all is given.`,
		Example: `  outbox lanes
  outbox lanes --table crawl_outbox --all
  outbox lanes --by tenant
  outbox lanes -o json | jq '.lanes[] | select(.state != "held")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.settings(config.Database, mapping)
			if err != nil {
				return err
			}
			if by != "" {
				return a.backlogBy(cmd.Context(), c, looked{table: table}, by)
			}
			var report operate.LaneReport
			err = browse(cmd.Context(), c, looked{table: table},
				func(ctx context.Context, db app.Database, b *operate.Browser) (err error) {
					report, err = b.Lanes(ctx, countedForLanes)
					report.Troubles = troublesOf(ctx, db, report.Table)
					return err
				})
			if err != nil {
				return err
			}
			if c.Output == "json" {
				return printJSON(a.Out, report)
			}
			a.printTroubles(c.Output, report.Troubles)
			return a.printLanes(report, all)
		},
	}
	cmd.Flags().StringVar(&table, "table", "outbox_events", "`table` whose lanes to show")
	cmd.Flags().BoolVar(&all, "all", false, "print each of the 64 lanes")
	cmd.Flags().StringVar(&by, "by", "", "`what` to count the backlog by, tenant or topic, instead of lanes")
	cmd.MarkFlagsMutuallyExclusive("all", "by")
	cmd.Flags().AddFlagSet(mapping)
	return cmd
}

// sharesShown is how many tenants or topics outbox lanes --by prints.
const sharesShown = 20

func (a *application) backlogBy(ctx context.Context, c config.Config, table looked, by string) error {
	if by != "tenant" && by != "topic" {
		return usagef("--by is %q, want tenant or topic", by)
	}
	var found operate.Backlog
	err := browse(ctx, c, table, func(ctx context.Context, db app.Database, b *operate.Browser) (err error) {
		found, err = b.Backlog(ctx, operate.BacklogQuery{By: by, Shares: sharesShown, Count: countedForLanes})
		found.Troubles = troublesOf(ctx, db, found.Table)
		return err
	})
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return printJSON(a.Out, found)
	}
	a.printTroubles(c.Output, found.Troubles)
	var rows [][]string
	for _, s := range found.Shares {
		name := "(none)"
		if s.Value != nil {
			name = *s.Value
		}
		rows = append(rows, []string{name, fmt.Sprint(s.Waiting), seconds(s.Oldest)})
	}
	if err := printTable(a.Out, []string{strings.ToUpper(by), "BACKLOG", "OLDEST"}, rows); err != nil {
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
		if err := printTable(a.Out, []string{"RELAY", "ID", "LANES", "SHARE", "WHICH", "LEASE", "BACKLOG", "OLDEST",
			"RETRYING", "HELD"}, groups(r)); err != nil {
			return err
		}
	}
	var rows [][]string
	for _, l := range r.Lanes {
		if all || l.Suspect {
			rows = append(rows, []string{fmt.Sprint(l.Lane), l.State, owner(l), fmt.Sprint(l.Epoch), lease(l.ExpiresIn),
				backlog(r, l.Backlog), seconds(l.Oldest),
				some(l.Retrying), held(l.Held, l.HeldKeys), suspicion(l)})
		}
	}
	if len(rows) > 0 {
		if !all {
			fmt.Fprintln(a.Out)
		}
		if err := printTable(a.Out, []string{"LANE", "STATE", "RELAY", "EPOCH", "LEASE", "BACKLOG", "OLDEST", "RETRYING",
			"HELD", "SUSPECT"}, rows); err != nil {
			return err
		}
	}
	for _, p := range r.Pauses {
		fmt.Fprintf(a.Err, "paused since %s by %s: %s (%s)\n", moment(&p.At), p.Actor, oneLine(whatPaused(p)),
			oneLine(p.Reason))
	}
	a.printBounds(r.Table, r.Hidden, r.Bounded, r.Counted)
	return nil
}

// group is what the lanes of one owner in one state have together.
type group struct {
	key, name, id, share              string
	lanes                             []int
	expires, oldest                   *float64
	backlog, retrying, heldKeys, held int
}

// groups sums the lanes up: a line for each relay, one for what each that is gone has left behind, one for what nobody
// holds, one for all.
func groups(r operate.LaneReport) (rows [][]string) {
	var found []*group
	find := func(key string) *group {
		for _, g := range found {
			if g.key == key {
				return g
			}
		}
		found = append(found, &group{key: key})
		return found[len(found)-1]
	}
	for _, relay := range r.Relays {
		if relay.ExpiresIn > 0 { // also one that stands by
			g := find("held" + relay.Owner.String())
			g.name, g.id, g.share = relay.Name, relay.Owner.String(), fmt.Sprint(relay.Share)
		}
	}
	total := &group{name: "all"}
	for _, l := range r.Lanes {
		g := find(l.State + value(l.Owner))
		g.name, g.id = owner(l), value(l.Owner)
		g.add(l)
		total.add(l)
	}
	total.expires = nil
	for _, g := range append(found, total) {
		rows = append(rows, []string{g.name, g.id, fmt.Sprint(len(g.lanes)), g.share, cut(ranges(g.lanes), 24),
			lease(g.expires), backlog(r, g.backlog), seconds(g.oldest),
			some(g.retrying), held(g.held, g.heldKeys)})
	}
	return rows
}

func (g *group) add(l operate.LaneView) {
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

func owner(l operate.LaneView) string {
	switch {
	case l.Owner == nil:
		return "no relay"
	case l.Name == nil:
		return "a relay of the past"
	}
	return *l.Name
}

// lease tells how long a lease still holds, or that it does not.
func lease(expires *float64) string {
	switch {
	case expires == nil:
		return ""
	case *expires <= 0:
		return "lapsed"
	}
	return seconds(expires)
}

func backlog(r operate.LaneReport, n int) string {
	if r.Hidden {
		return "?"
	}
	return fmt.Sprint(n)
}

// some is a number that is mostly 0, which is left out.
func some(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func held(events, keys int) string {
	if events == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %s", events, counted(keys, "key"))
}

// seconds prints a time as people say it: 0.3 s, 2m5s.
func seconds(s *float64) string {
	switch {
	case s == nil:
		return ""
	case *s < 100:
		return fmt.Sprintf("%.1f s", *s)
	}
	return time.Duration(*s * float64(time.Second)).Round(time.Second).String()
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

package tracetest

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/test/model"
)

//go:embed watch.sql
var watch string

// most is how many pairs of events the model is asked of, those to which most has happened.
const most = 40

// Watch has a PostgreSQL database write down what becomes of the events of some keys in
// outbox_events, by triggers: in the transactions that change them, so that a crash or a failover
// forgets both or neither. Where a table of effects is named, which has columns key and n, it
// writes those down too. Keys are plain words.
func Watch(ctx context.Context, db *pgxpool.Pool, effects string, keys ...string) error {
	statements := watch
	if effects != "" {
		statements += "CREATE TRIGGER trace AFTER INSERT ON " + pgx.Identifier{effects}.Sanitize() +
			" FOR EACH ROW WHEN (NEW.key = ANY ('{KEYS}')) EXECUTE FUNCTION trace.effect()"
	}
	_, err := db.Exec(ctx, strings.ReplaceAll(statements, "KEYS", strings.Join(keys, ",")))
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	return nil
}

// noted is a row of trace.steps.
type noted struct {
	What              string
	Key               string
	Number            int
	ID, Owner         uuid.UUID
	Lane              int16
	Epoch             int64
	Status            string
	Attempts, Replays int
	Transaction       int64
	Oldest, Next      int64   // of its snapshot: it sees those before Oldest, and none from Next on
	Running           []int64 // those between that it does not see
}

// sees tells whether a step's transaction sees another.
func (n noted) sees(transaction int64) bool {
	return transaction < n.Oldest || transaction < n.Next && !slices.Contains(n.Running, transaction)
}

// Watched asks the model whether it has a run of each two events that followed each other in a key
// that was watched, and returns of how many it was asked. All must be delivered or dead, and have
// their effects if those were watched. With forgets the database may have lost settles, whose
// commits are asynchronous, with all that it noted of them: one that a relay goes on trying is
// recorded then before those of what it published earlier. With effects as well it is not asked
// whether all are settled.
func Watched(ctx context.Context, db *pgxpool.Pool, effects, forgets bool) (asked int, err error) {
	rows, _ := db.Query(ctx, `SELECT what, coalesce(key, ''), coalesce(number, 0), coalesce(id, $1), coalesce(owner, $1),
			coalesce(lane, -1), coalesce(epoch, 0), coalesce(status, ''), coalesce(attempts, 0), coalesce(replays, 0),
			transaction::text::bigint, pg_snapshot_xmin(snapshot)::text::bigint, pg_snapshot_xmax(snapshot)::text::bigint,
			ARRAY(SELECT x::text::bigint FROM pg_snapshot_xip(snapshot) x)
		FROM trace.steps ORDER BY n`, uuid.Nil)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[noted])
	if err != nil {
		return 0, err
	}
	var traces []pair
	for _, key := range keysOf(all) {
		traces = append(traces, pairsOf(all, key)...)
	}
	slices.SortStableFunc(traces, func(a, b pair) int { return cmp.Compare(len(b.trace), len(a.trace)) })
	for _, p := range traces[:min(most, len(traces))] {
		hidden := []string{"publish", "no answer", "refusal"}
		if effects {
			hidden = append(hidden, "acknowledge")
		}
		if forgets {
			hidden = append(hidden, "settle", "failover")
		}
		_, rejected := model.Accept(p.trace, true, hidden...)
		if effects && p.effects < 2 {
			rejected = errors.Join(rejected, fmt.Errorf("%d of 2 have had their effect", p.effects))
		}
		if rejected != nil {
			err = errors.Join(err, fmt.Errorf("events %v: %w\n%s", p.ids, rejected, p))
		}
	}
	return min(most, len(traces)), err
}

// pair is two events of a key, and what was seen of them.
type pair struct {
	ids     [2]uuid.UUID
	effects int
	trace   []model.Seen
}

func (p pair) String() string {
	var text strings.Builder
	for _, s := range p.trace {
		fmt.Fprintf(&text, "%v", s.Action)
		if s.Rows != nil {
			fmt.Fprintf(&text, " %v", s.Rows[:2])
		}
		text.WriteString("\n")
	}
	return text.String()
}

func keysOf(all []noted) (keys []string) {
	for _, n := range all {
		if n.What == "written" && !slices.Contains(keys, n.Key) {
			keys = append(keys, n.Key)
		}
	}
	return keys
}

// pairsOf are the pairs of a key.
func pairsOf(all []noted, key string) (pairs []pair) {
	var written, steps []noted
	lane := all[slices.IndexFunc(all, func(n noted) bool { return n.Key == key && n.Lane >= 0 })].Lane
	epoch := int64(0)
	for _, n := range all {
		switch {
		case n.What == "written" && n.Key == key:
			written = append(written, n)
			n.Epoch = epoch
		case n.What == "effect" && n.Key == key:
			n.Epoch = epoch
		case n.What == "lease" && n.Lane == lane:
			epoch = n.Epoch
		case n.Key != key:
			continue
		}
		steps = append(steps, n)
	}
	// A settle may have begun before another relay had the lane, and have come to the row after.
	slices.SortStableFunc(steps, func(a, b noted) int { return cmp.Compare(a.Epoch, b.Epoch) })
	for i := range len(written) - 1 {
		if p := pairOf(steps, written[i], written[i+1]); p.ids[0] != p.ids[1] {
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// pairOf is what was seen of two events, with who had their lane.
func pairOf(steps []noted, events ...noted) pair {
	s := seeing{events: events, pair: pair{ids: [2]uuid.UUID{events[0].ID, events[1].ID}}}
	for _, n := range steps {
		e := slices.IndexFunc(events, func(of noted) bool {
			return of.ID == n.ID || n.What == "effect" && of.Number == n.Number
		})
		switch {
		case n.What == "lease":
			s.lease(n)
		case e < 0:
		case n.What == "written":
			s.began = true
		case n.What == "effect":
			s.note(model.Action{Name: "effect", Relay: -1, Lane: -1, Event: int8(e)}, nil)
			s.effects++
		case n.What == "edited":
			s.edited[e] = true
		default:
			s.change(n, e)
		}
	}
	return s.pair
}

// seeing makes a trace.
type seeing struct {
	pair
	events []noted
	began  bool // the first event is written
	relay  int8 // who has the lane: the model has two, of whom the one that had it before may come back
	owner  uuid.UUID
	epoch  int64
	rows   [3]model.Row
	last   int64 // the transaction of the last settle
	at     int   // where that is in the trace
	of     int   // the event that it was of
	edited [2]bool
}

func (s *seeing) note(a model.Action, rows *[3]model.Row) {
	s.trace = append(s.trace, model.Seen{Action: a, Rows: rows})
}

func (s *seeing) lease(n noted) {
	if n.Owner != s.owner {
		s.owner, s.relay = n.Owner, 1-s.relay
	}
	if s.epoch = n.Epoch; !s.began {
		s.trace = nil
	}
	s.note(model.Action{Name: "lease", Relay: s.relay, Lane: 0, Event: -1}, nil)
}

// change is a settle, or an operator's replay.
func (s *seeing) change(n noted, e int) {
	s.began = true // also where the event was written while another relay was taking the lane
	for i, of := range s.events {
		s.rows[i].There = s.rows[i].There || of.ID == n.ID || n.sees(of.Transaction)
		if s.rows[i].There && s.rows[i].State == "" {
			s.rows[i].State = "NEW"
		}
	}
	is := model.Row{There: true, State: n.Status, Attempts: min(n.Attempts, 1), Replays: n.Replays}
	switch n.Status {
	case "FAILED":
		is.State = "NEW"
	case "DEAD":
		is.Attempts = 2
	}
	a := model.Action{Name: "settle", Relay: s.relay, Lane: 0, Event: -1}
	if n.Owner != s.owner || n.Epoch != s.epoch {
		a.Relay = -1 // of nobody who had the lane
	}
	was := s.rows[e]
	switch {
	case n.What == "replayed":
		a = model.Action{Name: "replay", Relay: -1, Lane: 0, Event: int8(e)}
	case is == was: // one more attempt of several
		return
	case is.State == "DEAD" && was.Attempts == 0: // the model has no error that is permanent
		s.rows[e].Attempts = 1
		s.settle(a, n.Transaction, e)
		s.last = 0
	}
	s.rows[e] = is
	s.settle(a, n.Transaction, e)
	s.edited[e] = false // the next claim finds it where it is
}

// settle notes what a transaction has done, which it may have done to both, in any order, and with
// steps of others between. A row that somebody has edited since it was claimed is not where the
// claim has read it, and a settle has a transaction more for it.
func (s *seeing) settle(a model.Action, transaction int64, e int) {
	rows := s.rows
	second := s.edited[e] && s.of != e && s.last != 0 && s.at == len(s.trace)-1
	if (transaction == s.last || second) && s.trace[s.at].Action == a {
		s.trace[s.at].Rows = &rows
		return
	}
	s.last, s.at, s.of = transaction, len(s.trace), e
	s.note(a, &rows)
}

package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgschema"
)

// logStore is an outbox table whose rows are only inserted. What it knows more than a store is how far its lanes have
// come (docs/adr/0035). It is safe for concurrent use by workers of different lanes.
type logStore struct {
	*store
	sql logStatements

	mu    sync.Mutex
	era   string // the last one that was read
	lanes map[int16]*logLane
	turns int // claims
	notes int // positions written
}

var _ outbox.DeliveryStore = (*logStore)(nil)

type logStatements struct {
	claim, unreadable, load, era, settle, note, dead, compact, backlog string
}

func logStatementsOf(l outbox.Layout) (logStatements, error) {
	var s logStatements
	t, err := parseSQL()
	if err != nil {
		return s, err
	}
	q := quote(l)
	for name, dst := range map[string]*string{"log_claim": &s.claim, "log_load": &s.load, "log_era": &s.era,
		"log_settle": &s.settle, "log_note": &s.note, "log_dead": &s.dead, "log_compact": &s.compact,
		"log_backlog": &s.backlog} {
		if *dst, err = t.Statement(name, q); err != nil {
			return s, err
		}
	}
	q.Unreadable = true
	s.unreadable, err = t.Statement("log_claim", q)
	return s, err
}

// openLog returns the store of a log whose columns were checked.
func openLog(ctx context.Context, s *store) (*logStore, error) {
	sql, err := logStatementsOf(s.layout)
	if err != nil {
		return nil, err
	}
	columns := []string{"lanes", "position", "snapshot", "late_position", "late_snapshot"}
	if err := pgschema.CheckTable(ctx, s.pool.Pool, positionsTable, columns); err != nil {
		return nil, err
	}
	if err := pgschema.CheckTable(ctx, s.pool.Pool, eraTable, []string{"one", "era"}); err != nil {
		return nil, err
	}
	if err := checkLog(ctx, s.pool.Pool); err != nil {
		return nil, err
	}
	return &logStore{store: s, sql: sql, lanes: map[int16]*logLane{}}, nil
}

// noteEvery is how often a position is written of lanes that have nothing to settle, while rows of others pass them.
const noteEvery = time.Second

// Claim implements outbox.Store. What limit leaves out is read all the same: a position passes no row that is not
// settled.
func (l *logStore) Claim(
	ctx context.Context, lanes []outbox.Lane, limit outbox.ClaimLimit,
) ([]*outbox.Record, error) {
	if len(lanes) == 0 {
		return nil, nil
	}
	claim, records, err := l.next(ctx, lanes, limit)
	for another := (anotherEra{}); errors.As(err, &another); claim, records, err = l.next(ctx, lanes, limit) {
		l.mu.Lock()
		l.era = another.era
		l.mu.Unlock()
	}
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	for lane := range claim.from {
		l.lanes[lane].claim = claim
	}
	if len(records) == 0 {
		l.advance(claim)
	}
	of, place := l.unnoted(claim)
	l.mu.Unlock()
	if len(records) > 0 || place == nil {
		return records, nil
	}
	if _, err := l.pool.Exec(ctx, l.sql.note, append([]any{l.name}, noteArgs(of, place)...)...); err != nil {
		return nil, fmt.Errorf("note a position of %s: %w", l.layout.Table, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noted(of, place)
	return nil, nil
}

// next claims for lanes that are at one place, or after some claims will be.
func (l *logStore) next(
	ctx context.Context, lanes []outbox.Lane, limit outbox.ClaimLimit,
) (*logClaim, []*outbox.Record, error) {
	if err := l.load(ctx, lanes); err != nil {
		return nil, nil, err
	}
	l.mu.Lock()
	l.turns++
	g := groupOf(lanes, l.lanes, l.turns%2 == 0)
	l.mu.Unlock()
	claim, records, err := l.read(ctx, g, limit)
	if err == nil && !claim.whole && len(g.places) > 1 { // each goes through its late rows alone
		return l.read(ctx, l.partOf(g), limit)
	}
	return claim, records, err
}

// unnoted returns a place of some lanes of a claim, as bits, that has not been written for some time. The caller holds
// mu.
func (l *logStore) unnoted(c *logClaim) (lanes int64, place *logPlace) {
	for n := range c.from {
		at := l.lanes[n]
		if at.place != at.noted && at.place.position > 0 && time.Since(at.when) >= noteEvery {
			place = at.place
			break
		}
	}
	for n := range c.from {
		if place != nil && l.lanes[n].place == place {
			lanes |= bit(n)
		}
	}
	return lanes, place
}

// noted remembers what was written. The caller holds mu.
func (l *logStore) noted(lanes int64, place *logPlace) {
	for n, at := range l.lanes {
		if lanes&bit(n) != 0 {
			at.noted, at.when = place, time.Now()
		}
	}
}

// partOf returns those lanes of a group that share one place.
func (l *logStore) partOf(g logGroup) logGroup {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := logGroup{places: g.places[:1], bound: g.bound}
	for _, lane := range g.lanes {
		if l.lanes[lane].place == g.places[0] {
			one.lanes = append(one.lanes, lane)
		}
	}
	return one
}

// read runs one claim. A row that the database cannot hand out is treated as in store.claimOldest.
func (l *logStore) read(
	ctx context.Context, g logGroup, limit outbox.ClaimLimit,
) (*logClaim, []*outbox.Record, error) {
	ask := l.claims.limit(limit)
	for _, p := range g.places {
		ask += len(p.done)
	}
	claim, records, err := l.query(ctx, l.sql.claim, ask, g, limit)
	if !ofTheData(err) || claim == nil {
		return claim, records, err
	}
	if len(claim.rows) > 0 {
		return claim, records, nil
	}
	claim, records, again := l.query(ctx, l.sql.unreadable, 1, g, limit)
	if again != nil {
		return nil, nil, err
	}
	if len(records) > 0 {
		records[0].Defect = "the row cannot be read: " + err.Error()
	}
	return claim, records, nil
}

// query runs a claim of at most ask rows. With an error it returns what came before that.
func (l *logStore) query(
	ctx context.Context, sql string, ask int, g logGroup, limit outbox.ClaimLimit,
) (*logClaim, []*outbox.Record, error) {
	first := g.places[0]
	claim := &logClaim{from: map[int16]*logPlace{}, era: first.era, position: first.position, bound: g.bound}
	var lanes int64
	l.mu.Lock()
	for _, lane := range g.lanes {
		claim.from[lane] = l.lanes[lane].place
		lanes |= bit(lane)
	}
	l.mu.Unlock()
	snapshots := make([]snapshot, len(g.places))
	for i, p := range g.places {
		snapshots[i] = p.snapshot
	}
	active, unknown := unseen(snapshots)
	beyond, pass := int64(math.MinInt64), (*string)(nil)
	if first.late != nil {
		beyond, pass = first.late.position, &first.late.snapshot.text
	}
	if first.position == 0 { // nothing stands in front of it
		active, unknown = []string{}, fmt.Sprint(uint64(math.MaxUint64))
	}
	rows, err := l.pool.Query(ctx, sql, claimFormats, lanes, ask, claim.position, g.bound, active, unknown, beyond,
		pass)
	if err != nil {
		return nil, nil, fmt.Errorf("query %s: %w", l.layout.Table, err)
	}
	defer rows.Close()
	read := logReading{logStore: l, claim: claim, limit: limit, ask: ask, pass: first.late != nil}
	for rows.Next() {
		more, err := read.row(rows.RawValues())
		if err != nil {
			return nil, nil, fmt.Errorf("decode a row of %s: %w", l.layout.Table, err)
		}
		if !more {
			break
		}
	}
	rows.Close()
	err = rows.Err()
	if claim.snapshot.text == "" && err == nil {
		err = fmt.Errorf("the statement has told no snapshot")
	}
	read.end(err != nil)
	if err != nil {
		return claim, read.records, fmt.Errorf("read %s: %w", l.layout.Table, timeLimit(ctx, err))
	}
	return claim, read.records, nil
}

// Settle implements outbox.Store.
func (l *logStore) Settle(
	ctx context.Context, owner uuid.UUID, lanes []outbox.Lane, outcomes []outbox.Outcome,
) (outbox.Settled, error) {
	t := logSettling{logStore: l, owner: owner, lanes: lanes}
	err := t.settle(ctx, outcomes)
	switch {
	case err != nil:
		return outbox.Settled{}, err
	case len(t.refusal.Outcomes) > 0:
		return t.settled, &t.refusal
	}
	return t.settled, nil
}

// Backlog implements outbox.Store.
func (l *logStore) Backlog(ctx context.Context, limit int) (outbox.Backlog, error) {
	return l.scanBacklog(l.pool.QueryRow(ctx, l.sql.backlog, l.name, limit, outbox.Lanes))
}

// checkLog finds out whether this role may note how far it has read a log.
func checkLog(ctx context.Context, pool *pgxpool.Pool) error {
	if err := allowed(ctx, pool, "begin an era in", eraTable, []string{"SELECT", "INSERT"}, nil); err != nil {
		return err
	}
	return allowed(ctx, pool, "note positions in", positionsTable, []string{"SELECT", "INSERT", "DELETE"}, nil)
}

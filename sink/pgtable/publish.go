package pgtable

import (
	"cmp"
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/fault"
)

// Bounds of one transaction.
const (
	maxRows  = 1000
	maxBytes = 8 << 20 // of payloads; a larger one goes alone
)

// Publish implements outbox.Sink. A batch is one statement a table, in one transaction and one
// round trip for 1000 events. If PostgreSQL refuses it, each table is asked with a statement of no
// rows. A table that refuses that too fails its events, which are of no class and tried again.
// Otherwise the transaction is sent again in halves, down to the row that fails alone. A row that
// cannot be stored as it is (SQLSTATE classes 22 and 54) is of class outbox.ClassPermanent, and so
// is a destination that is no name of a table. Where the server takes nothing (no answer, shutting
// down, read-only, full) the error is of class outbox.ClassUnavailable. It may have committed then:
// the copies are refused.
//
// It returns as soon as ctx ends.
func (s *Sink) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	p := &publication{Sink: s, batch: batch, results: make([]outbox.Result, len(batch)),
		failed: outbox.HeldKeys{}, tables: map[string]*state{}}
	for from := 0; from < len(batch); {
		to := p.bound(from)
		round := make([]int, 0, to-from)
		for i := from; i < to; i++ {
			round = append(round, i)
		}
		p.send(ctx, round)
		if from = to; from < len(batch) {
			fault.Hit(fault.MidBatch)
		}
	}
	return p.results
}

// publication is one call of Publish.
type publication struct {
	*Sink
	batch   []outbox.Delivery
	results []outbox.Result
	failed  outbox.HeldKeys
	tables  map[string]*state // by destination
	down    error             // the server takes nothing
}

// state is what a publication knows of a destination.
type state struct {
	table
	well    bool  // it took a statement of no rows
	refused error // every event of it fails with this
}

// bound returns the end of the round that begins at from.
func (p *publication) bound(from int) int {
	rows, size := p.limit.Get(), 0
	for i := from; i < len(p.batch); i++ {
		if size += len(p.batch[i].Payload); i > from && (i-from == rows || size > maxBytes) {
			return i
		}
	}
	return len(p.batch)
}

// send publishes the deliveries of these indexes, which ascend.
func (p *publication) send(ctx context.Context, todo []int) {
	for {
		todo = p.sift(ctx, todo)
		if len(todo) == 0 {
			return
		}
		err := p.insert(ctx, todo)
		switch {
		case err == nil:
			return
		case ctx.Err() != nil:
			p.limit.Shrink(len(todo)) // it was too slow, or had to wait
			continue                  // sift answers
		case isUnavailable(err):
			p.stop(err, len(todo))
			continue
		}
		found, problem := p.probe(ctx, todo, err)
		switch {
		case problem != nil:
			p.stop(problem, len(todo))
		case found: // a table refuses all that is its own
		case len(todo) == 1:
			p.fail(todo[0], p.refusal(&p.batch[todo[0]], err))
			return
		default:
			half := len(todo) / 2
			p.send(ctx, todo[:half])
			todo = todo[half:]
		}
	}
}

// stop has everything that is not answered yet answered as unavailable.
func (p *publication) stop(err error, rows int) {
	if code(err) == queryCanceled { // by statement_timeout
		p.limit.Shrink(rows)
	}
	p.down = outbox.Unavailable(fmt.Errorf("insert into the sink's PostgreSQL: %s", p.text(err)))
}

// sift answers what need not be sent and returns the rest.
func (p *publication) sift(ctx context.Context, todo []int) (rest []int) {
	for _, i := range todo {
		d := &p.batch[i]
		switch {
		case ctx.Err() != nil:
			p.fail(i, outbox.Unavailable(fmt.Errorf("insert into the sink's PostgreSQL: %w", ctx.Err())))
		case p.down != nil:
			p.fail(i, p.down)
		case p.failed.Behind(d.Record):
			p.results[i].Err = outbox.ErrNotAttempted
		default:
			if err := p.state(d.Destination).refused; err != nil {
				p.fail(i, err)
				continue
			}
			rest = append(rest, i)
		}
	}
	return rest
}

func (p *publication) state(destination string) *state {
	known := p.tables[destination]
	if known == nil {
		known = &state{}
		known.table, known.refused = p.table(destination)
		p.tables[destination] = known
	}
	return known
}

func (p *publication) fail(i int, err error) {
	p.results[i] = outbox.Result{Err: err}
	p.failed.Hold(p.batch[i].Record)
}

// identity is what the primary key says of a row, beside the table.
type identity struct {
	id         uuid.UUID
	origin     int64
	generation int32
}

func identityOf(d *outbox.Delivery) identity {
	return identity{d.ID, int64(d.Origin), int32(d.Generation)}
}

// insert makes one transaction of the deliveries and answers them. An error is that of all of them.
func (p *publication) insert(ctx context.Context, todo []int) error {
	statements := new(pgx.Batch)
	byTable := map[string]*columns{}
	var order []*columns
	for _, i := range todo {
		d := &p.batch[i]
		c := byTable[d.Destination]
		if c == nil {
			c = newColumns(p.state(d.Destination).insert)
			byTable[d.Destination] = c
			order = append(order, c)
		}
		c.add(i, d)
	}
	for _, c := range order {
		statements.Queue(c.insert, c.arguments()...)
	}
	results := p.pool.SendBatch(ctx, statements)
	var err error
	for _, c := range order {
		if c.inserted, err = inserted(results); err != nil {
			break
		}
	}
	// Close reads to the end of the transaction: before that nothing is committed.
	if err = cmp.Or(err, results.Close()); err != nil {
		return err
	}
	for _, c := range order {
		for _, i := range c.deliveries {
			row := identityOf(&p.batch[i])
			p.results[i] = outbox.Result{Duplicate: !c.inserted[row]}
			delete(c.inserted, row) // of two copies in a batch the first is new
		}
	}
	return nil
}

// inserted reads the rows of the next statement.
func inserted(results pgx.BatchResults) (map[identity]bool, error) {
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	found := map[identity]bool{}
	var row identity
	_, err = pgx.ForEachRow(rows, []any{(*[16]byte)(&row.id), &row.origin, &row.generation}, func() error {
		found[row] = true
		return nil
	})
	return found, err
}

// probe asks each table of the deliveries whether it takes a statement of no rows, and tells
// whether one does not, or is there now and was missing when cause came. An error is that of a
// server that takes nothing.
func (p *publication) probe(ctx context.Context, todo []int, cause error) (found bool, err error) {
	for _, i := range todo {
		destination := p.batch[i].Destination
		s := p.state(destination)
		if s.well || s.refused != nil {
			continue
		}
		err := p.try(ctx, s)
		if err != nil && p.cfg.Create && code(err) == undefinedTable {
			_, creating := p.pool.Exec(ctx, s.create, pgx.QueryExecModeExec)
			// Of two that create a table at the same moment one fails, with whatever it stumbles
			// over.
			if err = p.try(ctx, s); err != nil && creating != nil {
				err = creating
			}
		}
		switch {
		case err == nil:
			s.well = true
			found = found || code(cause) == undefinedTable // another relay has made it in between
		case isUnavailable(err):
			return false, err
		default:
			s.refused = p.unfit(destination, err)
			found = true
		}
	}
	return found, nil
}

func (p *publication) try(ctx context.Context, s *state) error {
	_, err := p.pool.Exec(ctx, s.insert, append([]any{pgx.QueryExecModeExec}, newColumns("").arguments()...)...)
	return err
}

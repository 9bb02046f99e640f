package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/store/postgres"
)

// shop is a database with a business table beside the outbox.
type shop struct {
	*pgxpool.Pool
	url string
}

func newShop(t *testing.T, change ...func(*pgxpool.Config)) shop {
	url := newDatabase(t)
	s := shop{newPool(t, url, change...), url}
	_, err := s.Exec(t.Context(),
		"CREATE TABLE orders (id uuid PRIMARY KEY, parent uuid REFERENCES orders DEFERRABLE INITIALLY DEFERRED)")
	ok(t, err)
	return s
}

// place returns what InTx runs: it writes an order and returns the event about it, with the same
// id.
func place(ctx context.Context, id uuid.UUID) func(pgx.Tx) ([]outbox.Event, error) {
	return func(tx pgx.Tx) ([]outbox.Event, error) {
		_, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1) ON CONFLICT DO NOTHING", id)
		e := event("order.placed")
		e.ID = id
		return []outbox.Event{e}, err
	}
}

// exists tells whether the order and its event exist, and fails t unless it is both or neither.
func (s shop) exists(t *testing.T, id uuid.UUID) bool {
	t.Helper()
	order := one[bool](t, s, "SELECT EXISTS (SELECT FROM orders WHERE id = $1)", id)
	written := one[bool](t, s, "SELECT EXISTS (SELECT FROM outbox_events WHERE id = $1)", id)
	if order != written {
		t.Errorf("the order exists: %t, its event: %t", order, written)
	}
	return order
}

func writer(t *testing.T, cfg outbox.WriterConfig) *postgres.Writer {
	t.Helper()
	w, err := postgres.NewWriter(cfg)
	ok(t, err)
	return w
}

// wakes counts calls, and how many of them came before the event could be seen.
type wakes struct {
	n     atomic.Int64
	early atomic.Int64
	seen  func() bool
}

func (w *wakes) Wake(string) {
	w.n.Add(1)
	if w.seen != nil && !w.seen() {
		w.early.Add(1)
	}
}

var errBusiness = errors.New("out of stock")

// What fn may do wrong, and what InTx must answer. The pool has one connection, which has to come
// back clean each time.
func TestInTxOutcomes(t *testing.T) {
	s := newShop(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	ignore, refuse := writer(t, outbox.WriterConfig{}), writer(t, outbox.WriterConfig{RefuseDuplicates: true})
	ctx := t.Context()
	known := uuid.New()
	ok(t, ignore.InTx(ctx, s.Pool, place(ctx, known)))

	outcomes := map[string]func(id uuid.UUID, wake func(string)) (err, want error){
		"written": func(id uuid.UUID, wake func(string)) (error, error) {
			return ignore.InTx(ctx, s.Pool, place(ctx, id), wake), nil
		},
		"written, strict": func(id uuid.UUID, wake func(string)) (error, error) {
			return writer(t, outbox.WriterConfig{Strict: true}).InTx(ctx, s.Pool,
				func(tx pgx.Tx) ([]outbox.Event, error) {
					events, err := place(ctx, id)(tx)
					events[0].AggregateID = "42"
					return events, err
				}, wake), nil
		},
		"written, duplicates refused": func(id uuid.UUID, wake func(string)) (error, error) {
			return refuse.InTx(ctx, s.Pool, place(ctx, id), wake), nil
		},
		"fn fails": func(id uuid.UUID, wake func(string)) (error, error) {
			return ignore.InTx(ctx, s.Pool, func(tx pgx.Tx) ([]outbox.Event, error) {
				_, _ = place(ctx, id)(tx)
				return nil, errBusiness
			}, wake), errBusiness
		},
		"invalid event": func(id uuid.UUID, wake func(string)) (error, error) {
			return ignore.InTx(ctx, s.Pool, func(tx pgx.Tx) ([]outbox.Event, error) {
				events, err := place(ctx, id)(tx)
				events[0].Topic = ""
				return events, err
			}, wake), outbox.ErrInvalidEvent
		},
		"duplicate refused": func(id uuid.UUID, wake func(string)) (error, error) {
			return refuse.InTx(ctx, s.Pool, func(tx pgx.Tx) ([]outbox.Event, error) {
				events, err := place(ctx, id)(tx)
				return append(events, outbox.Event{ID: known, Topic: "t", Source: "s", Payload: []byte("1")}), err
			}, wake), outbox.ErrDuplicateEvent
		},
		"SQL error ignored by fn": func(id uuid.UUID, wake func(string)) (error, error) {
			return ignore.InTx(ctx, s.Pool, func(tx pgx.Tx) ([]outbox.Event, error) {
				events, _ := place(ctx, id)(tx)
				_, _ = tx.Exec(ctx, "SELECT 1/0")
				return events, nil
			}, wake), pgx.ErrTxCommitRollback
		},
		"SQL error ignored, no events": func(id uuid.UUID, wake func(string)) (error, error) {
			return ignore.InTx(ctx, s.Pool, func(tx pgx.Tx) ([]outbox.Event, error) {
				_, _ = place(ctx, id)(tx)
				_, _ = tx.Exec(ctx, "SELECT 1/0")
				return nil, nil
			}, wake), pgx.ErrTxCommitRollback
		},
		"commit refused by a constraint": func(id uuid.UUID, wake func(string)) (error, error) {
			err := ignore.InTx(ctx, s.Pool, func(tx pgx.Tx) ([]outbox.Event, error) {
				events, _ := place(ctx, id)(tx)
				_, err := tx.Exec(ctx, "UPDATE orders SET parent = gen_random_uuid() WHERE id = $1", id)
				return events, err
			}, wake)
			var refused *pgconn.PgError
			if !errors.As(err, &refused) || refused.Code != "23503" {
				return fmt.Errorf("got %w, want 23503", err), nil
			}
			return err, err
		},
		"fn ends the transaction": func(id uuid.UUID, wake func(string)) (error, error) {
			err := ignore.InTx(ctx, s.Pool, func(tx pgx.Tx) ([]outbox.Event, error) {
				events, _ := place(ctx, id)(tx)
				return events, tx.Rollback(ctx)
			}, wake)
			if err == nil || !strings.Contains(err.Error(), "ended the transaction") {
				return fmt.Errorf("got %w, want it to say so", err), nil
			}
			return err, err
		},
		"fn leaves rows open": func(id uuid.UUID, wake func(string)) (error, error) {
			err := ignore.InTx(ctx, s.Pool, func(tx pgx.Tx) ([]outbox.Event, error) {
				events, _ := place(ctx, id)(tx)
				_, err := tx.Query(ctx, "SELECT generate_series(1, 100000)") //nolint:sqlclosecheck // the mistake under test
				return events, err
			}, wake)
			if err == nil {
				return errors.New("no error"), nil
			}
			return err, err
		},
		"fn panics": func(id uuid.UUID, wake func(string)) (error, error) {
			defer func() { _ = recover() }()
			_ = ignore.InTx(ctx, s.Pool, func(tx pgx.Tx) ([]outbox.Event, error) {
				_, _ = place(ctx, id)(tx)
				panic("nil map")
			}, wake)
			return errors.New("no panic"), nil
		},
	}
	var names []string
	for name := range outcomes {
		names = append(names, name)
	}
	for i := range 9 * len(names) {
		if i%len(names) == 0 {
			rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		}
		name := names[i%len(names)]
		id, wake := uuid.New(), &wakes{}
		err, want := outcomes[name](id, wake.Wake)
		if !errors.Is(err, want) {
			t.Fatalf("%s: got %v, want %v", name, err, want)
		}
		written := strings.HasPrefix(name, "written")
		if s.exists(t, id) != written {
			t.Errorf("%s: it exists: %t", name, !written)
		}
		if (wake.n.Load() == 1) != written {
			t.Errorf("%s: woken %d times", name, wake.n.Load())
		}
		if n := one[int](t, s,
			"SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'"); n != 0 {
			t.Errorf("%s: the connection came back with %d locks", name, n)
		}
	}
}

func TestInTxIgnoresDuplicates(t *testing.T) {
	s := newShop(t)
	w := writer(t, outbox.WriterConfig{})
	id := uuid.New()
	for range 3 { // a job that is repeated
		ok(t, w.InTx(t.Context(), s.Pool, place(t.Context(), id)))
	}
	if n := one[int](t, s, "SELECT count(*) FROM outbox_events"); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

// However pgx is told to send statements (see kinds), the pipeline with COMMIT works.
func TestInTxInEveryMode(t *testing.T) {
	url := newDatabase(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		pool := newPool(t, url, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		for _, cfg := range []outbox.WriterConfig{{}, {Strict: true}, {RefuseDuplicates: true}} {
			e := event("mode")
			e.AggregateID = "1"
			err := writer(t, cfg).InTx(t.Context(), pool, func(pgx.Tx) ([]outbox.Event, error) { return []outbox.Event{e}, nil })
			if err != nil || !one[bool](t, pool, "SELECT EXISTS (SELECT FROM outbox_events WHERE id = $1)", e.ID) {
				t.Errorf("%v, %+v: not written (%v)", mode, cfg, err)
			}
			err = writer(t, cfg).InTx(t.Context(), pool, func(tx pgx.Tx) ([]outbox.Event, error) {
				_, _ = tx.Exec(t.Context(), "SELECT 1/0")
				return []outbox.Event{event("never")}, nil
			})
			if !errors.Is(err, pgx.ErrTxCommitRollback) {
				t.Errorf("%v, %+v: got %v after an ignored error", mode, cfg, err)
			}
		}
	}
	if n := one[int](t, newPool(t, url), "SELECT count(*) FROM outbox_events"); n != 15 {
		t.Errorf("%d events, want 15", n)
	}
}

func TestInTxWakesAfterCommit(t *testing.T) {
	s := newShop(t)
	w := writer(t, outbox.WriterConfig{})
	id := uuid.New()
	wake := &wakes{seen: func() bool { return s.exists(t, id) }}
	ok(t, w.InTx(t.Context(), s.Pool, place(t.Context(), id), wake.Wake, wake.Wake))
	if wake.n.Load() != 2 || wake.early.Load() != 0 {
		t.Errorf("woken %d times, %d of them before the commit; want 2 and 0", wake.n.Load(), wake.early.Load())
	}
	ok(t, w.InTx(t.Context(), s.Pool, func(pgx.Tx) ([]outbox.Event, error) { return nil, nil }, wake.Wake))
	if wake.n.Load() != 2 {
		t.Error("woken without an event")
	}
}

func TestInTxCancelled(t *testing.T) {
	s := newShop(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	w := writer(t, outbox.WriterConfig{})
	cancelIn := func(when string) uuid.UUID {
		id := uuid.New()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if when == "before" {
			cancel()
		}
		wake := &wakes{}
		err := w.InTx(ctx, s.Pool, func(tx pgx.Tx) ([]outbox.Event, error) {
			events, err := place(ctx, id)(tx)
			switch when {
			case "after fn":
				cancel()
			case "in a statement":
				time.AfterFunc(20*time.Millisecond, cancel)
				_, err = tx.Exec(ctx, "SELECT pg_sleep(10)")
			}
			return events, err
		}, wake.Wake)
		if !errors.Is(err, context.Canceled) || wake.n.Load() != 0 {
			t.Errorf("cancelled %s: got %v, woken %d times", when, err, wake.n.Load())
		}
		return id
	}
	for _, when := range []string{"before", "after fn", "in a statement"} {
		if s.exists(t, cancelIn(when)) {
			t.Errorf("cancelled %s: it was committed", when)
		}
	}
}

// wire counts round trips and can cut the connection; it is what a pool dials with.
type wire struct {
	trips atomic.Int64
	cut   atomic.Int32 // the next write does what: 0 nothing special, 1 the server does not get it, 2 the answer is lost
}

func (w *wire) dial(c *pgxpool.Config) {
	c.MaxConns = 1
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &wiredConn{Conn: conn, wire: w}, err
	}
}

type wiredConn struct {
	net.Conn
	wire *wire
	read atomic.Bool // since the last write
	dead atomic.Bool
}

func (c *wiredConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.dead.Load() { // asked after the Read, because pgx may have been waiting in one when the connection was cut
		return 0, io.ErrUnexpectedEOF
	}
	if n > 0 {
		c.read.Store(true)
	}
	return n, err
}

func (c *wiredConn) Write(b []byte) (int, error) {
	if c.read.Swap(false) {
		c.wire.trips.Add(1)
	}
	switch c.wire.cut.Swap(0) {
	case 1:
		_ = c.Close()
	case 2:
		c.dead.Store(true)
	}
	return c.Conn.Write(b)
}

// The claim of InTx's comment: BEGIN is one round trip, INSERT and COMMIT together another.
func TestInTxRoundTrips(t *testing.T) {
	for name, c := range map[string]struct {
		cfg   outbox.WriterConfig
		drawn bool
		want  int64
	}{
		"relaxed":                       {outbox.WriterConfig{}, false, 2},
		"strict":                        {outbox.WriterConfig{Strict: true}, false, 2},
		"duplicates refused":            {outbox.WriterConfig{RefuseDuplicates: true}, false, 3},
		"duplicates refused, drawn ids": {outbox.WriterConfig{RefuseDuplicates: true}, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var w wire
			pool := newPool(t, newDatabase(t), w.dial)
			write := func() {
				ok(t, writer(t, c.cfg).InTx(t.Context(), pool, func(pgx.Tx) ([]outbox.Event, error) {
					e, other := event("trip"), event("trip")
					e.AggregateID = "1"
					if c.drawn {
						e.ID, other.ID = uuid.Nil, uuid.Nil
					}
					return []outbox.Event{e, other}, nil
				}))
			}
			write() // the first also prepares the statements
			before := w.trips.Load()
			write()
			if n := w.trips.Load() - before; n != c.want {
				t.Errorf("%d round trips, want %d", n, c.want)
			}
		})
	}
}

// The unknown outcome of a commit: the connection dies under it. InTx says so, and repeating with
// the same ids is safe in both cases.
func TestInTxConnectionCutDuringCommit(t *testing.T) {
	var w wire
	s := newShop(t, w.dial)
	out := writer(t, outbox.WriterConfig{})
	// Prepares the statements, so that the next write is the pipeline.
	ok(t, out.InTx(t.Context(), s.Pool, place(t.Context(), uuid.New())))
	for mode, committed := range map[int32]bool{1: false, 2: true} {
		id, wake := uuid.New(), &wakes{}
		err := out.InTx(t.Context(), s.Pool, func(tx pgx.Tx) ([]outbox.Event, error) {
			events, err := place(t.Context(), id)(tx)
			w.cut.Store(mode)
			return events, err
		}, wake.Wake)
		if err == nil || wake.n.Load() != 0 {
			t.Fatalf("mode %d: got %v, woken %d times", mode, err, wake.n.Load())
		}
		if committed { // the server may still be at it
			eventually(t, "the server commits what it received", func() bool {
				return one[int](t, s, "SELECT count(*) FROM outbox_events WHERE id = $1", id) == 1
			})
		}
		if s.exists(t, id) != committed {
			t.Errorf("mode %d: committed: %t", mode, !committed)
		}
		ok(t, out.InTx(t.Context(), s.Pool, place(t.Context(), id), wake.Wake))
		if n := one[int](t, s, "SELECT count(*) FROM outbox_events WHERE id = $1", id); n != 1 || wake.n.Load() != 1 {
			t.Errorf("mode %d: %d events after the repetition, woken %d times", mode, n, wake.n.Load())
		}
		ok(t, out.InTx(t.Context(), s.Pool, place(t.Context(), uuid.New()))) // prepares again on the new connection
	}
}

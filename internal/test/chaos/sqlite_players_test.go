package chaos

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/sqlite"
)

// What this test binary plays when it is started again, to be killed.
const (
	roleVariable = "OUTBOX_CHAOS_ROLE"
	fileVariable = "OUTBOX_CHAOS_FILE"

	rolePlain   = "plain"   // a program that knows SQLite and nothing of us: plain SQL on database/sql
	roleLibrary = "library" // one that writes with sqlite.NewWriter
	roleWhole   = "whole"   // one that does, and relays too, to its standard output
	roleRelay   = "relay"   // that without its writing
)

// saying is a line that a player prints. It is printed in one write, which a pipe takes whole or
// not at all.
type saying struct {
	Did    string // attempting, committed, rolled back, failed, stopped, or what it delivered
	N      int64  // the business row
	Events []told
	Waited time.Duration `json:",omitempty"` // for the write lock
	Error  string        `json:",omitempty"`
}

const (
	didAttempt  = "attempting" // all is written, COMMIT or ROLLBACK comes next
	didCommit   = "committed"
	didRollBack = "rolled back"
	didFail     = "failed" // with Events: COMMIT was sent
	didDeliver  = "delivered"
)

// told is an event as a player knows it.
type told struct{ ID, Key string }

func (s saying) say() {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // texts and numbers always marshal
	}
	if _, err := os.Stdout.Write(append(text, '\n')); err != nil {
		os.Exit(1) // nobody listens any more
	}
}

// orders is the business data: a row holds the ids of the events that were written with it. SQLite
// has one writer at a time, so the numbers are the order of the commits.
const orders = `CREATE TABLE orders (n INTEGER PRIMARY KEY AUTOINCREMENT, events TEXT NOT NULL CHECK (json_valid(events))) STRICT`

// discord counts events without their business row, and the reverse.
const discord = `SELECT (SELECT count(*) FROM (SELECT id FROM outbox_events EXCEPT SELECT value FROM orders, json_each(orders.events))),
	(SELECT count(*) FROM (SELECT value FROM orders, json_each(orders.events) EXCEPT SELECT id FROM outbox_events))`

// plainSource opens the file as docs/operations/sqlite.md tells any Go program to.
func plainSource(path string) string {
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(),
		RawQuery: "_txlock=immediate&_pragma=busy_timeout(30000)"}).String()
}

// play is the whole life of a player: it ends with exit code 0 when it is told to, and with another
// when it finds the file in discord, or is left alone.
func play(role string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	commands := make(chan string, 1)
	go func() { // ends with the process
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			commands <- lines.Text()
		}
		os.Exit(1) // the test has gone
	}()
	if role == roleKafka || role == roleEndpoint {
		fmt.Fprintln(os.Stderr, serve(role, commands))
		return 1
	}
	if handle := map[string]func(context.Context, string) error{
		roleGroup: handleLog, roleStormGroup: handleStorm}[role]; handle != nil {
		if err := handle(ctx, os.Getenv(fileVariable)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	p := &playing{file: os.Getenv(fileVariable)}
	if err := p.run(ctx, role); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

type playing struct {
	file  string
	begin func(context.Context) (*sql.Tx, error)
	write func(ctx context.Context, tx *sql.Tx, keys []string) ([]told, error)
	wake  func()
}

func (p *playing) run(ctx context.Context, role string) (err error) {
	p.wake = func() {}
	if role == rolePlain {
		db, err := sql.Open("sqlite", plainSource(p.file))
		if err != nil {
			return err
		}
		p.begin = func(ctx context.Context) (*sql.Tx, error) { return db.BeginTx(ctx, nil) }
		p.write = writePlain
		return errors.Join(p.produce(ctx, db), db.Close())
	}
	db, err := sqlite.Connect(ctx, p.file, 4)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	writer, err := sqlite.NewWriter(outbox.WriterConfig{Source: "chaos"})
	if err != nil {
		return err
	}
	p.begin, p.write = db.Begin, writeWith(writer)
	if role == roleLibrary {
		return p.produce(ctx, db.Reads())
	}
	r, err := relay.New(db, pipe{}, wholeRelay)
	if err != nil {
		return err
	}
	p.wake = func() { r.Wake("") }
	if role == roleRelay {
		return r.Run(ctx)
	}
	var relaying error
	var wg sync.WaitGroup
	wg.Go(func() { relaying = r.Run(ctx) })
	err = p.produce(ctx, db.Reads())
	wg.Wait()
	return errors.Join(err, relaying)
}

// wholeRelay is the relay of roleWhole: what it may publish again after a kill is a batch of each
// worker. Not less than 64 in a batch, because that many are tried at once of a lane at which
// relays died. Its renewals wait their turn among its writers: with -race on a busy machine for
// longer than a third of killTTL.
var wholeRelay = relay.Config{Workers: 2, BatchRecords: 64, LeaseTTL: 2 * killTTL}

// pipe is a Sink that refuses nothing.
type pipe struct{}

func (pipe) Publish(_ context.Context, batch []outbox.Delivery) []outbox.Result {
	for _, d := range batch {
		saying{Did: didDeliver, Events: []told{{d.ID.String(), d.AggregateID}}}.say()
	}
	return make([]outbox.Result, len(batch))
}

// produce looks whether what it finds is consistent, and then writes until ctx ends.
func (p *playing) produce(ctx context.Context, db *sql.DB) error {
	var homeless, missing int
	if err := db.QueryRowContext(ctx, discord).Scan(&homeless, &missing); err != nil && ctx.Err() == nil {
		return fmt.Errorf("compare: %w", err)
	}
	if homeless+missing > 0 {
		return fmt.Errorf("there are %d events without their business row, and business rows lack %d events", homeless,
			missing)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for ctx.Err() == nil {
				p.transact()
				time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
			}
		})
	}
	wg.Wait()
	return nil
}

// transact is one transaction: a business row and 1 to 5 events. It is not interrupted by the end:
// its outcome would be unknown for no good reason.
func (p *playing) transact() {
	ctx, cancel := context.WithTimeout(context.Background(), tier.Patience())
	defer cancel()
	asked := time.Now()
	tx, err := p.begin(ctx)
	waited := time.Since(asked)
	if err != nil {
		saying{Did: didFail, Error: err.Error()}.say()
		return
	}
	said, err := p.fill(ctx, tx)
	said.Waited = waited
	if err != nil {
		saying{Did: didFail, Error: errors.Join(err, tx.Rollback()).Error()}.say()
		return
	}
	said.Did = didAttempt
	said.say()
	if rand.IntN(10) == 0 {
		said.Did, err = didRollBack, tx.Rollback()
	} else {
		said.Did, err = didCommit, tx.Commit()
	}
	if err != nil {
		said.Did, said.Error = didFail, err.Error()
		_ = tx.Rollback() // the driver may have left it open
	}
	said.say()
	p.wake()
}

func (p *playing) fill(ctx context.Context, tx *sql.Tx) (said saying, err error) {
	if err := tx.QueryRowContext(ctx, `INSERT INTO orders (events) VALUES ('[]') RETURNING n`).Scan(&said.N); err != nil {
		return said, err
	}
	keys := make([]string, 1+rand.IntN(5))
	for i := range keys {
		keys[i] = fmt.Sprintf("k%02d", rand.IntN(30))
	}
	if said.Events, err = p.write(ctx, tx, keys); err != nil {
		return said, err
	}
	var ids []string
	for _, e := range said.Events {
		ids = append(ids, e.ID)
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return said, err
	}
	_, err = tx.ExecContext(ctx, `UPDATE orders SET events = ? WHERE n = ?`, string(list), said.N)
	return said, err
}

// writePlain is what somebody writes who has read the table's definition and nothing else.
func writePlain(ctx context.Context, tx *sql.Tx, keys []string) (events []told, err error) {
	for _, key := range keys {
		e := told{Key: key}
		err := tx.QueryRowContext(ctx, `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload)
			VALUES ('order.changed', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 'Order', ?, 'plain', '{"by": "plain SQL"}') RETURNING id`, key).Scan(&e.ID)
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}

func writeWith(w outbox.Writer[outbox.SQLTx]) func(context.Context, *sql.Tx, []string) ([]told, error) {
	return func(ctx context.Context, tx *sql.Tx, keys []string) (said []told, err error) {
		var events []outbox.Event
		for _, key := range keys {
			e, err := outbox.NewEvent("order.changed", map[string]string{"by": "the library"})
			if err != nil {
				return nil, err
			}
			e.AggregateType, e.AggregateID = "Order", key
			events = append(events, e)
			said = append(said, told{e.ID.String(), key})
		}
		return said, w.Write(ctx, tx, events...)
	}
}

// ledger is what players have said, in the order in which they said it.
type ledger struct {
	attempted atomic.Int64 // transactions
	again     int          // deliveries that were repeated

	mu        sync.Mutex
	txs       map[string]*transaction // by the id of the first event
	delivered []delivery
	failures  []string
	waited    time.Duration // the longest that a transaction waited for the write lock
}

// transaction is one that was attempted.
type transaction struct {
	saying
	outcome outboxtest.Outcome
	at      time.Time
}

// delivery is one by a player's sink; life counts the players.
type delivery struct {
	told
	life int
}

func (l *ledger) take(s saying, life int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch s.Did {
	case didDeliver:
		l.delivered = append(l.delivered, delivery{s.Events[0], life})
	case didAttempt:
		l.attempted.Add(1)
		l.waited = max(l.waited, s.Waited)
		l.txs[s.Events[0].ID] = &transaction{s, outboxtest.Unknown, time.Now()}
	case didFail:
		l.failures = append(l.failures, s.Error)
	default:
		tx := l.txs[s.Events[0].ID]
		tx.at = time.Now()
		if tx.outcome = outboxtest.RolledBack; s.Did == didCommit {
			tx.outcome = outboxtest.Acknowledged
		}
	}
}

// refusals counts transactions that ended with an error that contains text.
func (l *ledger) refusals(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.failures {
		if containsFold(f, text) {
			n++
		}
	}
	return n
}

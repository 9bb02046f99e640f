package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/relay"
)

// Config says what a group reads and how it handles it. Zero means the default in parentheses.
type Config struct {
	// Name is the group's: of its place in a log, of what it remembers, of its dead letters. A new
	// name is a new group and begins anew. Required; letters, digits, - and _, at most 63.
	Name string
	// Table is the table that the group reads (outbox.OutboxLog()). A log has any number of groups,
	// each with a place of its own. Another table has one reader, which it records: one group, or
	// the relays of its sinks. Run returns an *outbox.ReaderError if that is not this group.
	Table outbox.Layout
	// From is where a group begins that is new to a log (Earliest).
	From From
	// Only are the types of the events that are the group's, * standing for any text; others are
	// passed over. One that is the group's and has no handler fails as HandlerMissing (all types).
	Only []string

	// Workers is how many handlers run at a time in this process (8). Each has a connection of the
	// transactions' pool, and the group needs one more: Run warns if the pool is smaller. An event
	// that waits for a worker or a connection counts no attempt.
	Workers int
	// Timeout is the time from the call of a handler to the end of its context (30 s). If the
	// handler has not returned a second later, it hangs: the group counts a failed attempt, closes
	// the connection of the transaction, and starts another worker in its place. So other keys go
	// on even if all handlers hang. The key of the event waits until the handler returns, or until
	// another process takes its lane over. Whatever the handler returns, nothing is committed.
	Timeout     time.Duration
	MaxAttempts int           // failures of a handler before its event is a dead letter (5)
	Backoff     relay.Backoff // between them (5 s, doubling, at most 15 min, ± 20 %)
	// Types are exceptions for some types of events.
	Types map[string]TypeConfig

	// DuplicatesDie makes a dead letter (DuplicateEvent) of a copy. Copies are counted in any case.
	DuplicatesDie bool
	// Window is how long ids are remembered at least (a day more than the table keeps its rows; a
	// shorter one than those are kept is inbox.ErrWindow).
	Window time.Duration
	// Intent returns what an event was meant for, such as "order-42/placed", or "": a second event
	// of the same intent, within IntentWindow (Window), is a copy (nil: no event has one).
	Intent       func(outbox.Event) string
	IntentWindow time.Duration

	// Relay is how the group works as a relay: leases, polling, retention, logger, observer. Its
	// tables and sinks, and how often to try again, are the group's to say.
	Relay relay.Config
}

// TypeConfig is what is different for one type of events. Zero means the group's.
type TypeConfig struct {
	Timeout     time.Duration
	MaxAttempts int
	Backoff     relay.Backoff
	AtATime     int // handlers, without those that hang, that run at a time in this process (Workers)
	Batch       int // most messages of one call (100); HandleBatch only
}

// From is where a new group begins to read a log.
type From struct {
	latest bool
	at     time.Time
}

// Earliest begins with the oldest event that the log has. It is the zero From.
var Earliest = From{}

// Latest begins with what is written from now on.
var Latest = From{latest: true}

// At begins with the first event written at t or later.
func At(t time.Time) From { return From{at: t} }

// Begun is a database whose logs can be read from another place than their beginning: postgres.DB
// is one.
type Begun interface {
	// BeginReader notes where the reader of a log begins, unless it has a place already: at what is
	// written at a time or later, or from now on if that is zero.
	BeginReader(ctx context.Context, log outbox.Layout, at time.Time) error
}

// Group is one process of a group. Make it with New, give it its handlers, and Run it. It is safe
// for concurrent use once it runs.
type Group[Tx any] struct {
	cfg      Config
	db       outbox.Database
	tx       inbox.Transactions[Tx]
	in       *inbox.Inbox[Tx]
	handlers map[string]*handler[Tx]
	calls    *calls[Tx]
	stop     context.CancelFunc // ends Run

	mu    sync.Mutex
	relay *relay.Relay
}

// New returns a group that reads a table of db, and whose handlers work in transactions of tx,
// which may be of another database. It talks to nobody. All problems of cfg are reported at once.
func New[Tx any](db outbox.Database, tx inbox.Transactions[Tx], cfg Config) (*Group[Tx], error) {
	if cfg.Table.Table == "" {
		cfg.Table = outbox.OutboxLog()
	}
	cfg.Workers = cmp.Or(cfg.Workers, 8)
	cfg.Timeout = cmp.Or(cfg.Timeout, 30*time.Second)
	cfg.Relay.Logger = cmp.Or(cfg.Relay.Logger, slog.Default()).With("group", cfg.Name)
	problems := cfg.check()
	if db == nil {
		problems = append(problems, errors.New("there is no database"))
	}
	g := &Group[Tx]{cfg: cfg, db: db, tx: tx, handlers: map[string]*handler[Tx]{}, calls: newCalls[Tx]()}
	g.calls.handle = g.handle
	kept := cfg.Relay.Retention.WithDefaults().After
	if kept < 0 && cfg.Window == 0 {
		problems = append(problems, errors.New("Window is required where the table keeps its rows for ever"))
	}
	in, err := tx.Inbox(inbox.Config{Consumer: cfg.Name, Window: cfg.Window, IntentWindow: cfg.IntentWindow,
		// A part of a log is up to one and a half times as old as it has to be.
		Copies: map[string]time.Duration{"rows of the table": max(kept*3/2, 0)}})
	if err := errors.Join(append(problems, err)...); err != nil {
		return nil, fmt.Errorf("configure group: %w", err)
	}
	g.in = in
	return g, nil
}

var names = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}$`)

func (c *Config) check() (problems []error) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if !names.MatchString(c.Name) {
		add("Name is %q, must be 1 to 63 letters, digits, - and _", c.Name)
	}
	if c.From != Earliest && c.Table.KeepsState() {
		add("From: only a log has a place to begin at, and %s is none", c.Table.Table)
	}
	if c.Workers < 1 {
		add("Workers is %d, must be positive", c.Workers)
	}
	if c.Timeout < 0 {
		add("Timeout is %s, must be positive", c.Timeout)
	}
	for name, t := range c.Types {
		if t.Timeout < 0 || t.MaxAttempts < 0 || t.AtATime < 0 || t.Batch < 0 {
			add("Types[%s]: no field may be negative", name)
		}
	}
	return problems
}

// Run handles events until ctx ends. It then waits for the handlers that run, for at most the
// relay's DrainTimeout, hands its lanes over and returns nil. A handler that does not return
// although its context has ended is an error, and is left behind. Run also ends, with that error,
// when 1,000 handlers hang: only the end of the process frees what they hold. Other errors are
// those of relay.Relay.Run, and problems of the configuration that only the whole of it shows. A
// group can be run once.
func (g *Group[Tx]) Run(ctx context.Context) error {
	ctx, g.stop = context.WithCancel(ctx)
	defer g.stop()
	r, err := g.open()
	if err != nil {
		return err
	}
	if err := g.register(ctx); err != nil {
		return fmt.Errorf("begin group %s: %w", g.cfg.Name, err)
	}
	if have, need := g.tx.Connections, g.cfg.Workers+1; have > 0 && have < need {
		g.cfg.Relay.Logger.Warn("the pool of the handlers' transactions is smaller than Workers + 1, so fewer handlers run "+
			"at a time; give the pool more connections (pool_max_conns), or the group fewer Workers",
			"connections", have, "workers", g.cfg.Workers, "needed", need)
	}
	sweeping, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { g.tx.Sweep(sweeping, g.in, g.warn("cannot forget old ids")) })
	for range g.cfg.Workers {
		g.calls.start()
	}
	err = r.Run(ctx)
	g.calls.close()
	stop()
	background.Wait()
	return errors.Join(err, g.left())
}

// left waits for the handlers, which have been told to end.
func (g *Group[Tx]) left() error {
	done := make(chan struct{})
	go func() { // ends with the last of them
		g.calls.workers.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-time.After(grace):
		return fmt.Errorf("stop group %s: %d handlers do not return, although their contexts have ended", g.cfg.Name,
			g.calls.underWay())
	}
}

// Health is the relay's, with the group as its sink. Before Run nothing is ready.
func (g *Group[Tx]) Health() relay.Health {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.relay == nil {
		return relay.Health{Reason: "not run yet"}
	}
	return g.relay.Health()
}

// open returns the relay that the group is.
func (g *Group[Tx]) open() (*relay.Relay, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.relay != nil {
		return nil, errors.New("this group has been run: make another with New")
	}
	if len(g.handlers) == 0 {
		return nil, fmt.Errorf("group %s has no handlers: give it some with Handle", g.cfg.Name)
	}
	var err error
	g.relay, err = relay.New(g.db, nil, g.relayConfig())
	return g.relay, err
}

func (g *Group[Tx]) relayConfig() relay.Config {
	cfg := g.cfg.Relay
	layout := g.cfg.Table
	layout.Destinations = "" // of sinks; a group handles each event once
	layout.Reader = g.cfg.Name
	byType, _ := outbox.ParseTemplate("{topic}")
	table := relay.Table{Layout: layout, Sink: g.cfg.Name, Destination: byType, Retention: cfg.Retention,
		MaxAttempts: g.cfg.MaxAttempts, Backoff: g.cfg.Backoff}
	for name, t := range g.cfg.Types {
		if t.MaxAttempts != 0 || t.Backoff != (relay.Backoff{}) {
			table.Policies = append(table.Policies,
				relay.RetryPolicy{Destination: escape(name), MaxAttempts: t.MaxAttempts, Backoff: t.Backoff})
		}
	}
	cfg.Tables, cfg.Sinks = []relay.Table{table}, map[string]outbox.Sink{g.cfg.Name: sink[Tx]{g}}
	// Small enough that a batch of slow handlers is soon settled.
	cfg.BatchRecords = cmp.Or(cfg.BatchRecords, 25*g.cfg.Workers)
	return cfg
}

// escape makes a pattern of path.Match that a name alone fits.
func escape(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}

// register has the databases remember what the group is called and where it begins. It waits while
// one is away.
func (g *Group[Tx]) register(ctx context.Context) error {
	return g.tx.Register(ctx, g.in, func() error { return g.begin(ctx) }, g.warn("waiting for the database"))
}

func (g *Group[Tx]) begin(ctx context.Context) error {
	if g.cfg.From == Earliest {
		return nil
	}
	begun, ok := g.db.(Begun)
	if !ok {
		return errors.New("From: this database has no logs that can be read from another place than their beginning")
	}
	return begun.BeginReader(ctx, g.relayConfig().Tables[0].Layout, g.cfg.From.at)
}

func (g *Group[Tx]) warn(what string) func(error) {
	return func(err error) { g.cfg.Relay.Logger.Warn(what, "error", err) }
}

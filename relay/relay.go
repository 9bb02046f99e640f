package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/backoff"
)

// Relay delivers the events of a database's tables to their sinks, and removes what was delivered
// long ago. Any number of relays may run against the same database: a lane of a table is served by
// one of them at a time.
type Relay struct {
	db     outbox.Database
	sinks  map[string]outbox.Sink
	tables []Table
	cfg    Config

	served atomic.Pointer[serving] // nil: not opened yet
	begun  atomic.Bool             // Run was called

	mu       sync.Mutex
	waiting  string          // why nothing is served
	unserved []outbox.Debtor // as of the last minute
}

// serving is what a relay has opened.
type serving struct {
	tables []*tableRelay
	sinks  map[string]*sinkState // of these tables
}

// sink returns the state of a sink, which all tables that it serves share.
func (s *serving) sink(name string, sinks map[string]outbox.Sink) *sinkState {
	if s.sinks[name] == nil {
		s.sinks[name] = &sinkState{name: name, sink: sinks[name], breaker: new(breaker)}
	}
	return s.sinks[name]
}

// New returns a relay that serves the tables of cfg in db with sink, or with the one of cfg.Sinks
// that a table names. It talks to nobody before Run. All problems of cfg are reported at once.
func New(db outbox.Database, sink outbox.Sink, cfg Config) (*Relay, error) {
	cfg, err := cfg.WithDefaults()
	tables, problems := cfg.served()
	if db == nil {
		problems = errors.Join(problems, errors.New("there is no database"))
	}
	for _, t := range tables {
		if slices.ContainsFunc(t.sinks(), func(name string) bool { return cfg.Sinks[name] == nil && sink == nil }) {
			problems = errors.Join(problems, fmt.Errorf("%s has no sink", t.Layout.Table))
		}
	}
	if err := errors.Join(err, problems); err != nil {
		return nil, fmt.Errorf("configure relay: %w", err)
	}
	r := &Relay{db: db, tables: tables, cfg: cfg, waiting: "starting", sinks: map[string]outbox.Sink{DefaultSink: sink}}
	maps.Copy(r.sinks, cfg.Sinks)
	for i := range tables {
		tables[i].serves = tables[i].describe(r.sinks)
	}
	return r, nil
}

// Wake makes the relay look into a table at once instead of at its next poll, or into all where
// table is "". A log's readers are woken with it. It never blocks. A wake-up that gets lost costs
// PollMax.
func (r *Relay) Wake(table string) {
	for _, t := range r.now().tables {
		if table == "" || table == t.cfg.name() || table == t.cfg.table.Layout.Table {
			t.wake()
		}
	}
}

// now returns what is open.
func (r *Relay) now() serving {
	if open := r.served.Load(); open != nil {
		return *open
	}
	return serving{}
}

// Open opens the tables, for which it waits while the database is away. Run does so too; Open is
// for whoever wants to know before. What waiting does not cure is an error: a *SchemaError,
// ErrRowsHidden, ErrNotAllowed, ErrNoTable.
func (r *Relay) Open(ctx context.Context) error {
	if r.served.Load() != nil {
		return nil
	}
	opened, err := r.open(ctx)
	if err != nil {
		return err
	}
	r.served.Store(&opened)
	return nil
}

// Run opens the tables and serves them until ctx ends. It then finishes the batches in flight
// (publish and settle, for at most DrainTimeout), gives up its lanes and returns nil. Failures of
// the database or a sink do not end it: it goes on trying, and Health tells. Once ctx has ended the
// relay is not ready. Errors are those of Open, and an *outbox.ReaderError if a table has another
// reader, now or after this process was paused. A relay can be run once: the second time is an
// error.
func (r *Relay) Run(ctx context.Context) error {
	if r.begun.Swap(true) {
		return errors.New("this relay has been run: make another with New")
	}
	defer r.wait("stopped")
	for {
		if err := r.Open(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if again, err := r.serve(ctx); !again || err != nil || ctx.Err() != nil {
			return err
		}
		r.served.Store(nil)
	}
}

// serve serves what is open until ctx ends, or until the tables are to be opened again.
func (r *Relay) serve(ctx context.Context) (again bool, err error) {
	r.wait("")
	defer context.AfterFunc(ctx, func() { r.wait("stopping") })()
	opened := r.now()
	var names []string
	for _, t := range opened.tables {
		names = append(names, t.cfg.name())
	}
	r.cfg.Logger.Info("relaying", "tables", names)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	var mu sync.Mutex
	var failed error
	start := func(part func(context.Context) error) {
		running.Go(func() {
			if err := part(ctx); err != nil {
				mu.Lock()
				failed = errors.Join(failed, err)
				mu.Unlock()
				cancel()
			}
		})
	}
	for _, t := range opened.tables {
		start(t.run)
		if kept := t.cfg.table.Retention; kept.After > 0 {
			start(func(ctx context.Context) error { return r.db.Retain(ctx, t.cfg.table.Layout, kept) })
		}
	}
	routed := slices.ContainsFunc(opened.tables, func(t *tableRelay) bool { return t.cfg.table.Layout.Of != "" })
	if owed := r.cfg.Retention; routed && owed.After > 0 { // outbox_deliveries is in use
		owed.Archive = "none" // the event's own table archives it
		start(func(ctx context.Context) error { return r.db.Retain(ctx, outbox.DeliveriesOf("", ""), owed) })
	}
	for _, s := range opened.sinks {
		start(s.probe)
	}
	start(func(ctx context.Context) error {
		return r.watchDebts(ctx, &opened, func() {
			mu.Lock()
			again = true
			mu.Unlock()
			cancel()
		})
	})
	start(func(ctx context.Context) error { return r.watch(ctx, opened.tables) })
	start(func(ctx context.Context) error { return measure(ctx, opened) })
	start(func(ctx context.Context) error { return r.db.Listen(ctx, r.cfg.Logger, r.Wake) })
	if r.cfg.LetterRetention.After > 0 {
		start(func(ctx context.Context) error { return r.db.RetainLetters(ctx, r.cfg.LetterRetention) })
	}
	running.Wait()
	if failed == nil {
		r.cfg.Logger.Info("stopped relaying", "tables", names)
	}
	return again, failed
}

// ErrNoTable says that a database has none of the tables that a relay is to serve.
var ErrNoTable = errors.New("there is no table to serve")

const (
	// openLimit bounds one attempt to open the tables, so that a server that takes connections and
	// says nothing is noticed too.
	openLimit = 15 * time.Second
	minOpen   = 500 * time.Millisecond // between attempts at first
	maxOpen   = 5 * time.Second
)

// open opens the tables, again and again while only waiting helps: a service is often started
// before its database.
func (r *Relay) open(ctx context.Context) (serving, error) {
	for pause := minOpen; ; pause = min(2*pause, maxOpen) {
		attempt, cancel := context.WithTimeout(ctx, openLimit)
		opened, err := r.openTables(attempt)
		cancel()
		if err == nil || ctx.Err() != nil || !passes(err) {
			return opened, err
		}
		r.wait("waiting for the database: " + err.Error())
		r.cfg.Logger.Warn("waiting for the database", "error", err, "retry_in", pause.String())
		if !backoff.Wait(ctx, pause) {
			return serving{}, ctx.Err()
		}
	}
}

// passes tells whether a failure to open a table can go away while one waits.
func passes(err error) bool {
	var schema *outbox.SchemaError
	class, _ := outbox.Classify(err)
	return !errors.As(err, &schema) && !errors.Is(err, outbox.ErrRowsHidden) && !errors.Is(err, outbox.ErrNotAllowed) &&
		!errors.Is(err, ErrNoTable) && class != outbox.ClassPermanent
}

// openTables opens the tables that must exist and, of the others, those that do.
func (r *Relay) openTables(ctx context.Context) (serving, error) {
	opened := serving{sinks: map[string]*sinkState{}}
	debtors, err := r.db.Debtors(ctx)
	if err != nil {
		return serving{}, err
	}
	var missing []string
	var remedy string
	for _, t := range r.tables {
		name := t.Layout.Table
		store, err := r.db.OpenTable(ctx, t.Layout)
		var schema *outbox.SchemaError
		if t.Optional && errors.As(err, &schema) && schema.Table == name && len(schema.Missing) == 0 {
			missing = append(missing, name)
			if !strings.HasPrefix(schema.Remedy, "run: ") { // it is there, and not found
				remedy = cmp.Or(remedy, schema.Error()+"; or ")
			}
			continue
		}
		if err != nil {
			return serving{}, err
		}
		if own, err := r.ofGroups(ctx, t, store); err != nil {
			return serving{}, err
		} else if own {
			missing = append(missing, name+" (which only groups read)")
			continue
		}
		ledger, ok := store.(outbox.DeliveryStore)
		// What a sink owes of a key comes before what the table has of it, also where the table has
		// no routes any more.
		owes := ok && t.Layout.Reader == "" && indebted(debtors, ledger.LeaseName(), t.Sink)
		if len(t.Routes) > 0 || !t.Layout.KeepsState() || owes {
			if err := r.openRouted(ctx, &opened, t, store); err != nil {
				return serving{}, err
			}
			continue
		}
		s := opened.sink(t.Sink, r.sinks)
		one, err := newTableRelay(store, s.sink, tableConfig{r.cfg, t, s.breaker}, direct{})
		if err != nil {
			return serving{}, err
		}
		opened.tables = append(opened.tables, one)
	}
	if len(opened.tables) == 0 {
		return serving{},
			fmt.Errorf("%w: none of %s exists: %srun: outbox migrate up, or map a table of your own with a Layout",
				ErrNoTable, strings.Join(missing, ", "), remedy)
	}
	err = r.openDebts(ctx, &opened, debtors)
	return opened, err
}

// ofGroups tells whether a table is a log that only groups read. A relay serves it if it is told so
// by name: its events may be meant for no sink.
func (r *Relay) ofGroups(ctx context.Context, t Table, store outbox.Store) (bool, error) {
	log, ok := store.(interface {
		OnlyGroups(ctx context.Context) ([]string, error)
	})
	if !ok || !t.Optional || t.Layout.Reader != "" {
		return false, nil
	}
	groups, err := log.OnlyGroups(ctx)
	if err != nil || len(groups) == 0 {
		return false, err
	}
	r.cfg.Logger.Warn("left out a log that only groups read; to send its events to sinks too, name it: --table "+
		t.Layout.Table+", or a Table that is not Optional", "table", t.Layout.Table, "groups", groups)
	return true, nil
}

// openRouted opens a table that has routes, or is a log, and for each of its sinks what that owes
// of the table.
func (r *Relay) openRouted(ctx context.Context, opened *serving, t Table, store outbox.Store) error {
	ledger, ok := store.(outbox.DeliveryStore)
	if !ok {
		return outbox.Permanent(fmt.Errorf("%s has Routes or is a log, and its store keeps no deliveries", t.Layout.Table))
	}
	outlets := map[string]*outlet{}
	for _, name := range t.sinks() {
		one, err := r.openOwed(ctx, opened, t, ledger.LeaseName(), name)
		if err != nil {
			return err
		}
		outlets[name] = &outlet{sinkState: opened.sinks[name], owed: one}
	}
	spread := fanout{ledger: ledger, outlets: outlets}
	var m mode = &spread
	var only outbox.Sink
	cfg := tableConfig{r.cfg, t, new(breaker)}
	if len(t.Routes) == 0 {
		s := opened.sink(t.Sink, r.sinks)
		m, only, cfg.breaker = &journal{fanout: spread}, s.sink, s.breaker
	}
	one, err := newTableRelay(ledger, only, cfg, m)
	if err != nil {
		return err
	}
	for _, o := range outlets {
		o.owed.keeper.feeds = append(o.owed.keeper.feeds, one.keeper)
	}
	opened.tables = append(opened.tables, one)
	return nil
}

// openOwed opens what a sink owes of a table, which is named as its lanes are leased. t is the
// table, if it is served.
func (r *Relay) openOwed(ctx context.Context, opened *serving, t Table, of, sink string) (*tableRelay, error) {
	removes := t.Layout.Settle.Removes() || !t.Layout.KeepsState()
	t.Layout, t.Sink, t.Routes, t.serves = outbox.DeliveriesOf(of, sink), sink, nil, ""
	t.Destination, t.Reserved = builtin("{topic}"), nil
	t.Retention.After = -1 // once for all of outbox_deliveries
	if removes {
		t.Layout.Settle = outbox.SettleDelete // the event's own row is what the archive has
	}
	store, err := r.db.OpenTable(ctx, t.Layout)
	if err != nil {
		return nil, err
	}
	s := opened.sink(sink, r.sinks)
	one, err := newTableRelay(store, s.sink, tableConfig{r.cfg, t, s.breaker}, direct{})
	if err != nil {
		return nil, err
	}
	for _, w := range one.workers {
		w.pacer.lulls = lullsPerEmpty
	}
	opened.tables = append(opened.tables, one)
	return one, nil
}

func (r *Relay) wait(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = why
}

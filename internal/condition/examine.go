package condition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// Database is what conditions are found in.
type Database interface {
	outbox.Database
	Ping(ctx context.Context) error
	Plaintext(ctx context.Context) (machine string, err error)
	// Pooled tells whether connections lead to a pooler.
	Pooled(ctx context.Context) (bool, error)
	// Certified returns when the certificate of the server ends; zero: connections have no TLS.
	Certified(ctx context.Context) (ends time.Time, err error)
	Cold() cold.Database
	Browser(ctx context.Context, layout outbox.Layout) (*operate.Browser, error)
	// Facts reads the state of the tables and of their readers.
	Facts(ctx context.Context, tables []operate.Watched, limit int) (operate.Facts, error)
	Troubles(ctx context.Context) ([]operate.Trouble, error)
	Debts(ctx context.Context) ([]operate.Debt, error)
	Pauses(ctx context.Context) (*operate.Pauses, error)
}

// Limits are where something begins to be a condition.
type Limits struct {
	Late      time.Duration // the age of the oldest undelivered event
	Owed      time.Duration // likewise, of what a sink of a table with routes owes
	Held      time.Duration // how long a transaction may hold vacuum back
	Forgotten time.Duration // a pause, a dead letter, an event that waits for its next try
	Idle      time.Duration // a subscription of which nobody asks for events
	Differ    time.Duration // how long relays of a table may have different sinks or routes
	Clocks    time.Duration // how far the database's clock may be from this machine's
	Ends      time.Duration // what is left of a certificate
	DeadRows  int           // row versions of a table that vacuum has not removed
	Kept      int           // delivered rows of a table without retention
	Free      uint64        // bytes of the file system
	Files     uint64        // open files that the process may have
}

// Usual are the limits of the command. An age is an operator's, and none of them stops anything.
var Usual = Limits{
	Late: 30 * time.Second, Owed: 5 * time.Minute, Held: 10 * time.Minute, Forgotten: 24 * time.Hour, Idle: time.Hour,
	Differ: 10 * time.Minute, Clocks: time.Second, Ends: 21 * 24 * time.Hour, DeadRows: 200_000, Kept: 5_000_000,
	Free: 1 << 30, Files: 4096,
}

// Examination is what is looked at. The zero value of what may be left out has nothing to look at.
type Examination struct {
	Config config.Config
	DB     Database // nil: DBErr says why
	DBErr  error
	// Migrations says where the database stands with its sets. May be nil.
	Migrations func(ctx context.Context) ([]migration.SetStatus, error)
	// Required returns the version of a migration set that this program needs. May be nil.
	Required func(set string) uint
	// Sink returns a sink of the settings, connected. May be nil.
	Sink   func(ctx context.Context, s config.Sink) (outbox.Sink, error)
	Limits Limits
	Now    func() time.Time
	// File is the database's, if it is one.
	File string
	// Canary is an event that was written to be delivered. Zero: there is none.
	Canary Canary

	// Count bounds the count of undelivered events of a queue. 0: 100,000.
	Count int

	facts  func() (operate.Facts, error) // of the present examination
	gone   bool                          // the database does not answer
	sinks  func() []connected
	opened func() ([]opened, error)
}

// Canary is an event of a table that tries the whole way.
type Canary struct {
	Table string
	ID    uuid.UUID
}

// connected is a sink of the settings, or why it is none.
type connected struct {
	config.Sink
	sink outbox.Sink
	err  error
}

// opened is a table of the settings, and why a relay could not open it.
type opened struct {
	config.Table
	err error
}

// check looks for a condition. It is called while no other check is.
type check func(ctx context.Context, x *Examination) ([]Finding, error)

// judge finds a condition in facts alone.
type judge func(x *Examination, f *operate.Facts) []Finding

// errNothing says that there is nothing to look at: a check of sinks where none is set, of a server
// where the database is a file.
var errNothing = errors.New("there is nothing to look at")

// Selection chooses conditions of the catalogue: by category or id. The zero value is all of them.
type Selection struct {
	Only, Skip []string
	Pre        bool
	Audit      bool // the conditions that read whole tables, and no others
	Live       bool // the conditions that are found in facts, and no others
}

// Check refuses what is neither a category nor an id.
func (s Selection) Check() error {
	for _, word := range slices.Concat(s.Only, s.Skip) {
		known := slices.Contains(Categories, Category(word)) || slices.ContainsFunc(Catalogue,
			func(c Condition) bool { return strings.EqualFold(c.ID, word) })
		if !known {
			return fmt.Errorf("%q is neither a condition such as OBX-001 nor a category, which are "+
				"%s", word, joined(Categories))
		}
	}
	return nil
}

func joined(all []Category) string {
	texts := make([]string, len(all))
	for i, c := range all {
		texts[i] = string(c)
	}
	return strings.Join(texts, ", ")
}

// Watched are the conditions that a relay looks for.
func Watched() []Condition {
	return slices.DeleteFunc(slices.Clone(Catalogue), func(c Condition) bool { return !Selection{}.has(&c) })
}

func (s Selection) has(c *Condition) bool {
	named := func(words []string) bool {
		return slices.ContainsFunc(words, func(w string) bool {
			return strings.EqualFold(w, c.ID) || strings.EqualFold(w, string(c.Category))
		})
	}
	return (len(s.Only) == 0 || named(s.Only)) && !named(s.Skip) && (c.Pre || !s.Pre) &&
		((c.Category == audit) == s.Audit || c.ID == unfitTable || c.ID == away) &&
		(!s.Live || c.judge != nil || c.ID == away)
}

// patience is how long one condition is looked for.
const patience = 5 * time.Second

// Examine looks for the chosen conditions. Without a database only the settings, the machine and
// the sinks are examined.
func (x *Examination) Examine(ctx context.Context, which Selection) Report {
	if x.Now == nil {
		x.Now = time.Now
	}
	x.remember(ctx)
	x.gone = false
	r := Report{At: x.Now().UTC(), Findings: []Finding{}, Unseen: []Unseen{}}
	var facts *operate.Facts
	if x.DB != nil {
		read, err := x.facts()
		if facts = &read; err != nil {
			facts = nil
			r.miss("", "state of the outbox", operate.Sight{State: operate.Unknown, Why: err.Error()})
		} else {
			r.missFacts(facts)
		}
	}
	for i := range Catalogue {
		c := &Catalogue[i]
		check := c.check
		if which.Live && facts != nil { // facts are enough
			check = nil
		}
		if !which.has(c) || ctx.Err() != nil || check == nil && (facts == nil || c.judge == nil) {
			continue
		}
		found, err := x.look(ctx, c, check, facts)
		switch {
		case errors.Is(err, errNothing):
			continue
		case err != nil:
			r.miss(c.ID, c.Name, sightOf(err))
		}
		r.Asked++
		r.add(c, found)
		if c.ID == away && len(found) > 0 { // OBX-006 stands for all that needs the database
			x.gone, facts, r.Unseen = true, nil, []Unseen{}
		}
	}
	if ctx.Err() != nil {
		r.miss("", "further conditions", operate.Sight{State: operate.Unknown, Why: "the examination was stopped: " +
			ctx.Err().Error()})
	}
	r.sort()
	return r
}

// sort sorts the findings by severity, and those of one severity by their harm.
func (r *Report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(harm(a.ID), harm(b.ID)))
	})
}

// add adds the findings of a condition.
func (r *Report) add(c *Condition, found []Finding) {
	for _, f := range found {
		f.ID, f.Name, f.Category, f.See = c.ID, c.Name, c.Category, Runbook+"#"+c.Anchor()
		f.Severity, f.Remedy = cmp.Or(f.Severity, c.Severity), cmp.Or(f.Remedy, c.Remedy)
		r.Worst = max(r.Worst, f.Severity)
		r.Findings = append(r.Findings, f)
	}
}

// miss adds something that could not be looked at. If it is unknown, the report is not healthy.
func (r *Report) miss(id, name string, sight operate.Sight) {
	r.Unseen = append(r.Unseen, Unseen{id, name, sight.State, sight.Why})
	if sight.State == operate.Unknown {
		r.Worst = max(r.Worst, Uncertain)
	}
}

// missFacts lists the facts that are unknown or not visible. If no queue is known, the result of
// the report is unknown.
func (r *Report) missFacts(f *operate.Facts) {
	known := 0
	for _, q := range f.Queues {
		if q.State == operate.Known {
			known++
		} else if q.State != operate.NotInstalled { // a condition says so of a table that the settings name
			r.miss("", "state of "+q.Name, q.Sight)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Parts)) {
		if part := f.Parts[name]; part.State == operate.Unknown || part.State == operate.NotVisible {
			r.miss("", "table "+name, part)
		}
	}
	for _, s := range f.Subscriptions {
		if s.State != operate.Known {
			r.miss("", "subscription "+s.Name, s.Sight)
		}
	}
	if known == 0 {
		r.miss("", "delivery", operate.Sight{State: operate.Unknown,
			Why: "this login sees no outbox table; run outbox migrate up, or use a login with outbox_reader or outbox_operator"})
	}
}

// sightOf returns the sight of a check that failed.
func sightOf(err error) operate.Sight {
	var server interface{ SQLState() string }
	if errors.As(err, &server) && server.SQLState() == "42501" || errors.Is(err, errObserver) {
		return operate.Sight{State: operate.NotVisible, Why: err.Error()}
	}
	return operate.Sight{State: operate.Unknown, Why: err.Error()}
}

func (x *Examination) look(
	ctx context.Context, c *Condition, check check, facts *operate.Facts,
) (found []Finding, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the check panicked: %v", p)
		}
	}()
	if c.judge != nil && facts != nil {
		found = c.judge(x, facts)
	}
	if check == nil {
		return found, nil
	}
	needed := !slices.Contains([]Category{"settings", "host", "sinks"}, c.Category) && c.ID != away
	if (x.DB == nil || x.gone) && needed {
		return nil, errNothing // OBX-006 reports the database
	}
	asked, err := check(ctx, x)
	found = append(found, asked...)
	var missing interface{ SQLState() string }
	if unfit(err) || errors.As(err, &missing) && missing.SQLState() == "42P01" {
		return found, errNothing // OBX-017 and OBX-018 report a table that does not exist
	}
	return found, err
}

// remember makes the facts, the sinks and the tables be read once for an examination.
func (x *Examination) remember(ctx context.Context) {
	x.facts = sync.OnceValues(func() (operate.Facts, error) { return x.readFacts(ctx) })
	x.sinks = sync.OnceValue(func() (all []connected) {
		if x.Sink == nil {
			return nil
		}
		for _, s := range x.Config.AllSinks() {
			limited, cancel := context.WithTimeout(ctx, patience)
			opened, err := x.Sink(limited, s)
			cancel()
			all = append(all, connected{s, opened, err})
		}
		return all
	})
	x.opened = sync.OnceValues(func() (all []opened, err error) {
		tables, err := x.Config.Tables()
		for _, t := range tables {
			all = append(all, opened{t, x.open(ctx, t.Layout)})
		}
		debtors, failed := x.DB.Debtors(ctx)
		for _, d := range debtors {
			t := config.Table{Layout: outbox.DeliveriesOf(d.Table, d.Sink), Required: true}
			all = append(all, opened{t, x.open(ctx, t.Layout)})
		}
		if unfit(failed) || forbidden(failed) {
			failed = nil // OBX-018 and OBX-019 report the tables
		}
		return all, cmp.Or(err, failed)
	})
}

// readFacts reads the facts of the tables of the settings.
func (x *Examination) readFacts(ctx context.Context) (operate.Facts, error) {
	if x.DB == nil {
		return operate.Facts{}, x.DBErr
	}
	tables, err := x.Config.Tables()
	if err != nil {
		return operate.Facts{}, err
	}
	var watched []operate.Watched
	for _, t := range tables {
		watched = append(watched, operate.Watched{Layout: t.Layout, Wanted: t.Required})
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return x.DB.Facts(ctx, watched, cmp.Or(x.Count, counted))
}

// WatchKnown returns every table that has a layout, to read its facts if it exists.
func WatchKnown(c config.Config) (watched []operate.Watched) {
	for _, t := range c.Known() {
		watched = append(watched, operate.Watched{Layout: t.Layout})
	}
	return watched
}

// open opens a table as a relay does, and checks what the order of its events rests on.
func (x *Examination) open(ctx context.Context, layout outbox.Layout) error {
	store, err := x.DB.OpenTable(ctx, layout)
	if numbered, ok := store.(interface{ CheckNumbers(context.Context) error }); ok && err == nil {
		err = numbered.CheckNumbers(ctx)
	}
	return err
}

// counted bounds the count of undelivered events of a queue, and of pending dead letters.
const counted = 100_000

// tables returns the tables of the settings whose rows this login may read, including those of
// which it reads the rows of one tenant at a time if hidden is set.
func (x *Examination) tables(hidden bool) (all []config.Table, err error) {
	tables, err := x.Config.Tables()
	if err != nil {
		return nil, err
	}
	facts, err := x.facts()
	for _, t := range tables {
		if slices.ContainsFunc(facts.Queues, func(q operate.Queue) bool {
			return q.Table == t.Name() && q.Sink == "" && (q.State == operate.Known || hidden && q.Hidden)
		}) {
			all = append(all, t)
		}
	}
	return all, err
}

// asked is what the statement of a condition is given: of a table, where it is asked of each.
type asked struct {
	sqltable.Layout
	Limits
	Tables []string // all that the settings know, and those that relays keep
	Of     []string // tables without which there is nothing to ask
	Now    time.Time
	// Those of Limits that are times.
	HeldSeconds, ForgottenSeconds, IdleSeconds, ClocksSeconds float64
	// KeptSeconds is the longest time for which delivered events stay in a table, of those that do
	// not stay for ever.
	KeptSeconds float64
}

func (x *Examination) asks() asked {
	return asked{Limits: x.Limits, Now: x.Now(), HeldSeconds: x.Limits.Held.Seconds(),
		ForgottenSeconds: x.Limits.Forgotten.Seconds(), IdleSeconds: x.Limits.Idle.Seconds(),
		ClocksSeconds: x.Limits.Clocks.Seconds()}
}

// query is a condition that a statement of the database finds, which may be of tables that not
// every database has. One that has neither the statement nor the tables has nothing to look at.
func query(statement string, of ...string) check {
	return func(ctx context.Context, x *Examination) ([]Finding, error) {
		q := x.asks()
		q.Of = of
		q.Tables = []string{outbox.DeliveriesOf("", "").Table, "outbox_lanes", "outbox_relays", config.Letters}
		for _, t := range x.Config.Known() {
			q.Tables = append(q.Tables, t.Name())
		}
		return x.run(ctx, statement, q)
	}
}

// queryTables is query for each table whose rows keep what became of them.
func queryTables(statement string) check {
	return func(ctx context.Context, x *Examination) (found []Finding, err error) {
		all, err := x.tables(false)
		for _, t := range all {
			if !t.Layout.KeepsState() {
				continue
			}
			q := x.asks()
			q.Layout = x.DB.Cold().Quote(t.Layout)
			one, err := x.run(ctx, statement, q)
			if err != nil {
				return found, err
			}
			found = append(found, one...)
		}
		return found, err
	}
}

// run returns the findings of a statement: severity, what it is about, what is said, since when,
// and a remedy or NULL.
func (x *Examination) run(ctx context.Context, statement string, q asked) (found []Finding, err error) {
	files, err := x.DB.Cold().Statements()
	if err != nil || !files.Has(statement) {
		return nil, cmp.Or(err, errNothing)
	}
	err = cold.Read(ctx, x.DB.Cold(), func(tx *cold.Tx) error {
		for _, table := range q.Of {
			if exists, _, err := operate.Seen(ctx, tx, table); err != nil || !exists {
				return cmp.Or(err, errNothing)
			}
		}
		return tx.Each(ctx, statement, q, func(rows cold.Rows) error {
			var f Finding
			var severity, remedy, since sqltable.Text
			err := rows.Scan(&severity, &f.About, &f.Says, &since, &remedy)
			if err != nil {
				return err
			}
			f.Severity, err = parseSeverity(severity.S)
			f.Since, f.Remedy = since.Moment(), remedy.S
			found = append(found, f)
			return err
		})
	})
	return found, err
}

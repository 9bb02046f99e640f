package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/store/retention"
	"github.com/outboxrelay/outbox/internal/version"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/subscription"
	"github.com/outboxrelay/outbox/server/token"
)

// Database is what the parts of a process and the commands ask of an open database, whichever it
// is. It is safe for concurrent use.
//
// What it opens, it opens after checking that the tables are there, that they fit and that the role
// may do what this is for. Errors that waiting does not cure are *outbox.SchemaError,
// outbox.ErrRowsHidden, outbox.ErrNotAllowed and the database's own.
type Database interface {
	ForRelay
	ForParts
	ForPeople

	// Notifier tells relays of new events.
	Notifier() (Notifier, error)
	// Plaintext returns the other machine that connections go to without TLS, "" if there is none.
	Plaintext(ctx context.Context) (machine string, err error)
	// Pooled and Certified are as in condition.Database.
	Pooled(ctx context.Context) (bool, error)
	Certified(ctx context.Context) (ends time.Time, err error)
	// Ping asks whether the database answers.
	Ping(ctx context.Context) error
	// Close closes what was opened here. It waits for connections in use.
	Close()
}

// ForRelay is what a relay asks, and whoever does by hand what it does.
type ForRelay interface {
	outbox.Database
	// OpenRetention opens a table to remove old rows from, or retention.Letters. Also
	// retention.ErrNoAge.
	OpenRetention(ctx context.Context, layout outbox.Layout) (*retention.Table, error)
}

// ForParts is what a gateway and a worker ask of a database.
type ForParts interface {
	Runs(ctx context.Context) (Runs, error)
	Tokens(ctx context.Context) (Tokens, error)
	// Subscriptions opens the subscriptions of a log; ErrNoSubscriptions where the database has
	// none.
	Subscriptions(ctx context.Context) (subscription.Store, error)
}

// ErrNoSubscriptions says that a database has no tables of subscriptions.
var ErrNoSubscriptions = errors.New("there are no subscriptions here: they need PostgreSQL, and the " +
	"migration set log (outbox migrate up --set log)")

// ForPeople is what the commands ask of a database.
type ForPeople interface {
	// Browser opens a table to be looked into.
	Browser(ctx context.Context, layout outbox.Layout) (*operate.Browser, error)
	// Letters opens the dead letters. Those of these tables, where they exist, can be put back.
	Letters(ctx context.Context, layouts []outbox.Layout) (deadletter.Store, error)
	// Pauses opens what operators have paused.
	Pauses(ctx context.Context) (*operate.Pauses, error)
	// Facts reads the state of the tables and of their readers.
	Facts(ctx context.Context, tables []operate.Watched, limit int) (operate.Facts, error)
	// Logged returns an event of a log, and how far each reader has come with it.
	Logged(ctx context.Context, log outbox.Layout, idOrPosition, tenant string) (
		operate.EventDetail, []operate.LogReader, error)
	// Debts returns what sinks of tables with routes have not taken.
	Debts(ctx context.Context) ([]operate.Debt, error)
	// MoveDebt gives some of what a sink owes to another one, the oldest first.
	MoveDebt(ctx context.Context, m operate.DebtMove, limit int) (operate.DebtMoved, error)
	// Debtors returns which sinks owe something, and whether a relay serves that.
	Debtors(ctx context.Context) ([]outbox.Debtor, error)
	// Troubles returns what hinders the relays that are alive, and the database itself.
	Troubles(ctx context.Context) ([]operate.Trouble, error)
	// Cold returns the database for rare queries, such as those of internal/condition.
	Cold() cold.Database
	// Writing opens a table with the columns of outbox_events to be written.
	Writing(ctx context.Context, cfg outbox.WriterConfig) (Writing, error)
}

// catalogBelieved is how long operators are shown a table as the catalog had it: who looks on opens
// it every second.
const catalogBelieved = 30 * time.Second

// views are a database as operators see it.
type views struct{ operate.Database }

func viewsOf(db cold.Database) views { return views{operate.On(cold.Remember(db, catalogBelieved))} }

// Runs are crawl runs, with what their parts check before they begin.
type Runs interface {
	crawl.Store
	CheckGateway(ctx context.Context) error // may this role do what a gateway does with runs
	CheckWorker(ctx context.Context) error
	Readable(ctx context.Context) error // can runs be read now
}

// Tokens are the API's tokens, with what a gateway checks before it begins.
type Tokens interface {
	token.Store
	CheckGateway(ctx context.Context) error
}

// Notifier tells relays, in other processes too, that a table has new events.
type Notifier interface {
	// Wake asks for a notification of a table. It never blocks, and several calls in a moment are
	// one.
	Wake(table string)
	// Run sends the notifications until ctx ends, and then the last one.
	Run(ctx context.Context) error
}

// Writing writes events as an application would.
type Writing interface {
	// Prepare validates an event and gives it its id. What is wrong with a field is an
	// *outbox.FieldError.
	Prepare(ctx context.Context, e outbox.Event) (outbox.Event, error)
	// Commit writes prepared events in one transaction, wakes the relays, and returns which of
	// these ids were in the table before.
	Commit(ctx context.Context, events []outbox.Event, ask []uuid.UUID) (known []uuid.UUID, err error)
	// Close sends the last wake-up.
	Close()
}

// preparing is what Prepare is for every database.
type preparing struct{ cfg outbox.WriterConfig }

// Prepare implements Writing.
func (p preparing) Prepare(ctx context.Context, e outbox.Event) (outbox.Event, error) {
	rows, err := eventrow.Prepare(ctx, p.cfg, []outbox.Event{e})
	if err != nil {
		return e, err
	}
	return rows[0].Event, nil
}

// Migrations makes and changes the tables of one database. Each call connects by itself.
type Migrations interface {
	// Status says where the database stands with every set. Optional ones are listed where they are
	// applied or named.
	Status(ctx context.Context, named ...string) ([]migration.SetStatus, error)
	// Plan says what Up would do to tables that were there before it, and changes nothing.
	Plan(ctx context.Context, sets ...string) (migration.Adoption, error)
	// Up brings the sets, or all, to the newest version.
	Up(ctx context.Context, sets ...string) error
	// Down takes the newest migrations of a set away, with the data in their tables.
	Down(ctx context.Context, steps int, set string) error
	// Print writes the SQL of the sets, or all, and needs no database.
	Print(w io.Writer, sets ...string) error
	// Required returns the version of a set that this program needs.
	Required(set string) uint
	// Lacks says why the database has not got an ability that others have, for those that it has
	// not got.
	Lacks(what Ability) string
}

// Sets are the migration sets in the order in which they are applied. Every store has the same.
var Sets = migration.Sets

// OptionalSets are applied only where they are named, and not every store has them.
var OptionalSets = migration.Optional

// AllSteps makes Migrations.Down take a whole set away.
const AllSteps = pgmigrations.All

// MigrationsOf returns the migrations for the database that a valid URL names; without a URL those
// of the first store, to be printed.
func MigrationsOf(databaseURL string) Migrations {
	s, err := storeOf(databaseURL)
	if err != nil {
		s = stores()[0]
	}
	return s.migrations(databaseURL)
}

// use is what a database is opened for.
type use struct {
	name  string // as the server's list of sessions shows it
	conns int    // at most at a time
	relay bool   // a relay's sessions have settings of their own
	alike string // config.Fingerprint of a relay's settings
}

// called is the application_name of its sessions.
func (u use) called() string { return strings.TrimSpace(version.Named(u.name) + " " + u.alike) }

// OpenDatabase opens the database for a command that writes or reads as an application would, and
// sees to it that it answers.
func OpenDatabase(ctx context.Context, databaseURL string) (Database, error) {
	return openNow(ctx, databaseURL, use{name: "outbox", conns: 2}) // the command's own, and one to wake relays
}

func openNow(ctx context.Context, databaseURL string, u use) (Database, error) {
	db, err := new(shared).open(ctx, databaseURL, u)
	if err != nil {
		return nil, err
	}
	if err := db.Ping(ctx); err != nil {
		db.Close()
		return nil, fmt.Errorf("open database %s: %w", MaskDatabase(databaseURL), err)
	}
	return db, nil
}

// shared opens the one database of a process for several parts of it. What they share of it is the
// store's affair. The zero value is ready for use.
type shared struct {
	mu        sync.Mutex
	opener    opener    // nil: nobody has opened it yet
	plaintext sync.Once // the warning of it
}

func (s *shared) open(ctx context.Context, databaseURL string, u use) (Database, error) {
	open, err := s.openerOf(databaseURL)
	if err != nil {
		return nil, err
	}
	return open(ctx, databaseURL, u)
}

func (s *shared) openerOf(databaseURL string) (opener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opener == nil {
		of, err := storeOf(databaseURL)
		if err != nil {
			return nil, &config.Error{Problems: []string{"database: " + err.Error()}}
		}
		s.opener = of.opener()
	}
	return s.opener, nil
}

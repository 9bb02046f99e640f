// Package pgtable inserts events into tables of another PostgreSQL database: the destination is the
// table, as table or schema.table.
//
// # What is guaranteed
//
//   - A delivery that was answered without error is a committed row.
//   - A second copy of a delivery (same origin, event id, destination and generation) is refused by
//     the table's primary key, whichever relay sends it and for as long as the row is there. So a
//     batch whose outcome is unknown is simply sent again. An operator's replay raises the
//     generation and inserts a further row.
//   - A row that the table refuses (a constraint, a trigger, a limit, a type) fails alone, with the
//     reason. A table that is not there, or is not as it should be, fails its own events and no
//     others.
//   - Rows of one ordering key are inserted in the order of the batch, and none after a failed
//     event of its key. A batch is one transaction for all of its tables, so an event is never seen
//     before an earlier one of its key.
//   - No password reaches an error, and no payload: what PostgreSQL tells of a failing row is left
//     out.
//
// # What is not
//
//   - A row that is deleted is forgotten: a copy that comes later is inserted. Keep rows for as
//     long as a relay can be away with what it has published.
//   - A BEFORE trigger that skips a row makes it look like a copy.
//   - The payload is jsonb: its numbers and texts are kept, its spaces and the order of its members
//     are not.
//   - position rises within a key in the order of commits. Between keys a lower one can become
//     visible later.
//   - Durability is the receiving role's synchronous_commit.
//
// # What it needs
//
// PostgreSQL 14 or later (tested with 15), tables with the columns of CreateTable, and a role with
// INSERT and SELECT on them. Config.Create needs CREATE on the schema. A pooler in transaction mode
// will do: no statement is prepared.
//
// The table has a column for each part of an event, so no envelope matters, neither the table's nor
// a mode of CloudEvents. What the attributes of a CloudEvent hold can be read from the columns.
package pgtable

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/rounds"
	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/sqlfile"
)

// Config configures a Sink. Zero means the default in parentheses.
type Config struct {
	// Create makes a table that does not exist, as CreateTable prints it (its events fail).
	Create bool
}

// Sink is an outbox.Sink that inserts into tables. It is safe for concurrent use.
type Sink struct {
	pool   *pgxpool.Pool
	cfg    Config
	owned  bool // Open made the pool, so Close closes it
	secret string

	limit rounds.Limit // of rows: a table with slow triggers would never get a large transaction done

	mu     sync.Mutex
	tables map[string]table // by destination
}

var _ outbox.Sink = (*Sink)(nil)

// New returns a Sink that uses pool, which stays the caller's to close.
func New(pool *pgxpool.Pool, cfg Config) (*Sink, error) {
	if pool == nil {
		return nil, errors.New("configure PostgreSQL sink: pool is nil")
	}
	return newPublisher(pool, cfg), nil
}

func newPublisher(pool *pgxpool.Pool, cfg Config) *Sink {
	return &Sink{pool: pool, cfg: cfg, tables: map[string]table{}, limit: rounds.Limit{Least: 1, Most: maxRows}}
}

// Abilities implements outbox.Able.
func (s *Sink) Abilities() outbox.Abilities { return outbox.Abilities{Ping: s.ping} }

// ping asks the server whether it answers. Errors are of class outbox.ClassUnavailable.
func (s *Sink) ping(ctx context.Context) error {
	if err := s.pool.Ping(ctx); err != nil {
		return outbox.Unavailable(fmt.Errorf("ping the sink's PostgreSQL: %s", s.text(err)))
	}
	return nil
}

// Close closes the pool if Open made it. Call it after the last Publish has returned.
func (s *Sink) Close() error {
	if s.owned {
		s.pool.Close()
	}
	return nil
}

// table has the statements of a destination.
type table struct {
	name, insert, create string
}

//go:embed sql/*.sql
var sqlFiles embed.FS

var files = sqlfile.Folder(sqlFiles)

// keptTables is of how many destinations the statements are kept.
const keptTables = 1000

func (s *Sink) table(destination string) (table, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, known := s.tables[destination]; known {
		return t, nil
	}
	t, err := tableOf(destination)
	if err != nil {
		return t, outbox.Permanent(err)
	}
	if len(s.tables) >= keptTables {
		clear(s.tables)
	}
	s.tables[destination] = t
	return t, nil
}

func tableOf(destination string) (t table, err error) {
	if t.name, err = quote(destination); err != nil {
		return t, err
	}
	err = files.Fill(struct{ Table string }{t.name}, map[string]*string{"insert": &t.insert, "create": &t.create})
	return t, err
}

// CreateTable returns the statement that makes the table of a destination.
func CreateTable(destination string) (string, error) {
	t, err := tableOf(destination)
	return t.create, err
}

// maxName is what PostgreSQL keeps of a name, in bytes (NAMEDATALEN less one). It cuts off the rest
// in silence.
const maxName = 63

// quote returns a destination as SQL: table or schema.table, each as it is written, with its case.
func quote(destination string) (string, error) {
	parts := strings.Split(destination, ".")
	if len(parts) > 2 {
		return "", fmt.Errorf("insert into table %q: a destination is table or schema.table", destination)
	}
	for _, p := range parts {
		switch {
		case p == "":
			return "", fmt.Errorf("insert into table %q: a name is empty", destination)
		case len(p) > maxName:
			return "", fmt.Errorf("insert into table %q: a name has %d bytes, PostgreSQL keeps %d", destination, len(p), maxName)
		case !utf8.ValidString(p) || strings.ContainsFunc(p, func(r rune) bool { return !unicode.IsPrint(r) || r == '*' }):
			return "", fmt.Errorf("insert into table %q: a name has a character that is not for names", destination)
		}
	}
	// In the sender's own database, or a receiver's that has an outbox too. A table of a name to
	// come would be in the way.
	name := parts[len(parts)-1]
	if _, ours := migration.SetOf[name]; ours || strings.HasPrefix(name, "outbox_") {
		return "", fmt.Errorf("insert into table %q: the name is one of the outbox's own", destination)
	}
	return pgx.Identifier(parts).Sanitize(), nil
}

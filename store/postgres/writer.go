package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
	"github.com/outboxrelay/outbox/internal/store/identifier"
	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/sqltx"
)

// Writer writes events inside a pgx.Tx. See outbox.Writer for what Write guarantees; InTx also
// commits.
type Writer struct {
	outbox.Writer[pgx.Tx]
	cfg    outbox.WriterConfig
	insert insert
}

// NewWriter returns a Writer for pgx transactions. The table must have the columns of
// outbox_events.
func NewWriter(cfg outbox.WriterConfig) (*Writer, error) {
	ins, err := newInsert(cfg, false)
	if err != nil {
		return nil, err
	}
	return &Writer{Writer: eventrow.NewWriter(pgxInserter{ins}, cfg), cfg: cfg, insert: ins}, nil
}

// NewSQLWriter returns a Writer for database/sql transactions, and so for whatever is built on them
// (GORM, ent, sqlx, bun, sqlc), with any PostgreSQL driver.
func NewSQLWriter(cfg outbox.WriterConfig) (outbox.Writer[outbox.SQLTx], error) {
	ins, err := newInsert(cfg, true)
	if err != nil {
		return nil, err
	}
	return eventrow.NewWriter(sqlInserter{ins}, cfg), nil
}

// insert is the statements that write events, and the one that locks their keys before.
type insert struct {
	table         string
	chosen, drawn inserts // by whether a row may have one of the ids already
	lock          string
	strict        bool // keys are locked
	returning     bool // chosen.many returns the ids that were new; nobody asks for them when duplicates are ignored
}

// inserts are the statements for one event and for many.
type inserts struct{ one, many string }

// newInsert returns the statements; checked ones insert nothing through a connection that does not
// speak UTF-8.
func newInsert(cfg outbox.WriterConfig, checked bool) (insert, error) {
	table := cmp.Or(cfg.Table, outbox.OutboxEvents().Table)
	if err := identifier.CheckTable(table); err != nil {
		return insert{}, fmt.Errorf("configure writer: table: %w", err)
	}
	log := !pgtable.Written(table).KeepsState()
	if log && cfg.RefuseDuplicates {
		return insert{}, fmt.Errorf("configure writer: RefuseDuplicates: %s is a log, which knows no ids: leave it out, and "+
			"have the sink or the consumer refuse copies", table)
	}
	var err error
	in := insert{table: table, strict: cfg.Strict, returning: cfg.RefuseDuplicates}
	type names struct {
		Table                      string
		Chosen, Returning, Checked bool // Chosen: a row may have the id already
	}
	drawn := names{Table: pgtable.QuoteTable(table), Checked: checked}
	chosen := drawn
	chosen.Chosen, chosen.Returning = !log, in.returning
	for _, s := range []struct {
		dst  *string
		name string
		data names
	}{
		{&in.chosen.one, "write_one", chosen}, {&in.chosen.many, "write", chosen},
		{&in.drawn.one, "write_one", drawn}, {&in.drawn.many, "write", drawn},
		{&in.lock, "write_lock", drawn},
	} {
		if *s.dst, err = files.Statement(s.name, s.data); err != nil {
			return insert{}, err
		}
	}
	return in, nil
}

// of returns the statements for rows.
func (in insert) of(rows []eventrow.Row) inserts {
	if eventrow.Drawn(rows) {
		return in.drawn
	}
	return in.chosen
}

// queue adds the statements for rows to a pipeline; inserted receives the ids that were new, if
// duplicates are refused.
func (in insert) queue(batch *pgx.Batch, rows []eventrow.Row, inserted *[]uuid.UUID) {
	if in.strict {
		if keys := lockKeys(rows); len(keys) > 0 {
			batch.Queue(in.lock, keys)
		}
	}
	statements := in.of(rows)
	if len(rows) == 1 {
		r := &rows[0]
		batch.Queue(statements.one, pgtype.UUID{Bytes: r.ID, Valid: true}, r.Topic,
			r.OccurredAt.UTC().Truncate(time.Microsecond), eventrow.OrNull(r.SchemaID), int32(r.SchemaVersion),
			eventrow.OrNull(r.AggregateID), eventrow.OrNull(r.AggregateType), r.TenantID, r.Source,
			eventrow.OrNull(string(r.DestinationsJSON)), string(r.Payload), eventrow.OrNull(string(r.MetadataJSON))).
			Exec(func(tag pgconn.CommandTag) error {
				if tag.RowsAffected() == 1 {
					*inserted = []uuid.UUID{r.ID}
				}
				return nil
			})
		return
	}
	c := columnsOf(rows)
	q := batch.Queue(statements.many, c.ids, c.topics, c.times, c.schemaIDs, c.schemaVersions, c.aggregateIDs,
		c.aggregateTypes, c.tenants, c.sources, c.destinations, c.payloads, c.metadata)
	if in.returning && statements == in.chosen {
		q.Query(func(r pgx.Rows) (err error) {
			*inserted, err = pgx.CollectRows(r, pgx.RowTo[uuid.UUID])
			return err
		})
	}
}

type pgxInserter struct{ insert }

// Insert is one round trip: with Strict order the locks travel in front of the INSERT, in the same
// pipeline.
func (in pgxInserter) Insert(
	ctx context.Context, tx pgx.Tx, rows []eventrow.Row,
) (inserted []uuid.UUID, err error) {
	if err := checkTx(tx); err != nil {
		return nil, err
	}
	if err := checkEncoding(tx.Conn()); err != nil {
		return nil, err
	}
	var batch pgx.Batch
	in.queue(&batch, rows, &inserted)
	return inserted, in.explain(tx.SendBatch(ctx, &batch).Close())
}

// explain says of a table of the migration sets that is not there what a relay says of it, and of a
// lock that was not to be had how to find out who has it: the transaction is aborted, and cannot be
// asked. The server's error stays in what it returns.
func (in insert) explain(err error) error {
	var refusal interface{ SQLState() string } // whatever the driver
	if errors.As(err, &refusal) && refusal.SQLState() == pgtable.LockNotAvailable && in.strict {
		return fmt.Errorf("wait for the lock of Strict order: %w: SELECT pid, usename, application_name FROM pg_locks "+
			"JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND classid = 1869968482 "+
			"says who holds such locks", err)
	}
	if !errors.As(err, &refusal) || refusal.SQLState() != undefinedTable || !strings.Contains(err.Error(), in.table) {
		return err
	}
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Where != "" { // what a trigger looks for
		return err
	}
	if _, ours := migration.SetOf[in.table]; !ours {
		return err
	}
	return fmt.Errorf("%w: %w", migration.CheckColumns(in.table, nil, nil, nil), err)
}

// checkTx refuses a transaction that is nil.
func checkTx(tx pgx.Tx) error {
	if sqltx.Nil(tx) {
		return fmt.Errorf("%w: the pgx.Tx is nil; give the transaction that your change is made in",
			outbox.ErrNoTransaction)
	}
	return nil
}

type sqlInserter struct{ insert }

// Insert passes arrays in PostgreSQL's text form, because database/sql has no arrays and every
// driver takes a string.
func (in sqlInserter) Insert(
	ctx context.Context, given outbox.SQLTx, rows []eventrow.Row,
) (inserted []uuid.UUID, err error) {
	tx, err := sqltx.Open(given)
	if err != nil {
		return nil, err
	}
	inserted, err = in.insertRows(ctx, tx, rows)
	return inserted, in.explain(err)
}

func (in sqlInserter) insertRows(
	ctx context.Context, tx outbox.SQLTx, rows []eventrow.Row,
) (inserted []uuid.UUID, err error) {
	if in.strict {
		if keys := lockKeys(rows); len(keys) > 0 {
			if _, err := tx.ExecContext(ctx, in.lock, arrayText(keys)); err != nil {
				return nil, fmt.Errorf("lock keys: %w", err)
			}
		}
	}
	statements := in.of(rows)
	if len(rows) == 1 {
		r := &rows[0]
		n, err := in.exec(ctx, tx, statements.one, r.ID.String(), r.Topic, r.OccurredAt.UTC().Truncate(time.Microsecond),
			eventrow.OrNull(r.SchemaID), r.SchemaVersion, eventrow.OrNull(r.AggregateID),
			eventrow.OrNull(r.AggregateType), r.TenantID, r.Source,
			eventrow.OrNull(string(r.DestinationsJSON)), string(r.Payload), eventrow.OrNull(string(r.MetadataJSON)))
		if err != nil || n == 0 {
			return nil, err
		}
		return []uuid.UUID{r.ID}, nil
	}
	c := columnsOf(rows)
	args := []any{arrayOf(c.ids, pgtype.UUID.String), arrayText(c.topics),
		arrayOf(c.times, func(t time.Time) string { return t.Format("2006-01-02T15:04:05.999999Z07:00") }),
		arrayText(c.schemaIDs), arrayOf(c.schemaVersions, func(v int32) string { return fmt.Sprint(v) }),
		arrayText(c.aggregateIDs),
		arrayText(c.aggregateTypes), arrayText(c.tenants), arrayText(c.sources), arrayText(c.destinations),
		arrayText(c.payloads), arrayText(c.metadata)}
	if !in.returning || statements == in.drawn {
		_, err := in.exec(ctx, tx, statements.many, args...)
		return nil, err
	}
	inserted, err = newIDs(tx.QueryContext(ctx, statements.many, args...))
	if err != nil || len(inserted) > 0 {
		return inserted, err
	}
	return nil, askEncoding(ctx, cold.In(anyDriver{}, cold.SQL{SQLTx: tx}))
}

// exec runs an INSERT that returns nothing, and finds out why if it inserted nothing.
func (in sqlInserter) exec(ctx context.Context, tx outbox.SQLTx, statement string, args ...any) (n int64, err error) {
	result, err := tx.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	if n, err = result.RowsAffected(); err != nil || n > 0 {
		return n, err
	}
	return 0, askEncoding(ctx, cold.In(anyDriver{}, cold.SQL{SQLTx: tx}))
}

// newIDs reads the ids that were inserted.
func newIDs(result *sql.Rows, err error) (inserted []uuid.UUID, _ error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = result.Close() }()
	for result.Next() {
		var id string
		if err := result.Scan(&id); err != nil {
			return nil, err
		}
		u, err := uuid.Parse(id)
		if err != nil {
			return nil, fmt.Errorf("read id: %w", err)
		}
		inserted = append(inserted, u)
	}
	return inserted, result.Err()
}

// eventColumns is a batch of rows turned on its side: one array a parameter makes one statement
// text for any number of rows.
type eventColumns struct {
	// uuid.UUID: pgx's exec and simple protocol modes know no array of it.
	ids                                                               []pgtype.UUID
	times                                                             []time.Time
	schemaVersions                                                    []int32
	topics, schemaIDs, aggregateIDs, aggregateTypes, tenants, sources []string
	destinations, payloads, metadata                                  []string
}

func columnsOf(rows []eventrow.Row) eventColumns {
	n := len(rows)
	text := make([]string, 9*n) // nine columns of text in one allocation
	column := func(i int) []string { return text[i*n : i*n : (i+1)*n] }
	c := eventColumns{
		ids: make([]pgtype.UUID, 0, n), times: make([]time.Time, 0, n), schemaVersions: make([]int32, 0, n),
		topics: column(0), schemaIDs: column(1), aggregateIDs: column(2), aggregateTypes: column(3), tenants: column(4),
		sources:      column(5),
		destinations: column(6), payloads: column(7), metadata: column(8),
	}
	for i := range rows {
		r := &rows[i]
		c.ids = append(c.ids, pgtype.UUID{Bytes: r.ID, Valid: true})
		c.times = append(c.times, r.OccurredAt.UTC().Truncate(time.Microsecond))
		c.schemaVersions = append(c.schemaVersions, int32(r.SchemaVersion))
		c.topics = append(c.topics, r.Topic)
		c.schemaIDs = append(c.schemaIDs, r.SchemaID)
		c.aggregateIDs = append(c.aggregateIDs, r.AggregateID)
		c.aggregateTypes = append(c.aggregateTypes, r.AggregateType)
		c.tenants = append(c.tenants, r.TenantID)
		c.sources = append(c.sources, r.Source)
		c.destinations = append(c.destinations, string(r.DestinationsJSON))
		c.payloads = append(c.payloads, string(r.Payload))
		c.metadata = append(c.metadata, string(r.MetadataJSON))
	}
	for _, column := range []*[]string{&c.schemaIDs, &c.aggregateIDs, &c.aggregateTypes, &c.destinations, &c.metadata} {
		if !slices.ContainsFunc(*column, func(s string) bool { return s != "" }) {
			*column = nil // a NULL array; encoding and unnesting empty strings is a tenth of the call
		}
	}
	return c
}

// lockKeys returns the keys that Strict order locks, sorted, so that two calls cannot wait for each
// other in a circle.
func lockKeys(rows []eventrow.Row) []string {
	var keys []string
	for i := range rows {
		if r := &rows[i]; r.AggregateID != "" {
			keys = append(keys, r.TenantID+"\x1f"+r.AggregateType+"\x1f"+r.AggregateID)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// arrayText returns NULL for a nil slice, as pgx does.
func arrayText(values []string) any {
	if values == nil {
		return nil
	}
	return arrayOf(values, func(s string) string { return s })
}

// arrayOf is PostgreSQL's text form of an array, every element quoted.
func arrayOf[T any](values []T, text func(T) string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, v := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		s := text(v)
		for {
			at := strings.IndexAny(s, `"\`)
			if at < 0 {
				break
			}
			b.WriteString(s[:at])
			b.WriteByte('\\')
			b.WriteByte(s[at])
			s = s[at+1:]
		}
		b.WriteString(s)
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

// EncodingError is the error of a write through a connection that does not speak UTF-8. PostgreSQL
// would read the event's bytes as other characters and store those. Nothing has been sent, or
// nothing stored, and the transaction can go on.
type EncodingError struct {
	Encoding string // the connection's client_encoding
}

func (e *EncodingError) Error() string {
	return fmt.Sprintf("the connection's client_encoding is %s, so PostgreSQL would store other characters than were "+
		"written: connect with client_encoding=UTF8", e.Encoding)
}

// checkEncoding asks what the server has reported of the connection, which costs nothing. SQL_ASCII
// converts nothing: what is written is stored, where the database's own encoding is UTF-8, or none
// either.
func checkEncoding(conn *pgx.Conn) error {
	if conn == nil { // a stand-in for a transaction
		return nil
	}
	client, server := conn.PgConn().ParameterStatus("client_encoding"), conn.PgConn().ParameterStatus("server_encoding")
	switch {
	case client == "UTF8" || client == "": // not every pooler reports it
		return nil
	case client == "SQL_ASCII" && (server == "UTF8" || server == "SQL_ASCII"):
		return nil
	}
	return &EncodingError{client}
}

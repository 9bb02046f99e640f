package pgtable

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
)

// SQLSTATEs, https://www.postgresql.org/docs/current/errcodes-appendix.html.
const (
	undefinedTable   = "42P01"
	undefinedColumn  = "42703"
	undefinedSchema  = "3F000"
	noSuchConstraint = "42P10"
	noPrivilege      = "42501"
	queryCanceled    = "57014"
	lockNotAvailable = "55P03"
)

func code(err error) string {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.Code
	}
	return ""
}

// isUnavailable tells whether an error is about the server and not about a statement. There is no
// answer, or one of a class of connection, authorization, read-only, deadlock, resources, shutdown
// or disk, or a lock.
func isUnavailable(err error) bool {
	state := code(err)
	if state == "" {
		return true
	}
	switch state[:2] {
	case "08", "25", "28", "3D", "40", "53", "57", "58", "F0":
		return true
	}
	return state == lockNotAvailable // of its class the only one: others tell what a view or a table cannot do
}

// text is what an error says, without its type: to the command, an error of pgx is one of its own
// database. The detail of a server's error is left out, which has the row's values.
func (s *Sink) text(err error) string {
	return sinkurl.Hide(err, s.secret).Error()
}

// unfit says why a table refuses all rows, and what to do about it.
func (s *Sink) unfit(destination string, err error) error {
	remedy := ""
	switch code(err) {
	case undefinedSchema:
		remedy = "what is before the dot is a schema, and there is none: make it, or route the events to a table's " +
			"name, as in to: [NAME:orders]: "
	case undefinedTable:
		remedy = "make it with the statement in docs/reference/sinks.md#postgresql-tables (pgtable.CreateTable), or " +
			"give create=true in the sink's URL, or send the events elsewhere: "
	case undefinedColumn:
		remedy = "add the column, as in docs/reference/sinks.md#postgresql-tables: "
	case noSuchConstraint:
		remedy = "give it the primary key (event_id, origin, generation), which refuses copies: "
	case noPrivilege:
		remedy = "GRANT INSERT, SELECT on it to the role of the sink's URL: "
	}
	return fmt.Errorf("insert into table %q: %s%s", destination, remedy, s.text(err))
}

// refusal classes the error of a row that failed alone.
func (s *Sink) refusal(d *outbox.Delivery, err error) error {
	refused := fmt.Errorf("insert into table %q: PostgreSQL refuses the row: %s", d.Destination, s.text(err))
	switch code(err)[:2] {
	case "22", "54": // a value that the type cannot hold, a limit of the server
		return outbox.Permanent(refused)
	}
	return refused
}

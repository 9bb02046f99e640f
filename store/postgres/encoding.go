package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/sqltx"
)

// EncodingError is the error of a write through a connection that does not speak UTF-8. PostgreSQL would read the
// event's bytes as other characters and store those. Nothing has been sent, or nothing stored, and the transaction
// can go on.
type EncodingError struct {
	Encoding string // the connection's client_encoding
}

func (e *EncodingError) Error() string {
	return fmt.Sprintf("the connection's client_encoding is %s, so PostgreSQL would store other characters than were "+
		"written: connect with client_encoding=UTF8", e.Encoding)
}

// checkEncoding asks what the server has reported of the connection, which costs nothing. SQL_ASCII converts nothing:
// what is written is stored, where the database's own encoding is UTF-8, or none either.
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

// checkSQLEncoding is checkEncoding for database/sql, which does not tell what the server reported. It is asked only
// when a statement has inserted nothing: its INSERT inserts nothing through such a connection.
func checkSQLEncoding(ctx context.Context, tx outbox.SQLTx, statement string) error {
	var encoding string
	var safe bool
	if err := sqltx.QueryRow(ctx, tx, statement, nil, &encoding, &safe); err != nil {
		return fmt.Errorf("ask for the connection's encoding: %w", err)
	}
	if safe {
		return nil
	}
	return &EncodingError{encoding}
}

package pgschema

import (
	"crypto/tls"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pooler"
)

// Passes tells whether a failure to open something can go away while one waits. It can for a server
// that is down, starting, or out of connections. It cannot for a wrong password, an untrusted
// certificate or a missing table, which need somebody to act.
func Passes(err error) bool {
	var certificate *tls.CertificateVerificationError
	var schema *outbox.SchemaError
	var server *pgconn.PgError
	var superuser *pooler.SuperuserError
	switch {
	case errors.As(err, &certificate), errors.As(err, &schema), errors.Is(err, pooler.ErrStatementMode),
		errors.Is(err, outbox.ErrRowsHidden), errors.Is(err, outbox.ErrNotAllowed), errors.Is(err, pooler.ErrEncoding),
		errors.As(err, &superuser):
		return false
	case errors.As(err, &server):
		switch server.Code[:2] {
		case "08", "40", "53", "55", "57": // connection, rolled back, resources, locked, operator intervention
			return true
		}
		return false
	}
	return true
}

package cli

import (
	"crypto/tls"
	"errors"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"
)

// hint names the remedy where the error's own text cannot know it.
func hint(err error) string {
	var connect *pgconn.ConnectError
	var server *pgconn.PgError
	var certificate *tls.CertificateVerificationError
	var refusal *apiError
	var unreachable *unreachableError
	switch {
	case errors.As(err, &certificate):
		return "the server's certificate is not trusted: name its authority's file in SSL_CERT_FILE, or for PostgreSQL in sslrootcert of the URL"
	case errors.As(err, &unreachable):
		return "is outbox serve running there? The address is that of --server or OUTBOX_SERVER"
	case errors.As(err, &refusal) && refusal.Status == http.StatusUnauthorized:
		return "set OUTBOX_TOKEN to a token that outbox token create has made for the gateway's database"
	case errors.As(err, &refusal) && refusal.Status == http.StatusForbidden:
		return "outbox token create --scope makes a token that may do that"
	case errors.As(err, &server) && (strings.HasPrefix(server.Code, "28") || server.Code == "3D000"):
		return "correct user, password or database in --database, OUTBOX_DATABASE_URL or DATABASE_URL"
	case errors.As(err, &server) && server.Code == "42P01":
		return "make the tables with: outbox migrate up"
	case errors.As(err, &server) && server.Code == "42501":
		return "this database role may not do that: see outbox migrate roles --help for the roles and what each may do"
	case errors.As(err, &connect):
		return "is PostgreSQL running there? The URL is that of --database, OUTBOX_DATABASE_URL or DATABASE_URL"
	case redis.IsAuthError(err), redis.IsPermissionError(err):
		return "correct user or password in --redis, OUTBOX_REDIS_URL or REDIS_URL, or the user's rights (ACL)"
	case strings.Contains(err.Error(), "connect to Redis"):
		return "is Redis running there? The URL is that of --redis, OUTBOX_REDIS_URL or REDIS_URL"
	}
	return ""
}

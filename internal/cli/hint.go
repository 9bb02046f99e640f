package cli

import (
	"crypto/tls"
	"errors"
	"net/http"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/wire"
)

// hint names the remedy where the error's own text cannot know it. command is the name of what failed.
func hint(command string, err error) string {
	var schema *outbox.SchemaError
	var certificate *tls.CertificateVerificationError
	var refusal *apiError
	var unreachable *unreachableError
	var own interface{ Hint() string }
	switch {
	case errors.As(err, &own):
		return own.Hint()
	case errors.As(err, &certificate):
		return "the server's certificate is not trusted: name its authority's file in SSL_CERT_FILE, or for PostgreSQL in " +
			"sslrootcert of the URL"
	case errors.As(err, &unreachable):
		return "is outbox serve running there? The address is that of --server or OUTBOX_SERVER"
	case errors.As(err, &refusal) && refusal.Status == http.StatusUnauthorized:
		return "set OUTBOX_TOKEN to a token that outbox token create has made for the gateway's database"
	case errors.As(err, &refusal) && refusal.Status == http.StatusForbidden:
		return "outbox token create --scope makes a token that may do that"
	case redis.IsAuthError(err), redis.IsPermissionError(err):
		return "correct user or password in --redis, OUTBOX_REDIS_URL or REDIS_URL, or the user's rights (ACL)"
	case strings.Contains(err.Error(), "connect to Redis"):
		return "is Redis running there? The URL is that of --redis, OUTBOX_REDIS_URL or REDIS_URL"
	case errors.As(err, &schema) && strings.Contains(schema.Remedy, "outbox migrate up"):
		// The store knows the set of its own table, and not what else the command needs and how it was told of the
		// database.
		text := "outbox migrate up without --set makes all tables"
		if command == "serve" {
			text += ", and outbox serve needs those of core and crawl"
		}
		return text + ". If --database named the database here, give the same --database"
	}
	return wire.Hint(err)
}

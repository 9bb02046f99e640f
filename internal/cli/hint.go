package cli

import (
	"crypto/tls"
	"errors"
	"net/http"
	"strings"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
)

const sinkSetting = "The URL is that of --sink or OUTBOX_SINK"

// hint names the remedy where the error's own text cannot know it. command is the name of what failed.
func (a *application) hint(command string, err error) string {
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
	case errors.As(err, &schema) && strings.Contains(schema.Remedy, "outbox migrate up"):
		// The store knows the set of its own table, and not what else the command needs and how it was told of the
		// database.
		text := "outbox migrate up without --set makes the tables of core and events"
		if command == "serve" {
			text += ", and outbox serve needs those of core and crawl: outbox migrate up --set core,crawl"
		}
		return text + ". If --database named the database here, give the same --database"
	}
	if text := a.kinds.Sinks.Hint(err); text != "" {
		if !strings.HasSuffix(text, "?") {
			text += "."
		}
		return text + " " + sinkSetting
	}
	return app.Hint(err)
}

// Package wire builds what the commands run, from their settings. It is the only package that sees stores and sinks
// together.
//
// Guaranteed: a relay that has to wait for its database or its Redis says so and shows as not ready; one that is told
// to stop finishes the batch in flight, gives up its lanes and only then closes what it opened.
//
// Not guaranteed: that settings make sense. Package config has checked them before.
package wire

import (
	"cmp"
	"crypto/tls"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/config"
)

// passing tells whether a failure to open something can go away while one waits: a server that is down, starting or out
// of connections, and not a wrong password, an untrusted certificate or a missing column, which need somebody to act.
func passing(err error) bool {
	var settings *config.Error
	var schema *outbox.SchemaError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate):
		return false
	case errors.As(err, &settings), errors.As(err, &schema), errors.Is(err, outbox.ErrRowsHidden),
		errors.Is(err, outbox.ErrNotAllowed), errors.Is(err, errNoTable), redis.IsAuthError(err):
		return false
	}
	for _, ask := range []func(error) (passes, ok bool){passingPostgres, passingSQLite} {
		if passes, ok := ask(err); ok {
			return passes
		}
	}
	return true
}

// Hint names the remedy for an error of a database, where the error's own text cannot know it; "" if there is none.
func Hint(err error) string { return cmp.Or(hintPostgres(err), hintSQLite(err)) }

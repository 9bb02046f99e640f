package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
)

// Streams are where a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// application is what the commands of one run share.
type application struct {
	Streams
	environ []string
	kinds   config.Kinds
	global  *pflag.FlagSet
	started bool // the command line was understood
}

// usageError is a command line that cannot be meant, found after it was parsed.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func (e usageError) Unwrap() error { return e.error }

// settings reads the settings of a command and checks them against what it needs. further are its
// flags that are settings.
func (a *application) settings(needs config.Need, further ...*pflag.FlagSet) (config.Config, error) {
	c, err := config.Load(a.kinds, a.environ, append([]*pflag.FlagSet{a.global}, further...)...)
	if err != nil {
		return c, err
	}
	err = a.checked(&c, needs)
	return c, err
}

// checked checks settings, and warns of what may have been meant as one, of routes that cannot be
// meant, of a window that is too short and of a log that goes to no sink.
func (a *application) checked(c *config.Config, needs config.Need) error {
	if err := c.Check(needs); err != nil {
		return err
	}
	log, err := a.logger(*c)
	if err != nil {
		return err
	}
	for _, name := range c.Ignored() {
		log.Warn("a variable is no setting of any command and is ignored", "variable", name,
			"see", "outbox config print")
	}
	for _, warning := range append(c.RouteWarnings(needs), c.ShortWindow(needs), c.Unserved(needs)) {
		if warning != "" {
			log.Warn(warning)
		}
	}
	return nil
}

// logger logs to stderr. The level was checked with the settings.
func (a *application) logger(c config.Config) (*slog.Logger, error) {
	level, err := c.Level()
	if err != nil {
		return nil, err
	}
	options := &slog.HandlerOptions{Level: level}
	if isTerminal(a.Err) {
		return slog.New(slog.NewTextHandler(a.Err, options)), nil
	}
	return slog.New(slog.NewJSONHandler(a.Err, options)), nil
}

// daemon reads the settings of a command that serves until it is stopped, and runs it.
func (a *application) daemon(
	ctx context.Context, needs config.Need, flags *pflag.FlagSet,
	run func(context.Context, config.Config, *slog.Logger) error,
) error {
	c, err := a.settings(needs, flags)
	if err != nil {
		return err
	}
	log, err := a.logger(c)
	if err != nil {
		return err
	}
	return run(ctx, c, log)
}

// onDatabase runs fn with the settings of a command that needs a database and nothing else, and
// with that database.
func (a *application) onDatabase(
	ctx context.Context, fn func(config.Config, app.Database) error, flags ...*pflag.FlagSet,
) error {
	c, err := a.settings(config.Database, flags...)
	if err != nil {
		return err
	}
	return withDatabase(ctx, c, func(db app.Database) error { return fn(c, db) })
}

func withDatabase(ctx context.Context, c config.Config, fn func(app.Database) error) error {
	db, err := app.OpenDatabase(ctx, c.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	return fn(db)
}

const sinkSetting = "The URL is that of --sink or OUTBOX_SINK"

// hint names the remedy where the error's own text cannot know it. command is the name of what
// failed.
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
		return "the server's certificate is not trusted: name its authority's file in " +
			"SSL_CERT_FILE, or for PostgreSQL in sslrootcert of the URL"
	case errors.As(err, &unreachable):
		return "is outbox serve running there? The address is that of --server or OUTBOX_SERVER"
	case errors.As(err, &refusal) && refusal.Status == http.StatusUnauthorized:
		return "set OUTBOX_TOKEN to a token that outbox token create has made for the gateway's database"
	case errors.As(err, &refusal) && refusal.Status == http.StatusForbidden:
		return "outbox token create --scope makes a token that may do that"
	case errors.As(err, &schema) && strings.Contains(schema.Remedy, "outbox migrate up"):
		// The store knows the set of its own table, and not what else the command needs and how it
		// was told of the database.
		text := "outbox migrate up without --set makes the tables of core and events"
		if command == "serve" {
			text += ", and a worker needs those of core and crawl: outbox migrate up --set core,crawl, or leave the " +
				"worker out: --parts gateway,relay"
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

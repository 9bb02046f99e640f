package pgtable

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
	"github.com/outboxrelay/outbox/internal/store/pooler"
	"github.com/outboxrelay/outbox/internal/version"
	"github.com/outboxrelay/outbox/sink"
)

// Driver opens sinks by the URLs that Open takes.
func Driver() sink.Driver {
	return sink.Driver{
		Schemes: []string{"postgres", "postgresql"}, System: "postgresql",
		Example: "postgres://user:password@host:5432/database, whose tables are the destinations",
		Open: func(ctx context.Context, url string, _ sink.Options) (sink.Sink, error) {
			return Open(ctx, url, Config{})
		},
		Check: func(url string) error {
			_, err := parse(url, &Config{})
			return err
		},
		Files: pooler.CheckFiles, Mask: mask, Plaintext: plaintext, Hint: hint,
	}
}

// Open connects to the database that url names and returns a Sink that Close closes:
//
//	postgres://user:password@host:5432/database
//	postgresql://user@host1,host2/database?sslmode=verify-full
//
// create=true sets Config.Create. The other query parameters are libpq's, pgxpool's
// (pool_max_conns=8) and settings of the server (statement_timeout=5s); the server refuses one that
// it does not know. Of several hosts the one is taken that takes writes, unless
// target_session_attrs says otherwise.
//
// A server that cannot be reached is an error of class outbox.ClassUnavailable, one that refuses
// the user of class outbox.ClassPermanent.
func Open(ctx context.Context, url string, cfg Config) (*Sink, error) {
	config, err := parse(url, &cfg)
	if err != nil {
		return nil, fmt.Errorf("configure PostgreSQL sink: %w", err)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("configure PostgreSQL sink: %w", errURL)
	}
	s := newPublisher(pool, cfg)
	s.owned, s.secret = true, config.ConnConfig.Password
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		lasts := lasts(err)
		return nil, sinkurl.Failed(&connectError{s.text(err), lasts, pooler.NotRunning(err)}, lasts)
	}
	return s, nil
}

// connectError is the error of Open where the server cannot be reached or says no.
type connectError struct {
	text       string
	lasts      bool // waiting does not cure it
	notRunning bool // no server listens there
}

func (e *connectError) Error() string { return "connect to the sink's PostgreSQL: " + e.text }

// lasts tells whether waiting does not cure an error: the server knows neither user nor password
// nor database nor a parameter of the URL, or nobody vouches for it.
func lasts(err error) bool {
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return true
	}
	state := code(err)
	return state == "3D000" || strings.HasPrefix(state, "28") || strings.HasPrefix(state, "42")
}

var errURL = errors.New("the URL is not of the form postgres://user:password@host:5432/database; in user and " +
	"password write / ? # % @ percent-encoded. It is not shown here because it may hold a password")

// parse returns the configuration of the pool that a URL names.
func parse(text string, cfg *Config) (*pgxpool.Config, error) {
	if err := sinkurl.CheckUser(text); err != nil {
		return nil, err
	}
	base, query, _ := strings.Cut(text, "?")
	values, err := url.ParseQuery(query)
	if err != nil || !strings.HasPrefix(base, "postgres://") && !strings.HasPrefix(base, "postgresql://") ||
		strings.Contains(text, "#") {
		return nil, errURL
	}
	if values.Has("cloudevents") {
		return nil, errors.New("the URL has the parameter cloudevents, but the events become columns of a table")
	}
	if err := sinkurl.Take(values, sinkurl.Flag("create", &cfg.Create)); err != nil {
		return nil, err
	}
	if len(values) > 0 {
		base += "?" + values.Encode()
	}
	config, _, err := pooler.ParseURL(base)
	if err != nil {
		return nil, err
	}
	conn := config.ConnConfig
	conn.ConnectTimeout = cmp.Or(conn.ConnectTimeout, connectTimeout)
	// One round trip, and nothing that a pooler would have to keep.
	conn.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn.RuntimeParams["client_encoding"] = "UTF8"
	conn.RuntimeParams["standard_conforming_strings"] = "on"
	version.Introduce(conn.RuntimeParams, version.Named("outbox sink"))
	several := slices.ContainsFunc(conn.Fallbacks,
		func(f *pgconn.FallbackConfig) bool { return f.Host != conn.Host || f.Port != conn.Port })
	if several && conn.ValidateConnect == nil && !values.Has("target_session_attrs") {
		conn.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	return config, nil
}

const connectTimeout = 5 * time.Second

func mask(url string) string {
	config, err := parse(url, &Config{})
	if err != nil {
		return sinkurl.None
	}
	return fmt.Sprintf("%s at %s:%d", config.ConnConfig.Database, config.ConnConfig.Host, config.ConnConfig.Port)
}

// plaintext returns the hosts that may be reached without TLS and may be on other machines: with
// sslmode=prefer, which is the default, the server decides.
func plaintext(url string) (hosts []string) {
	config, err := parse(url, &Config{})
	if err != nil {
		return nil
	}
	if config.ConnConfig.TLSConfig == nil {
		hosts = append(hosts, config.ConnConfig.Host)
	}
	for _, f := range config.ConnConfig.Fallbacks {
		if f.TLSConfig == nil && !slices.Contains(hosts, f.Host) {
			hosts = append(hosts, f.Host)
		}
	}
	return sinkurl.Elsewhere(hosts)
}

func hint(err error) string {
	var connect *connectError
	switch {
	case !errors.As(err, &connect):
		return ""
	case connect.lasts:
		return "correct user, password, database or parameters in the sink's URL"
	case connect.notRunning:
		return "is PostgreSQL running at the sink's URL?"
	}
	return ""
}

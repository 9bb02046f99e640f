package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/sqlite"
)

func TestPassing(t *testing.T) {
	server := func(code string) error { return fmt.Errorf("open: %w", &pgconn.PgError{Code: code}) }
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"refused", outbox.Unavailable(errors.New("dial tcp: connection refused")), true},
		{"timeout", fmt.Errorf("query: %w", context.DeadlineExceeded), true},
		{"cut off", io.ErrUnexpectedEOF, true},
		{"starting", server("57P03"), true},
		{"out of connections", server("53300"), true},
		{"wrong password", server("28P01"), false},
		{"certificate",
			outbox.Unavailable(fmt.Errorf("connect: %w",
				&tls.CertificateVerificationError{Err: errors.New("signed by unknown authority")})), false},
		{"no such database", server("3D000"), false},
		{"not allowed", server("42501"), false},
		{"old schema", fmt.Errorf("open: %w", &outbox.SchemaError{Table: "t"}), false},
		{"no privileges", fmt.Errorf("open: %w", outbox.ErrNotAllowed), false},
		{"row-level security", fmt.Errorf("open: %w", outbox.ErrRowsHidden), false},
		{"settings", &config.Error{}, false},
		{"no file", fmt.Errorf("open: %w", sqlite.ErrNoFile), false},
		{"a damaged file", fmt.Errorf("check: %w", sqlite.ErrDamaged), false},
		{"a file in use", fmt.Errorf("begin: %w", sqlite.ErrBusy), true},
		{"no table", fmt.Errorf("%w: none", relay.ErrNoTable), false},
	} {
		if got := passing(c.err); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// Of several servers the pool takes the one that can be written to, unless it is told otherwise.
func TestOpenPoolTakesThePrimary(t *testing.T) {
	t.Parallel()
	for url, primary := range map[string]bool{
		"postgres://u@a,b/d":                                true,
		"host=a,a port=1,2 dbname=d":                        true,
		"postgres://u@a/d":                                  false,
		"postgres://u@a/d?sslmode=prefer":                   false, // the same server again, without TLS
		"postgres://u@a,b/d?target_session_attrs=any":       false,
		"postgres://u@a,b/d?target_session_attrs=read-only": true, // what was asked for
	} {
		pool, err := openPool(t.Context(), url, use{name: "test", conns: 1})
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		if got := pool.Config().ConnConfig.ValidateConnect != nil; got != primary {
			t.Errorf("%s: the session is looked at: %t, want %t", url, got, primary)
		}
		pool.Close()
	}
}

func TestAwait(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	synctest.Test(t, func(t *testing.T) {
		health := newHealth(partRelay)
		tries, start := 0, time.Now()
		err := await(t.Context(), quiet, health.part(partRelay), "database", func(context.Context) error {
			if tries++; tries < 6 {
				return errors.New("connection refused")
			}
			return nil
		})
		if want := 500*time.Millisecond + time.Second + 2*time.Second + 4*time.Second + 5*time.Second; err != nil ||
			time.Since(start) != want {
			t.Errorf("got error %v after %s, want success after %s", err, time.Since(start), want)
		}
		if r := health.Report(); r.Ready || r.Reason != "waiting for database: connection refused" {
			t.Errorf("got %+v", r)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		hanging := func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		if err := await(ctx, quiet, newHealth(partRelay).part(partRelay), "x", hanging); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of ctx", err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a line for each new reason, and one a minute for one that stays
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute+30*time.Second)
		defer cancel()
		var said bytes.Buffer
		began := time.Now()
		_ = await(ctx, slog.New(slog.NewTextHandler(&said, nil)), newHealth(partRelay).part(partRelay), "x",
			func(context.Context) error {
				if time.Since(began) < 5*time.Minute {
					return errors.New("connection refused")
				}
				return errors.New("the database system is starting up")
			})
		if n := strings.Count(said.String(), "\n"); n != 10 || !strings.Contains(said.String(), "starting up") {
			t.Errorf("%d lines in nine minutes, want 10:\n%s", n, &said)
		}
	})
}

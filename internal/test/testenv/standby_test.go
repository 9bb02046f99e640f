package testenv

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

func start(t *testing.T, config PostgresConfig) *Postgres {
	t.Helper()
	p, err := StartPostgres(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop() })
	return p
}

func query(t *testing.T, p *Postgres, sql string) (n int, err error) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), p.URL("postgres"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(t.Context()) }()
	return n, conn.QueryRow(t.Context(), sql).Scan(&n)
}

// A standby follows, takes no writes, and takes them once it is promoted.
func TestStandby(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	// Which a standby must have as well.
	primary := start(t, PostgresConfig{Settings: map[string]string{"max_prepared_transactions": "3"}})
	if err := primary.exec(t.Context(), "CREATE TABLE t (n int)"); err != nil {
		t.Fatal(err)
	}
	standby, err := primary.Standby(t.Context())
	if errors.Is(err, ErrNoBackup) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = standby.Stop() })
	if err := primary.exec(t.Context(), "INSERT INTO t VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(tier.Patience())
	for n := 0; n != 7; n, _ = query(t, standby, "SELECT coalesce(max(n), 0) FROM t") {
		if time.Now().After(deadline) {
			t.Fatal("the row did not reach the standby")
		}
		time.Sleep(5 * time.Millisecond)
	}
	var refused *pgconn.PgError
	if err := standby.exec(t.Context(), "INSERT INTO t VALUES (8)"); !errors.As(err, &refused) || refused.Code != "25006" {
		t.Errorf("a write on the standby: got %v, want it refused as read-only", err)
	}
	if err := standby.exec(t.Context(), "SELECT pg_promote()"); err != nil {
		t.Fatal(err)
	}
	if err := standby.exec(t.Context(), "INSERT INTO t VALUES (8)"); err != nil {
		t.Errorf("a write after the promotion: %v", err)
	}
}

// A small disk fills, frees, and is gone with the server. It takes root, so elsewhere what is
// tested is that one is told so.
func TestSmallDisk(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	if os.Getuid() != 0 {
		if _, err := StartPostgres(t.Context(), PostgresConfig{SmallDisk: 96}); err == nil ||
			!strings.Contains(err.Error(), "needs root") {
			t.Errorf("got %v, want to be told that it needs root", err)
		}
		return
	}
	p := start(t, PostgresConfig{SmallDisk: 96})
	free, err := p.Fill()
	if err != nil {
		t.Fatal(err)
	}
	var full *pgconn.PgError
	if err := p.exec(t.Context(),
		"CREATE TABLE t AS SELECT repeat('x', 100) FROM generate_series(1, 100000)"); !errors.As(err, &full) ||
		full.Code != "53100" {
		t.Errorf("got %v, want the disk to be full (53100)", err)
	}
	if err := free(); err != nil {
		t.Fatal(err)
	}
	if err := p.Restart(); err != nil { // it may have crashed
		t.Fatal(err)
	}
	if err := p.exec(t.Context(), "CREATE TABLE u (n int)"); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), filepath.Base(p.Dir())) {
		t.Error("the disk is still mounted")
	}
}

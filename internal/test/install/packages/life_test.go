package packages

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

const keys = 20

// load writes events until it is stopped, the events of each key numbered.
type load struct {
	pool    *pgxpool.Pool
	stop    chan struct{}
	writers sync.WaitGroup
	mu      sync.Mutex
	written map[string]int // by key
}

func (l *load) run(t *testing.T) {
	for k := range keys {
		key := fmt.Sprint("order-", k)
		l.writers.Go(func() {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for n := 1; ; n++ {
				select {
				case <-l.stop:
					return
				case <-tick.C:
				}
				_, err := l.pool.Exec(context.WithoutCancel(t.Context()), `INSERT INTO outbox_events
					(event_topic, occurred_at, source_bc, aggregate_type, aggregate_id, payload)
					VALUES ('orders', now(), 'shop', 'Order', $1, jsonb_build_object('n', $2::int))`,
					key, n)
				if err != nil {
					t.Error(err)
					return
				}
				l.mu.Lock()
				l.written[key] = n
				l.mu.Unlock()
			}
		})
	}
}

func (l *load) total() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.written {
		n += of
	}
	return n
}

// A package is installed, started as its unit says, killed, started again, upgraded while events
// are written, removed and purged. Every event arrives once and in order of its key. What an
// administrator changed stays until the purge.
func TestLifeOfAPackage(t *testing.T) {
	tier.All(t)
	d := newDebian(t)
	redis, database := redisServer(t), testenv.Database(t)
	noError(t, pgmigrations.Up(t.Context(), database, pgmigrations.Sets...))
	pool, err := pgxpool.New(t.Context(), database)
	noError(t, err)
	t.Cleanup(pool.Close)

	d.install(t, first)
	for name, want := range map[string]string{
		"/usr/bin/outbox": "755 root:root", "/etc/outbox": "750 root:outbox", "/etc/outbox/outbox.yaml": "640 root:outbox",
		"/usr/lib/systemd/system/outbox.service": "644 root:root", "/usr/share/man/man1/outbox-relay.1.gz": "644 root:root",
		"/usr/share/bash-completion/completions/outbox":    "644 root:root",
		"/usr/share/zsh/vendor-completions/_outbox":        "644 root:root",
		"/usr/share/fish/vendor_completions.d/outbox.fish": "644 root:root",
	} {
		if got := d.mode(t, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if out := d.run(t, "outbox", "version"); !strings.Contains(out, "v"+first+" ") {
		t.Errorf("outbox version prints %s", out)
	}
	d.run(t, "outbox", "init", "--file", "/tmp/outbox.yaml")
	d.run(t, "cmp", "/tmp/outbox.yaml", "/etc/outbox/outbox.yaml")

	d.write(t, "/etc/credstore/outbox.database-url", tcp(t, database)+"\n")
	d.write(t, "/etc/credstore/outbox.sink", "redis+stream://"+redis.addr+"?create=true\n")
	settings, err := os.ReadFile(d.path("/etc/outbox/outbox.yaml"))
	noError(t, err)
	const mine = "\nlease_ttl: 2s\ntable: outbox_events\n"
	noError(t, os.WriteFile(d.path("/etc/outbox/outbox.yaml"), append(settings, mine...), 0o640))

	l := &load{pool: pool, stop: make(chan struct{}), written: map[string]int{}}
	l.run(t)
	stop := sync.OnceFunc(func() {
		close(l.stop)
		l.writers.Wait()
	})
	defer stop()
	arrived := func() int { return len(redis.events(t, "orders")) }
	more := func(what string) {
		t.Helper()
		had := arrived()
		testenv.Eventually(t, what, func() bool { return arrived() > had+10*keys })
	}
	began := time.Now()
	p := d.start(t)
	more("events arrive")
	p.end(syscall.SIGKILL)
	p = d.start(t)
	more("events arrive after a kill")
	d.install(t, second)
	more("events arrive while the program is replaced")
	p.end(syscall.SIGTERM)
	if code := p.ProcessState.ExitCode(); code != 0 {
		t.Errorf("stopped with exit code %d", code)
	}
	p = d.start(t)
	if out := d.run(t, "outbox", "version"); !strings.Contains(out, "v"+second+" ") {
		t.Errorf("outbox version prints %s", out)
	}
	more("events arrive after the upgrade")
	var name string
	noError(t, pool.QueryRow(t.Context(), "SELECT application_name FROM pg_stat_activity "+
		"WHERE datname = current_database() AND application_name LIKE 'outbox relay%' LIMIT 1").Scan(&name))
	if !strings.HasPrefix(name, "outbox relay v"+second+" ") { // and the settings' fingerprint
		t.Errorf("%s is at work", name)
	}
	stop()
	testenv.Eventually(t, "all events have arrived", func() bool { return arrived() >= l.total() })
	p.end(syscall.SIGTERM)
	judge(t, redis.events(t, "orders"), l.written)
	t.Logf("%d events in %.0f s", l.total(), time.Since(began).Seconds())

	kept, err := os.ReadFile(d.path("/etc/outbox/outbox.yaml"))
	noError(t, err)
	if !strings.HasSuffix(string(kept), mine) {
		t.Error("the upgrade has taken the administrator's settings")
	}
	d.run(t, "dpkg", "--remove", "outbox")
	if exists(d.path("/usr/bin/outbox")) || !exists(d.path("/etc/outbox/outbox.yaml")) {
		t.Error("removed is the program, and not its settings")
	}
	d.run(t, "touch", "/var/lib/outbox/outbox.db")
	d.run(t, "dpkg", "--purge", "outbox")
	if exists(d.path("/etc/outbox")) || !exists(d.path("/var/lib/outbox/outbox.db")) {
		t.Error("purged are the settings, and no events")
	}
	d.run(t, "getent", "passwd", "outbox")
	noError(t, os.Remove(d.path("/var/lib/outbox/outbox.db")))
	d.install(t, second)
	d.run(t, "dpkg", "--purge", "outbox")
	d.fails(t, "getent", "passwd", "outbox")
	if exists(d.path("/var/lib/outbox")) {
		t.Error("/var/lib/outbox is empty and stays")
	}
}

// tcp is the URL of a database of this machine for a root that has not its sockets.
func tcp(t *testing.T, socket string) string {
	t.Helper()
	u, err := url.Parse(socket)
	noError(t, err)
	u.Host, u.RawQuery = "127.0.0.1:"+u.Query().Get("port"), "sslmode=disable"
	return u.String()
}

// judge says what is lost, came twice or is out of order.
func judge(t *testing.T, got []event, written map[string]int) {
	t.Helper()
	last, ids, total := map[string]int{}, map[string]bool{}, 0
	for _, e := range got {
		if ids[e.ID] {
			t.Errorf("%s of %s came twice", e.ID, e.Key)
		}
		ids[e.ID] = true
		if e.Data.N != last[e.Key]+1 {
			t.Errorf("of %s came %d after %d", e.Key, e.Data.N, last[e.Key])
		}
		last[e.Key] = e.Data.N
	}
	for key, n := range written {
		total += n
		if last[key] != n {
			t.Errorf("of %s %d events arrived, %d were written", key, last[key], n)
		}
	}
	if total == 0 || len(got) != total {
		t.Errorf("%d events arrived, %d were written", len(got), total)
	}
}

// The .rpm has the same files, for the same owners.
func TestRPM(t *testing.T) {
	tier.All(t)
	dump := testenv.Run(t, exec.Command("rpm", "--query", "--package", "--dump", file(t, first, "*.rpm")))
	for _, want := range []string{`/usr/bin/outbox `, `/etc/outbox/outbox.yaml `, `/usr/share/zsh/site-functions/_outbox `,
		`/usr/lib/systemd/system/outbox.service `, `/usr/share/man/man1/outbox.1.gz `} {
		if !strings.Contains(dump, want) {
			t.Errorf("it has no %s", want)
		}
	}
	if !strings.Contains(dump, "0100640 root outbox 1 ") { // 1: a file of settings
		t.Errorf("the settings are not for root and group outbox:\n%s", dump)
	}
	scripts := testenv.Run(t, exec.Command("rpm", "--query", "--package", "--scripts", file(t, first, "*.rpm")))
	for _, want := range []string{"preinstall", "postinstall", "preuninstall", "postuninstall"} {
		if !strings.Contains(scripts, want+" scriptlet") {
			t.Errorf("it has no %s", want)
		}
	}
}

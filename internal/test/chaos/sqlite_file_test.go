package chaos

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/outboxtest"
)

// killTTL is the lease time of relays that are killed again and again: the least that the command
// takes. What a killed one held stands still for so long.
const killTTL = time.Second

// file is a world of one SQLite file: processes that write and relay, and Redis with a subscriber.
type file struct {
	*world
	path string
	ledger
	players []*player
	through []outboxtest.Received // what arrived, where it was not through Redis
	note    string                // more about the fault, for its line
}

// newFile makes a file with all tables in dir.
func newFile(t *testing.T, name, dir string) *file {
	t.Helper()
	if _, err := binary(); err != nil { // now, or the first events would wait for the compiler
		t.Fatal(err)
	}
	f := &file{path: filepath.Join(dir, "outbox.db"), world: &world{t: t, rng: choices(name), began: time.Now()}}
	f.txs = map[string]*transaction{}
	f.create()
	f.redis = testenv.RedisServerWith(t,
		testenv.RedisConfig{Args: []string{"--client-output-buffer-limit", "pubsub", "0", "0", "0"}})
	f.relayDatabase, f.relaySink = "sqlite:"+f.path, f.redis.URL()
	f.admin = redis.NewClient(&redis.Options{Network: "unix", Addr: f.redis.Socket(), MaxRetries: -1})
	t.Cleanup(func() { _ = f.admin.Close() })
	f.heard = subscribe(t, f.redis)
	return f
}

func (f *file) create() {
	f.t.Helper()
	f.must(app.MigrationsOf("sqlite:"+f.path).Up(f.t.Context(), "core", "events", "crawl"))
	db := f.open()
	_, err := db.Exec(orders)
	f.must(errors.Join(err, db.Close()))
}

// open opens the file as another program would. Who has it open keeps its WAL from going when the
// others close it.
func (f *file) open() *sql.DB {
	f.t.Helper()
	db, err := sql.Open("sqlite", plainSource(f.path))
	f.must(err)
	return db
}

// one returns the single value of a query.
func one[T any](f *file, query string, args ...any) (v T) {
	f.t.Helper()
	db := f.open()
	err := db.QueryRow(query, args...).Scan(&v)
	if err := errors.Join(err, db.Close()); err != nil {
		f.t.Fatalf("%s: %v", query, err)
	}
	return v
}

// player is this test binary, started again in a role.
type player struct {
	*process
	t    *testing.T
	told atomic.Int64 // events that it committed or delivered
}

// play starts a player.
func (f *file) play(role string) *player {
	f.t.Helper()
	exe, err := os.Executable()
	f.must(err)
	p, life := &player{t: f.t}, len(f.players)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, fileVariable+"="+f.path)
	_, err = cmd.StdinPipe() // whose end tells it that the test has gone
	f.must(err)
	p.process = start(f.t, cmd, func(line []byte) {
		var s saying
		if err := json.Unmarshal(line, &s); err != nil {
			f.t.Errorf("a player said %s: %v", line, err)
			return
		}
		f.take(s, life)
		if s.Did == didCommit || s.Did == didDeliver {
			p.told.Add(int64(len(s.Events)))
		}
	})
	f.players = append(f.players, p)
	return p
}

// did is how many events it has committed or delivered.
func (p *player) did() int { return int(p.told.Load()) }

// terminate stops it politely.
func (p *player) terminate(t *testing.T) {
	t.Helper()
	p.end(t, syscall.SIGTERM)
	p.endedWell(t)
}

func (p *player) worked() bool {
	if !p.running() {
		p.t.Fatalf("a player ended by itself: %v\n%s", p.err, p.said())
	}
	return p.did() > 0
}

// watched starts a relay that can be asked how much it has delivered.
func (f *file) watched() *relayProcess {
	f.t.Helper()
	return f.relay(nil, "--lease-ttl", killTTL.String(), "--listen", "127.0.0.1:0")
}

// published is how many events a relay has delivered since it began.
func published(r *relayProcess) int {
	return metric(r, `outbox_published_total{table="outbox_events"}`)
}

// metric asks a relay that listens for a number of its own.
func metric(r *relayProcess, name string) int {
	_, after, ok := strings.Cut(r.said(), `"msg":"listening","address":"`)
	if !ok {
		return 0
	}
	address, _, _ := strings.Cut(after, `"`)
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return 0 // not yet, or not any more
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0
	}
	return numberAfter(string(text), name+" ")
}

// finish ends all players, waits for everything to drain, ends the relays, and looks at what is
// left and at what arrived.
func (f *file) finish(name string, struck int) {
	t := f.t
	t.Helper()
	for _, p := range f.players {
		if p.running() {
			p.terminate(t)
		}
	}
	drained := time.Now()
	eventually(t, "everything is delivered or dead", func() bool {
		return one[int](f, `SELECT count(*) FROM outbox_events WHERE status IN ('NEW', 'FAILED')`) == 0
	})
	recovery := time.Since(drained)
	received, subscriptions := f.heard.quiet(300 * time.Millisecond)
	if f.through != nil {
		received = f.through
	}
	for _, r := range f.relays {
		if r.running() {
			r.terminate(t)
		}
	}
	f.sound()
	dead := f.buried()
	if subscriptions != 1 {
		t.Errorf("the subscriber connected %d times: it may have missed what was published", subscriptions)
	}
	written, unknown := f.written()
	report := outboxtest.Check(outboxtest.History{Written: written, Received: received, Dead: dead})
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	if report.Acknowledged == 0 {
		t.Error("nothing was written")
	}
	if *long && strings.Contains(name, "kills") && unknown == 0 {
		t.Error("no kill fell between COMMIT and its answer")
	}
	line(t, name, struck, f.began, "%s  drained in %.2f s%s%s",
		counts(report, report.Duplicated, unknown), recovery.Seconds(),
		map[bool]string{true: fmt.Sprintf("  published again after a kill %d", f.again)}[f.again > 0], f.note)
}

// sound looks at a file that nobody has open: all went back into it, it is whole, nobody holds
// anything, and no event was blamed. A lane without events may still name a relay that was killed,
// if its lease has lapsed: the others take it at their next check, or are told to stop before.
func (f *file) sound() {
	t := f.t
	t.Helper()
	if left, err := filepath.Glob(f.path + "-*"); err != nil || len(left) > 0 {
		t.Errorf("after the last close there are %v, error %v", left, err)
	}
	if found := one[string](f, `PRAGMA integrity_check`); found != "ok" {
		t.Errorf("integrity: %s", found)
	}
	for what, query := range map[string]string{
		"foreign keys violated":               `SELECT count(*) FROM pragma_foreign_key_check`,
		"lanes held":                          `SELECT count(*) FROM outbox_lanes WHERE owner IS NOT NULL AND expires_at > strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')`,
		"relays enrolled":                     `SELECT count(*) FROM outbox_relays WHERE table_name = 'outbox_events' AND expires_at > strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')`,
		"events that were blamed":             `SELECT count(*) FROM outbox_events WHERE retry_count > 0 AND id NOT IN (SELECT original_job_id FROM job_dlq)`,
		"events without their business row":   `SELECT count(*) FROM (SELECT id FROM outbox_events EXCEPT SELECT value FROM orders, json_each(orders.events))`,
		"events that a business row misses":   `SELECT count(*) FROM (SELECT value FROM orders, json_each(orders.events) EXCEPT SELECT id FROM outbox_events)`,
		"events that are twice in the orders": `SELECT count(*) - count(DISTINCT value) FROM orders, json_each(orders.events)`,
	} {
		if n := one[int](f, query); n > 0 {
			t.Errorf("%d %s", n, what)
		}
	}
}

// buried are the dead letters. There may be one now and then where relays are killed all the time:
// twice while one event was published by itself, as a relay does at a lane where others have died,
// is what a poison event looks like.
func (f *file) buried() (dead []outboxtest.DeadLetter) {
	f.t.Helper()
	for id := range f.ids(`SELECT original_job_id FROM job_dlq`) {
		dead = append(dead, outboxtest.DeadLetter{ID: id})
	}
	if n := one[int](f,
		`SELECT count(*) FROM job_dlq WHERE error_history NOT LIKE '%the relay died while it published this event and nothing else, 2 times%'`); n > 0 {
		f.t.Errorf("%d dead letters, not for the kills' sake", n)
	}
	return dead
}

// written is what the players wrote, and how many events they did not know the fate of: the file
// knows, and must have all of a transaction or nothing.
func (f *file) written() (all []outboxtest.Written, unknown int) {
	f.t.Helper()
	present := f.ids(`SELECT id FROM outbox_events`)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, tx := range f.txs {
		outcome, there := tx.outcome, 0
		for _, e := range tx.Events {
			if present[e.ID] {
				there++
			}
		}
		switch {
		case outcome == outboxtest.Unknown:
			unknown += len(tx.Events)
			if there != 0 && there != len(tx.Events) {
				f.t.Errorf("of the %d events of transaction %d there are %d", len(tx.Events), tx.N, there)
			}
			if outcome = outboxtest.RolledBack; there > 0 {
				outcome = outboxtest.Acknowledged
			}
		case outcome == outboxtest.Acknowledged && there != len(tx.Events), outcome == outboxtest.RolledBack && there > 0:
			f.t.Errorf("of the %d events of transaction %d, which was %s, there are %d", len(tx.Events), tx.N, tx.Did, there)
		}
		for i, e := range tx.Events {
			all = append(all, outboxtest.Written{ID: e.ID, Key: e.Key, Order: 10*tx.N + int64(i), Outcome: outcome, At: tx.at})
		}
	}
	return all, unknown
}

// ids is a set of texts from the file.
func (f *file) ids(query string) map[string]bool {
	f.t.Helper()
	db := f.open()
	defer func() { _ = db.Close() }() // nothing was written
	rows, err := db.Query(query)
	f.must(err)
	defer func() { _ = rows.Close() }()
	ids := map[string]bool{}
	for rows.Next() {
		var id string
		f.must(rows.Scan(&id))
		ids[id] = true
	}
	f.must(rows.Err())
	return ids
}

// containsFold is strings.Contains whatever the case.
func containsFold(s, part string) bool {
	return strings.Contains(strings.ToLower(s), strings.ToLower(part))
}

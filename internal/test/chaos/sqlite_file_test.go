package chaos

import (
	"bufio"
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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/outboxtest"
)

// killTTL is the lease time of relays that are killed again and again: the least that the command takes. What a killed
// one held stands still for so long.
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
	if err := app.MigrationsOf("sqlite:"+f.path).Up(f.t.Context(), "core", "events", "crawl"); err != nil {
		f.t.Fatal(err)
	}
	db := f.open()
	_, err := db.Exec(orders)
	if err := errors.Join(err, db.Close()); err != nil {
		f.t.Fatal(err)
	}
}

// open opens the file as another program would. Who has it open keeps its WAL from going when the others close it.
func (f *file) open() *sql.DB {
	f.t.Helper()
	db, err := sql.Open("sqlite", plainSource(f.path))
	if err != nil {
		f.t.Fatal(err)
	}
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
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.Closer // whose end tells it that the test has gone
	errs   strings.Builder
	said   func() int // events that it committed or delivered
	exited chan struct{}
	err    error // how it ended; to be read after exited
}

// play starts a player.
func (f *file) play(role string) *player {
	f.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	p := &player{t: f.t, cmd: exec.Command(exe), exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), roleVariable+"="+role, fileVariable+"="+f.path)
	p.cmd.Stderr = &p.errs
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	p.stdin = stdin
	life := len(f.players)
	f.players = append(f.players, p)
	var mu sync.Mutex
	count := 0
	p.said = func() int {
		mu.Lock()
		defer mu.Unlock()
		return count
	}
	go func() { // ends with the process, for which the cleanup waits
		defer close(p.exited)
		lines := bufio.NewReader(stdout)
		for {
			line, err := lines.ReadBytes('\n') // what has no end was cut off by the kill
			if err != nil {
				break
			}
			var s saying
			if err := json.Unmarshal(line, &s); err != nil {
				f.t.Errorf("a player said %s: %v", line, err)
				continue
			}
			f.take(s, life)
			if s.Did == didCommit || s.Did == didDeliver {
				mu.Lock()
				count += len(s.Events)
				mu.Unlock()
			}
		}
		p.err = p.cmd.Wait()
	}()
	f.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // fails if it has ended, as it should have
		<-p.exited
		if f.t.Failed() && p.errs.Len() > 0 {
			f.t.Logf("a player said:\n%s", &p.errs)
		}
	})
	return p
}

func (p *player) kill(t *testing.T) {
	t.Helper()
	p.end(t, syscall.SIGKILL)
	var exit *exec.ExitError
	if !errors.As(p.err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the player had ended by itself: %v\n%s", p.err, &p.errs)
	}
}

// terminate stops it politely.
func (p *player) terminate(t *testing.T) {
	t.Helper()
	p.end(t, syscall.SIGTERM)
	if p.err != nil {
		t.Errorf("a player ended with %v, want exit code 0\n%s", p.err, &p.errs)
	}
}

func (p *player) end(t *testing.T, s syscall.Signal) {
	t.Helper()
	_ = p.cmd.Process.Signal(s) // fails if it has ended, which the exit code will tell
	select {
	case <-p.exited:
	case <-time.After(testenv.Patience):
		t.Fatalf("a player did not end after %v", s)
	}
}

func (p *player) worked() bool {
	select {
	case <-p.exited:
		p.t.Fatalf("a player ended by itself: %v\n%s", p.err, &p.errs)
	default:
	}
	return p.said() > 0
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

// finish ends all players, waits for everything to drain, ends the relays, and looks at what is left and at what
// arrived.
func (f *file) finish(name string, struck int) {
	t := f.t
	t.Helper()
	for _, p := range f.players {
		select {
		case <-p.exited:
		default:
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
	if struck == 0 {
		t.Error("the fault never struck")
	}
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
	fmt.Printf("%-28s struck %4d  acknowledged %6d  unknown %4d  received %6d  dead %3d  lost %d  invented %d  "+
		"duplicated %d  out of order %d  drained in %.2f s  (%.0f s)%s%s%s\n",
		name, struck, report.Acknowledged, unknown, report.Received, report.Dead, report.Lost.Count, report.Invented.Count,
		report.Duplicated.Count, report.OutOfOrder.Count, recovery.Seconds(),
		time.Since(f.began).Seconds(),
		map[bool]string{true: fmt.Sprintf("  published again after a kill %d", f.again)}[f.again > 0], f.note,
		map[bool]string{true: "  FAILED"}[t.Failed()])
}

// sound looks at a file that nobody has open: all went back into it, it is whole, nobody holds anything, and no event
// was blamed. A lane without events may still name a relay that was killed, if its lease has lapsed: the others take it
// at their next check, or are told to stop before.
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

// buried are the dead letters. There may be one now and then where relays are killed all the time: twice while one
// event was published by itself, as a relay does at a lane where others have died, is what a poison event looks like.
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

// written is what the players wrote, and how many events they did not know the fate of: the file knows, and must have
// all of a transaction or nothing.
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
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	ids := map[string]bool{}
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			f.t.Fatal(err)
		}
		ids[id] = true
	}
	if err := rows.Err(); err != nil {
		f.t.Fatal(err)
	}
	return ids
}

// containsFold is strings.Contains whatever the case.
func containsFold(s, part string) bool {
	return strings.Contains(strings.ToLower(s), strings.ToLower(part))
}

package integration

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib" // "pgx" for database/sql
	_ "modernc.org/sqlite"             // "sqlite"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/server/crawl"
)

// `outbox dev` behaves the same on a file and on PostgreSQL, within itself and through Redis. The
// steps note what a user sees; the notes must be equal, word for word.
func TestDevFourWays(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	var mu sync.Mutex
	observed := map[string][]string{}
	ways := []string{"SQLite and memory", "SQLite and Redis", "PostgreSQL and memory", "PostgreSQL and Redis"}
	t.Run("ways", func(t *testing.T) {
		for _, way := range ways {
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				d := &developing{t: t, dir: t.TempDir(), database: "sqlite:outbox.db", names: map[string]string{}}
				if strings.HasPrefix(way, "PostgreSQL") {
					d.database = testenv.Database(t)
					d.args = append(d.args, "--database", d.database)
				}
				if strings.HasSuffix(way, "Redis") {
					d.args = append(d.args, "--sink", testenv.RedisServer(t).URL())
				}
				d.steps()
				mu.Lock()
				defer mu.Unlock()
				observed[way] = d.observed
			})
		}
	})
	if t.Failed() {
		return
	}
	ways = slices.DeleteFunc(ways, func(way string) bool { return observed[way] == nil }) // -run may choose some
	want := observed[ways[0]]
	t.Logf("observed %d times:\n%s", len(ways), strings.Join(want, "\n"))
	for _, way := range ways[1:] {
		got := observed[way]
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Errorf("line %d is in %s\n%s\nand in %s\n%s", i+1, ways[0], want[i], way, got[i])
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d things were observed in %s, %d in %s", len(want), ways[0], len(got), way)
		}
	}
}

// steps are what a user does on the first day.
func (d *developing) steps() {
	d.start()
	d.page()
	run := d.scripted()
	d.writes()
	d.deadLetter()
	d.looks()
	cancelled := d.cancels()
	before := d.logOf(run, 40)
	d.stops()

	d.start()
	if after := d.logOf(run, 40); !slices.Equal(before, after) {
		d.t.Errorf("after the second start the log of the run is %v, it was %v", after, before)
	}
	d.goesOn(run)
	status, answer := d.call("GET", "/v1/runs/"+cancelled.String(), "")
	d.observe(fmt.Sprint("the cancelled run after the second start, ", status), field(d.t, answer, "status"))
	d.looks()
	d.stops()
}

func (d *developing) page() {
	status, body := d.call("GET", "/", "")
	d.observe(fmt.Sprint("GET /, ", status), body[:min(len(body), 60)])
	if !strings.Contains(body, "EventSource") {
		d.t.Errorf("the page does not show anything live: %s", body)
	}
	var commands []string
	for line := range strings.Lines(d.said()) {
		if command, ok := strings.CutPrefix(line, "  "); ok {
			_, command, _ = strings.Cut(command, " ") // without the program, which is called as it was
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	d.observe("commands to try", strings.NewReplacer("'", "", d.cmd.Path, "outbox").Replace(strings.Join(commands, "; ")))
}

// scripted starts a run, as the page does, and follows it: from its first event, cut off in the
// middle of one, and from there on.
func (d *developing) scripted() uuid.UUID {
	var run struct {
		RunID                       uuid.UUID
		Status, Crawler, AppPackage string
	}
	status, made := d.call("POST", "/v1/runs",
		`{"appPackage": "com.example.shop", "crawler": "script:checkout", "maxSteps": 1000}`)
	d.observe(fmt.Sprint("started, ", status), made)
	eventually(d.t, "the run goes on", func() bool {
		_, answer := d.call("GET", "/v1/runs", "")
		var page struct{ Items []json.RawMessage }
		if err := json.Unmarshal([]byte(answer), &page); err != nil || len(page.Items) > 1 {
			d.t.Fatalf("runs %s, error %v", answer, err)
		}
		return len(page.Items) == 1 && json.Unmarshal(page.Items[0], &run) == nil && run.Status == "RUNNING"
	})
	d.observe("run", run)
	c := &client{nodes: []string{d.url}, run: run.RunID}
	rng := rand.New(rand.NewPCG(1, 1))
	for _, cut := range []cut{{-1, 15}, {200 + rng.IntN(1000), -1}, {-1, 1}, {-1, 30}} {
		if status, err := c.connect(d.t.Context(), cut); !errors.Is(err, errHungUp) {
			d.t.Fatalf("the stream ended with status %d, %v", status, err)
		}
	}
	const seen = 40 // those in which the cuts fell, and some more
	if len(c.got) < seen {
		d.t.Fatalf("%d events, want %d and more", len(c.got), seen)
	}
	for i, got := range c.got {
		if got.seq != int64(i+1) {
			d.t.Fatalf("event %d comes after event %d", got.seq, i)
		}
		if i < seen {
			d.observe(got.event.LastEventID+" "+got.event.Type, got.event.Data)
		}
	}
	return run.RunID
}

// writes writes an event with the command and waits for it on a stream of its topic.
func (d *developing) writes() {
	l := d.listen("/v1/stream?topics=order.placed")
	defer l.end()
	for n := range 3 {
		id := strings.TrimSpace(d.command(fmt.Sprintf(`{"n": %d, "total": 12.50}`, n), "write", "--topic", "order.placed",
			"--aggregate-type", "Order", "--key", "42"))
		d.observe("written", id)
		e := l.event()
		d.observe("arrived as "+e.Type, e.Data)
	}
}

// deadLetter writes what cannot arrive: a destination list that is none, which only an UPDATE can
// make.
func (d *developing) deadLetter() {
	driver, source := "pgx", d.database
	if path, ok := strings.CutPrefix(d.database, "sqlite:"); ok {
		driver, source = "sqlite", "file:"+filepath.Join(d.dir, path)+"?_pragma=busy_timeout(10000)"
	}
	db, err := sql.Open(driver, source)
	noError(d.t, err)
	tx, err := db.BeginTx(d.t.Context(), nil)
	noError(d.t, err)
	_, err = tx.ExecContext(d.t.Context(), `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_id, source_bc, payload)
		VALUES ('order.placed', '2026-01-02T03:04:05Z', '43', 'shop', '{"total": 1}')`)
	if err == nil {
		_, err = tx.ExecContext(d.t.Context(), `UPDATE outbox_events SET destination_topics = '{"no": "list"}'
			WHERE aggregate_id = '43' AND status = 'NEW'`)
	}
	noError(d.t, errors.Join(err, tx.Commit(), db.Close()))
	var page struct {
		Items []map[string]any
	}
	list := func(args ...string) []map[string]any {
		page.Items = nil
		text := d.command("", append([]string{"dlq", "list", "-o", "json"}, args...)...)
		noError(d.t, json.Unmarshal([]byte(text), &page))
		return page.Items
	}
	eventually(d.t, "the event is a dead letter", func() bool { return len(list()) > 0 })
	d.observe("dead letters", list())
	id := fmt.Sprint(page.Items[0]["id"])
	d.observe("replay --dry-run", d.command("", "dlq", "replay", id, "--dry-run"))
	d.observe("replay --dry-run -o json", d.command("", "dlq", "replay", id, "--dry-run", "-o", "json"))
	d.observe("discard", d.command("", "dlq", "discard", id, "--reason", "a test", "--actor", "me"))
	d.observe("dead letters left", list())
	d.observe("discarded", list("--state", "discarded"))
}

// looks asks what a person on duty asks.
func (d *developing) looks() {
	var report struct {
		Relays []struct{ Lanes, Share int }
		Lanes  []struct {
			State   string
			Backlog int
		}
	}
	eventually(d.t, "one relay holds all lanes", func() bool {
		noError(d.t, json.Unmarshal([]byte(d.command("", "lanes", "-o", "json")), &report))
		return len(report.Relays) == 1 && report.Relays[0].Lanes == 64
	})
	states, backlog := map[string]int{}, 0
	for _, l := range report.Lanes {
		states[l.State]++
		backlog += l.Backlog
	}
	d.observe("lanes", states)
	d.observe("backlog", backlog)
	var events struct {
		Events []struct {
			ID                 uuid.UUID
			Status, Topic, Key string
			Attempts           int
		}
	}
	noError(d.t, json.Unmarshal([]byte(d.command("", "events", "-o", "json")), &events))
	d.observe("events", events)
}

// cancels makes a run of its own, watches it, and cancels it.
func (d *developing) cancels() uuid.UUID {
	status, answer := d.call("POST", "/v1/runs", `{"appPackage": "com.example.mine"}`)
	d.observe(fmt.Sprint("created, ", status), answer)
	run, err := uuid.Parse(field(d.t, answer, "runId"))
	noError(d.t, err)
	path := "/v1/runs/" + run.String()
	l := d.listen(path + "/stream")
	defer l.end()
	watch := func() {
		e := l.event()
		d.observe(e.LastEventID+" "+e.Type, e.Data)
	}
	for _, step := range []struct{ path, body string }{
		{"/start", ""},
		{"/events", `{"events": [{"type": "ACTION_EXECUTED", "payload": {"action": "tap"}}]}`},
		{"/cancel", ""},
	} {
		status, answer := d.call("POST", path+step.path, step.body)
		d.observe(fmt.Sprint("POST …", step.path, ", ", status), answer)
		watch()
	}
	l.over()
	status, answer = d.call("POST", path+"/cancel", "")
	d.observe(fmt.Sprint("cancelled again, ", status), answer)
	return run
}

// logOf is the beginning of a run's log as the API has it.
func (d *developing) logOf(run uuid.UUID, n int) (log []string) {
	var page struct{ Items []json.RawMessage }
	status, answer := d.call("GET", fmt.Sprintf("/v1/runs/%s/events?limit=%d", run, n), "")
	if err := json.Unmarshal([]byte(answer), &page); err != nil || status != http.StatusOK || len(page.Items) != n {
		d.t.Fatalf("status %d, error %v: %s", status, err, answer)
	}
	for _, e := range page.Items {
		log = append(log, string(e))
	}
	return log
}

// goesOn follows a run that was under way when the process stopped, from its first event to ones
// that there were not before, or to its end: on a slow machine it may have come to that.
func (d *developing) goesOn(run uuid.UUID) {
	_, answer := d.call("GET", "/v1/runs/"+run.String(), "")
	var last int
	if _, err := fmt.Sscan(field(d.t, answer, "lastSeq"), &last); err != nil {
		d.t.Fatalf("%s: %v", answer, err)
	}
	c := &client{nodes: []string{d.url}, run: run}
	status, err := c.connect(d.t.Context(), cut{-1, last + 20})
	if ended := err == nil && len(c.got) > 0 &&
		c.got[len(c.got)-1].event.Type == string(crawl.RunCompleted); !errors.Is(err, errHungUp) && !ended {
		d.t.Fatalf("after %d events the stream ended with status %d, %v", len(c.got), status, err)
	}
	for i, got := range c.got {
		if got.seq != int64(i+1) {
			d.t.Fatalf("event %d comes after event %d", got.seq, i)
		}
	}
}

// stops is Ctrl-C, after which nothing is left but the file.
func (d *developing) stops() {
	d.observe("stopped", strings.Contains(d.interrupt(), "stopped; "))
	files, err := os.ReadDir(d.dir)
	noError(d.t, err)
	var left []string
	for _, f := range files {
		left = append(left, f.Name())
	}
	if want := strings.TrimPrefix(d.database, "sqlite:"); want != d.database && !slices.Equal(left, []string{want}) ||
		want == d.database && len(left) > 0 {
		d.t.Errorf("it left %q", left)
	}
}

// field is a field of a JSON object.
func field(t *testing.T, object, name string) string {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(object), &fields); err != nil {
		t.Fatalf("%s: %v", object, err)
	}
	return fmt.Sprint(fields[name])
}

package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/server/crawl"
)

func runTests() []test {
	return slices.Concat([]test{
		{name: "creates a run", run: createsRun},
		{name: "creates one run for an idempotency key", run: createsOneRunForAKey},
		{name: "lists runs in pages, newest first", run: listsRuns},
		{name: "lists events and last numbers", run: listsEvents},
		{name: "bounds a page of events in bytes", run: boundsPageOfEvents},
		{name: "bounds a page of runs in bytes", run: boundsPageOfRuns},
		{name: "hides the runs of another tenant", run: hidesRunsOfAnotherTenant},
		{name: "numbers events by plain SQL", run: numbersPlainSQL},
		{name: "a final status set by plain SQL ends the log", run: endsByStatus},
	}, changeTests(), leaseTests(), shareTests(), workerTests())
}

// acme is the tenant of the runs under test.
const acme = "acme"

// runSuite is a test's harness with its runs open.
type runSuite struct {
	*suite
	crawl.Store
}

func (s *suite) runs(t *testing.T) runSuite {
	t.Helper()
	return runSuite{s, s.Runs(t)}
}

// create creates a run of acme for an external crawler; change may alter it.
func (r runSuite) create(t *testing.T, change ...func(*crawl.NewRun)) crawl.Run {
	t.Helper()
	n := crawl.NewRun{AppPackage: "com.example", MaxSteps: 100, Crawler: crawl.External}
	for _, f := range change {
		f(&n)
	}
	run, created, err := r.CreateRun(t.Context(), acme, n, 0)
	if err != nil || !created {
		t.Fatalf("created %t, error %v", created, err)
	}
	return run
}

// start creates a run and starts it.
func (r runSuite) start(t *testing.T) crawl.Run {
	t.Helper()
	return r.change(t, r.create(t).ID,
		crawl.Change{From: []crawl.Status{crawl.Pending}, To: crawl.Running, Events: runEvents(crawl.RunStarted)}).Run
}

func (r runSuite) change(t *testing.T, run uuid.UUID, c crawl.Change) crawl.Changed {
	t.Helper()
	changed, err := r.Change(t.Context(), acme, run, c)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// wants compares the single value of a query.
func (r runSuite) wants(t *testing.T, what, want, sql string, args ...any) {
	t.Helper()
	if got := r.Value(t, sql, args...); got != want {
		t.Errorf("%s: got %s, want %s", what, got, want)
	}
}

// runState is all that a change of the only run could change.
const runState = "SELECT concat_ws(' ', status, lease_epoch, node_attempts, steps_done, (SELECT count(*) FROM " +
	"crawl_events), (SELECT count(*) FROM crawl_outbox)) FROM crawl_runs"

// runEvents makes an event of each type.
func runEvents(types ...string) (events []crawl.NewEvent) {
	for _, typ := range types {
		events = append(events, crawl.NewEvent{ID: uuid.Must(uuid.NewV7()), Type: typ, Payload: json.RawMessage(`{"n": 1}`)})
	}
	return events
}

func createsRun(t *testing.T, s *suite) {
	r := s.runs(t)
	run := r.create(t, func(n *crawl.NewRun) {
		n.DeviceConfig, n.Goal, n.MaxSteps, n.Crawler = json.RawMessage(`{"os": 14}`), "log in", 7, "demo"
	})
	want := crawl.Run{ID: run.ID, Tenant: acme, Status: crawl.Pending, AppPackage: "com.example",
		DeviceConfig: json.RawMessage(`{"os": 14}`), MaxSteps: 7, Goal: "log in",
		Crawler: "demo", CreatedAt: run.CreatedAt}
	got, err := r.GetRun(t.Context(), acme, run.ID)
	for _, g := range []crawl.Run{run, got} {
		if err != nil || fmt.Sprintf("%+v", g) != fmt.Sprintf("%+v", want) {
			t.Errorf("got %+v, error %v, want %+v", g, err, want)
		}
	}
	if time.Since(run.CreatedAt).Abs() > time.Hour || run.CreatedAt.Location() != time.UTC {
		t.Errorf("created at %v", run.CreatedAt)
	}
	r.wants(t, "events of a run that is only created", "0 0",
		"SELECT concat_ws(' ', (SELECT count(*) FROM crawl_events), (SELECT count(*) FROM crawl_outbox))")
	if bare := r.create(t); bare.DeviceConfig != nil || bare.Goal != "" || bare.Error != "" || bare.StartedAt != nil {
		t.Errorf("with nothing but what is required: %+v", bare)
	}
	for _, refused := range []crawl.NewRun{{AppPackage: "p", DeviceConfig: json.RawMessage(`{"a": "\u0000"}`)},
		{AppPackage: strings.Repeat("p", 256)}} {
		if _, _, err := r.CreateRun(t.Context(), acme, refused, 0); !errors.Is(err, crawl.ErrInvalid) {
			t.Errorf("%.30s: got %v, want ErrInvalid", refused.AppPackage, err)
		}
	}
}

func createsOneRunForAKey(t *testing.T, s *suite) {
	r := s.runs(t)
	n := crawl.NewRun{AppPackage: "shop", DeviceConfig: json.RawMessage(`{"a": 1, "b": [2]}`), MaxSteps: 5,
		Crawler: "demo", IdempotencyKey: "k"}
	var ids [20]uuid.UUID
	var news [20]bool
	together(20, func(i int) {
		run, created, err := r.CreateRun(t.Context(), acme, n, 0)
		if err != nil {
			t.Error(err)
		}
		ids[i], news[i] = run.ID, created
	})
	made := 0
	for i := range ids {
		if ids[i] != ids[0] {
			t.Errorf("two runs: %s and %s", ids[i], ids[0])
		}
		if news[i] {
			made++
		}
	}
	if made != 1 {
		t.Errorf("created %d times, want once", made)
	}
	r.wants(t, "rows", "1", "SELECT count(*) FROM crawl_runs")
	n.DeviceConfig = json.RawMessage(`{"b":[2.0],"a":1}`) // the same value
	if run, created, err := r.CreateRun(t.Context(), acme, n, 0); err != nil || created || run.ID != ids[0] {
		t.Errorf("the same content: got %s, created %t, error %v", run.ID, created, err)
	}
	for name, alter := range map[string]func(*crawl.NewRun){
		"app":     func(n *crawl.NewRun) { n.AppPackage = "other" },
		"config":  func(n *crawl.NewRun) { n.DeviceConfig = nil },
		"value":   func(n *crawl.NewRun) { n.DeviceConfig = json.RawMessage(`{"a": 1, "b": [2.5]}`) },
		"steps":   func(n *crawl.NewRun) { n.MaxSteps = 6 },
		"goal":    func(n *crawl.NewRun) { n.Goal = "win" },
		"crawler": func(n *crawl.NewRun) { n.Crawler = crawl.External },
	} {
		other := n
		alter(&other)
		if _, _, err := r.CreateRun(t.Context(), acme, other, 0); !errors.Is(err, crawl.ErrKeyReused) {
			t.Errorf("other %s: got %v, want ErrKeyReused", name, err)
		}
	}
	others, created, err := r.CreateRun(t.Context(), "umbrella", n, 0)
	if err != nil || !created || others.ID == ids[0] || others.Tenant != "umbrella" {
		t.Errorf("another tenant's key: %+v, created %t, error %v", others, created, err)
	}
	for tenant, want := range map[string]uuid.UUID{acme: ids[0], "umbrella": others.ID} {
		if run, created, err := r.CreateRun(t.Context(), tenant, n, 0); err != nil || created || run.ID != want ||
			run.Tenant != tenant {
			t.Errorf("%s again: got %s of %s, created %t, error %v, want %s", tenant, run.ID, run.Tenant, created, err, want)
		}
	}
}

func listsRuns(t *testing.T, s *suite) {
	r := s.runs(t)
	begun := time.Now().Add(-time.Hour)
	for i := range 50 { // several of one moment, so that the id decides
		tenant, app := acme, "bank"
		if i%10 == 0 {
			tenant = "umbrella"
		}
		if i%3 == 0 {
			app = "shop"
		}
		r.Exec(t, "INSERT INTO crawl_runs (tenant_id, app_package, status, created_at) VALUES (?1, ?2, ?3, ?4)",
			tenant, app, []string{"PENDING", "RUNNING", "FAILED"}[i%3], begun.Add(time.Duration(i/7)*time.Minute))
	}
	for _, c := range []struct {
		f    crawl.RunFilter
		want int
	}{{crawl.RunFilter{}, 45}, {crawl.RunFilter{Status: crawl.Failed}, 15}, {crawl.RunFilter{AppPackage: "shop"}, 15},
		{crawl.RunFilter{AppPackage: "shop", Status: crawl.Failed}, 0}} {
		c.f.Limit = 8
		var all []crawl.Run
		for {
			page, more, err := r.ListRuns(t.Context(), acme, c.f)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, page...)
			if !more {
				break
			}
			c.f.Before = crawl.Cursor{CreatedAt: page[len(page)-1].CreatedAt, ID: page[len(page)-1].ID}
		}
		sorted := slices.IsSortedFunc(all, func(a, b crawl.Run) int {
			if by := b.CreatedAt.Compare(a.CreatedAt); by != 0 {
				return by
			}
			return strings.Compare(b.ID.String(), a.ID.String())
		})
		if len(all) != c.want || !sorted || slices.ContainsFunc(all, func(r crawl.Run) bool { return r.Tenant != acme }) {
			t.Errorf("%+v: got %d runs, newest first %t, want %d of acme", c.f, len(all), sorted, c.want)
		}
	}
}

func listsEvents(t *testing.T, s *suite) {
	r := s.runs(t)
	run, quiet := r.start(t), r.create(t)
	for range 4 {
		r.change(t, run.ID, crawl.Change{Events: runEvents("A", "B", "C")})
	}
	var seqs []int64
	for after := int64(0); ; {
		page, err := r.ListEvents(t.Context(), acme, run.ID, after, 5)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			seqs = append(seqs, e.Seq)
			if e.Run != run.ID || e.Tenant != acme || string(e.Payload) != `{"n": 1}` || e.ID == uuid.Nil ||
				time.Since(e.CreatedAt).Abs() > time.Hour || e.Type == "" {
				t.Errorf("got %+v", e)
			}
		}
		after = page[len(page)-1].Seq
	}
	if len(seqs) != 13 || seqs[0] != 1 || seqs[12] != 13 || !slices.IsSorted(seqs) {
		t.Errorf("got %v, want 1 to 13", seqs)
	}
	if events, err := r.ListEvents(t.Context(), acme, quiet.ID, 0, 5); err != nil || len(events) != 0 {
		t.Errorf("of a run without events: %v, error %v", events, err)
	}
	got, err := r.LastSeqs(t.Context(), acme, []uuid.UUID{run.ID, quiet.ID, uuid.New()})
	if err != nil || len(got) != 1 || got[run.ID] != 13 {
		t.Errorf("last numbers: %v, error %v", got, err)
	}
	if got, err := r.LastSeqs(t.Context(), acme, nil); err != nil || len(got) != 0 {
		t.Errorf("last numbers of none: %v, error %v", got, err)
	}
	if got, err := r.GetRun(t.Context(), acme, run.ID); err != nil || got.LastSeq != 13 {
		t.Errorf("run %+v, error %v", got, err)
	}
}

// A page of large events is short: each reader of a stream that is behind holds one. The second
// kind is large only where numbers come back spelled out.
func boundsPageOfEvents(t *testing.T, s *suite) {
	r := s.runs(t)
	run := r.start(t)
	for range 10 {
		r.change(t, run.ID, crawl.Change{Events: []crawl.NewEvent{
			{Type: crawl.Processing, Payload: fmt.Appendf(nil, `{"x":"%s"}`, strings.Repeat("x", 300<<10))},
			{Type: crawl.Processing, Payload: []byte(`[1e131070,1e131070,1e9999]`)},
		}})
	}
	var seqs []int64
	for after := int64(0); ; {
		page, err := r.ListEvents(t.Context(), acme, run.ID, after, 500)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		size := 0
		for _, e := range page {
			if size += len(e.Payload); size-len(e.Payload) >= crawl.PageBytes {
				t.Errorf("a page has %d events, %d bytes before the last", len(page), size-len(e.Payload))
			}
			seqs = append(seqs, e.Seq)
			after = e.Seq
		}
	}
	if len(seqs) != 21 || seqs[20] != 21 {
		t.Errorf("the pages have the events %v", seqs)
	}
	small := r.start(t)
	for range 10 {
		r.change(t, small.ID, crawl.Change{Events: runEvents("A", "B", "C")})
	}
	if page, err := r.ListEvents(t.Context(), acme, small.ID, 0, 30); err != nil || len(page) != 30 {
		t.Errorf("a page of small events after large ones has %d of 30, %v", len(page), err)
	}
}

// A page of large runs is short, and the next goes on where it ended. Sixty clients that ask for
// 500 runs of 56 KB at once are not to cost gigabytes. The texts compress to nothing, and the
// second kind of configuration is larger as the database keeps it than as it is written.
func boundsPageOfRuns(t *testing.T, s *suite) {
	r := s.runs(t)
	want := map[uuid.UUID]bool{}
	for i := range 120 {
		run := r.create(t, func(n *crawl.NewRun) {
			n.Goal, n.DeviceConfig = strings.Repeat("\U0001F4A9", crawl.MaxGoal),
				fmt.Appendf(nil, `{"a":"%s"}`, strings.Repeat("x", 16_000))
			if i%2 == 0 {
				n.Goal, n.DeviceConfig = "", fmt.Appendf(nil, `{"a":[%s1]}`, strings.Repeat("1,", 8_000))
			}
		})
		want[run.ID] = true
	}
	f := crawl.RunFilter{Limit: 500}
	pages := 0
	for more := true; more; pages++ {
		var page []crawl.Run
		var err error
		if page, more, err = r.ListRuns(t.Context(), acme, f); err != nil || len(page) == 0 {
			t.Fatalf("page %d has %d runs, %v", pages, len(page), err)
		}
		size := 0
		for _, run := range page {
			if size >= crawl.PageBytes {
				t.Errorf("a page has %d runs, %d bytes before the last", len(page), size)
			}
			size += len(run.Goal) + len(run.DeviceConfig)
			if !want[run.ID] {
				t.Errorf("run %s is there twice", run.ID)
			}
			delete(want, run.ID)
			f.Before = crawl.Cursor{CreatedAt: run.CreatedAt, ID: run.ID}
		}
	}
	if len(want) != 0 || pages < 3 {
		t.Errorf("%d runs are in none of %d pages", len(want), pages)
	}
	if page, more, err := r.ListRuns(t.Context(), acme, crawl.RunFilter{Limit: 1}); err != nil || len(page) != 1 || !more {
		t.Errorf("a page of one has %d runs, more is %t, %v", len(page), more, err)
	}
}

// What belongs to another tenant does not exist.
func hidesRunsOfAnotherTenant(t *testing.T, s *suite) {
	r := s.runs(t)
	run := r.start(t)
	const other = "umbrella"
	if _, err := r.GetRun(t.Context(), other, run.ID); !errors.Is(err, crawl.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	if _, err := r.ListEvents(t.Context(), other, run.ID, 0, 10); !errors.Is(err, crawl.ErrNotFound) {
		t.Errorf("events: %v", err)
	}
	if runs, _, err := r.ListRuns(t.Context(), other, crawl.RunFilter{}); err != nil || len(runs) != 0 {
		t.Errorf("list: %v, error %v", runs, err)
	}
	if seqs, err := r.LastSeqs(t.Context(), other, []uuid.UUID{run.ID}); err != nil || len(seqs) != 0 {
		t.Errorf("last numbers: %v, error %v", seqs, err)
	}
	before := r.Value(t, runState)
	for _, c := range []crawl.Change{{Events: runEvents("A")},
		{To: crawl.Cancelled, Events: runEvents(crawl.RunCancelled)}, {}} {
		if _, err := r.Change(t.Context(), other, run.ID, c); !errors.Is(err, crawl.ErrNotFound) {
			t.Errorf("change %+v: %v", c, err)
		}
	}
	if _, err := r.Change(t.Context(), acme, uuid.New(), crawl.Change{Events: runEvents("A")}); !errors.Is(err,
		crawl.ErrNotFound) {
		t.Errorf("change of no run: %v", err)
	}
	r.wants(t, "the run afterwards", before, runState)
}

// Rows in the words of the seeds get the next number of their run, an id, a time and the tenant;
// where no run has one, the default's.
// endsByStatus has plain SQL set the status of runs that have one event. The log then accepts no
// event, from the library or from plain SQL, except the terminal event of that status.
func endsByStatus(t *testing.T, s *suite) {
	r := s.runs(t)
	const insert = "INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES (?1, ?2, '{}')"
	running := r.start(t)
	for status, terminal := range map[crawl.Status]string{crawl.Completed: crawl.RunCompleted,
		crawl.Failed: crawl.RunFailed, crawl.Cancelled: crawl.RunCancelled} {
		run := r.start(t)
		s.Exec(t, "UPDATE crawl_runs SET status = ?1 WHERE id = ?2", string(status), run.ID)
		ended, err := r.EndedRuns(t.Context(), acme, []uuid.UUID{run.ID, running.ID, uuid.New()})
		if err != nil || len(ended) != 1 || ended[run.ID] != 1 {
			t.Errorf("ended runs: %v, error %v; want the %s one with one event", ended, err, status)
		}
		if others, err := r.EndedRuns(t.Context(), "other", []uuid.UUID{run.ID}); err != nil || len(others) != 0 {
			t.Errorf("ended runs of another tenant: %v, error %v", others, err)
		}
		_, err = r.Change(t.Context(), acme, run.ID, crawl.Change{Events: runEvents(crawl.Processing)})
		if state := new(crawl.StateError); !errors.As(err, &state) {
			t.Errorf("%s, append by the library: %v, want a StateError", status, err)
		}
		for _, refused := range []string{crawl.Processing, crawl.RunCompleted, crawl.RunFailed, crawl.RunCancelled} {
			if err := s.TryExec(t, insert, run.ID, refused); (err == nil) != (refused == terminal) {
				t.Errorf("%s, insert %s: %v", status, refused, err)
			}
		}
	}
	if none, err := r.EndedRuns(t.Context(), acme, nil); err != nil || len(none) != 0 {
		t.Errorf("ended runs of none: %v, error %v", none, err)
	}
}

func numbersPlainSQL(t *testing.T, s *suite) {
	r := s.runs(t)
	run := r.start(t).ID
	r.Exec(t, "INSERT INTO crawl_runs (app_package) VALUES ('p')")
	mine := uuid.MustParse(r.Value(t, "SELECT id FROM crawl_runs WHERE app_package = 'p'"))
	for id, want := range map[uuid.UUID]string{run: acme, mine: crawl.DefaultTenant} {
		for range 2 {
			r.Exec(t, "INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES (?1, 'A', '{}'), (?1, 'A', '{}')", id)
		}
		r.Exec(t, "INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES (?1, 'A', '{}')", id)
		for _, table := range []string{"crawl_events", "crawl_outbox"} {
			r.wants(t, "rows of another tenant in "+table, "0",
				"SELECT count(*) FROM "+table+" WHERE crawl_id = ?1 AND tenant_id <> ?2", id, want)
		}
		events, err := r.ListEvents(t.Context(), want, id, 0, 10)
		for i, e := range events {
			if e.Seq != int64(i+1) || e.ID == uuid.Nil || e.ID.Version() != 7 || time.Since(e.CreatedAt).Abs() > time.Hour {
				t.Errorf("event %d of %s: %+v", i+1, want, e)
			}
		}
		if err != nil || len(events) < 4 {
			t.Errorf("%d events of %s, error %v", len(events), want, err)
		}
	}
	if next := r.change(t, run, crawl.Change{Events: runEvents("B")}); next.First != 6 {
		t.Errorf("the next event: %+v", next)
	}
}

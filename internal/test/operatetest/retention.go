package operatetest

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/retention"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
)

func retentionTests() []behaviour {
	return []behaviour{
		{name: "only what was delivered long ago leaves its table", run: removesOldRows},
		{name: "an archived row is kept whole", run: archivesWhole},
		{name: "rows leave into files", run: archivesFiles},
		{name: "a row that a letter needs stays", run: keepsNeededRows},
		{name: "a row that is no longer due when it is to be removed stays", run: keepsWhatChanged},
		{name: "a row that the application refers to stays, and others leave", run: keepsReferencedRows},
		{name: "an event that is archived a second time is kept twice", run: archivesTwice},
		{name: "one keeper at a time works on a table", run: leasesMaintenance},
		{name: "replayed letters leave by their age", run: removesOldLetters},
		{name: "a table of another shape loses its old rows", run: cleansMapped},
	}
}

const (
	day  = 24 * time.Hour
	week = 7 * day
)

func keeper(t *testing.T, store retention.Store, table string, cfg retention.Config) *retention.Keeper {
	t.Helper()
	cfg.Table, cfg.OlderThan, cfg.Logger = table, week, slog.New(slog.DiscardHandler)
	k, err := retention.New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// aged fills a table with rows of every state, each once written and settled ten days ago and once
// now. A row written long ago and delivered now is among them. It returns the condition for what
// must go.
func (s *suite) aged(t *testing.T, table string, times int) (goes string) {
	t.Helper()
	long, now := time.Now().Add(-10*day), time.Now()
	row := func(state string, written, settled time.Time) {
		t.Helper()
		id := s.rows.Place(t, table, state, "k")
		var at any
		if slices.Contains([]string{"SENT", "published", "delivered"}, state) {
			at = settled
		}
		switch table {
		case "outbox_events":
			s.Exec(t, "UPDATE outbox_events SET status = ?1, created_at = ?2, processed_at = ?3 WHERE id = ?4", state, written,
				at, id.String())
		case "event_outbox":
			s.Exec(t, "UPDATE event_outbox SET status = ?1, published_at = ?2 WHERE event_id = ?3", state, at, id.String())
		case "crawl_outbox":
			s.Exec(t, "UPDATE crawl_outbox SET created_at = ?1, published_at = ?2 WHERE event_id = ?3", written, at, id.String())
		}
	}
	states := map[string][]string{"outbox_events": {"SENT", "NEW", "FAILED", "DEAD"},
		"event_outbox": {"published", "pending", "failed"}, "crawl_outbox": {"delivered", "waiting"}}[table]
	for range times {
		for _, state := range states {
			row(state, long, long)
		}
	}
	row(states[0], long, now)
	for _, state := range states {
		row(state, now, now)
	}
	return map[string]string{"outbox_events": "status = 'SENT' AND processed_at < ?1",
		"event_outbox": "status = 'published' AND published_at < ?1", "crawl_outbox": "published_at < ?1"}[table]
}

func removesOldRows(t *testing.T, s *suite) {
	s.rows.MakeRun(t)
	cut := time.Now().Add(-week)
	for _, layout := range tabletest.Layouts() {
		goes := s.aged(t, layout.Table, 25)
		due, all := s.rows.Count(t, layout.Table, goes, cut), s.rows.Count(t, layout.Table, "1 = 1")
		if due != 25 {
			t.Fatalf("%s: %d of %d rows are due: the mix proves nothing", layout.Table, due, all)
		}
		k := keeper(t, s.Retention(t, layout), layout.Table,
			retention.Config{Batch: 7, Archive: retention.Archive{None: true}})
		if counted, err := k.Count(t.Context(), nil); err != nil || counted.Rows != due || !counted.DryRun ||
			s.rows.Count(t, layout.Table, "1 = 1") != all {
			t.Errorf("%s: a dry run counted %+v, error %v, want %d rows, and all still there", layout.Table, counted, err, due)
		}
		if report, err := k.Purge(t.Context(), 0, nil); err != nil || report.Rows != due ||
			report.Action != retention.Deleted {
			t.Errorf("%s: got %+v, error %v, want %d rows", layout.Table, report, err, due)
		}
		if left := s.rows.Count(t, layout.Table, goes, cut); left != 0 || s.rows.Count(t, layout.Table, "1 = 1") != all-due {
			t.Errorf("%s: %d rows that are due are left, %d in all, want 0 and %d", layout.Table, left,
				s.rows.Count(t, layout.Table, "1 = 1"), all-due)
		}
	}
	if n := s.rows.Count(t, "outbox_archive", "1 = 1"); n != 0 {
		t.Errorf("%d rows were archived", n)
	}
}

func archivesWhole(t *testing.T, s *suite) {
	id := uuid.MustParse("01942530-7e00-7000-8000-000000000001") // of that day: a walk may go by it
	at := time.Date(2025, 1, 2, 3, 4, 5, 678901000, time.UTC)
	s.Exec(t, `INSERT INTO outbox_events (id, event_topic, occurred_at, aggregate_type, aggregate_id, tenant_id, source_bc, payload, metadata, status, created_at, processed_at, retry_count)
		VALUES (?1, 'order.placed', ?2, 'Order', 'a"b', 'acme', 'shop', '{"b": 1, "a": ["é\n\u2028", 1e-7, null]}', '{"trace_id": "t"}', 'SENT', ?3, ?4, 2)`, id.String(), at, at, at)
	s.rows.Place(t, "outbox_events", "stays", "k")
	var position int64
	if _, err := fmt.Sscan(s.Value(t, "SELECT position FROM outbox_events WHERE id = ?1", id.String()),
		&position); err != nil {
		t.Fatal(err)
	}
	// A run among others: it walks in the order in which rows grow old.
	s.Exec(t, "INSERT INTO outbox_maintenance (table_name, swept_at) VALUES ('outbox_events', ?1)", time.Now())
	k := keeper(t, s.Retention(t, outbox.OutboxEvents()), "outbox_events", retention.Config{Every: time.Millisecond})
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	done := make(chan error)
	go func() { done <- k.Run(ctx) }()
	for ctx.Err() == nil && s.rows.Count(t, "outbox_archive", "1 = 1") == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	var row struct {
		ID           string
		Position     int64
		EventTopic   string    `json:"event_topic"`
		OccurredAt   time.Time `json:"occurred_at"`
		AggregateID  string    `json:"aggregate_id"`
		TenantID     string    `json:"tenant_id"`
		Payload      json.RawMessage
		Metadata     json.RawMessage
		Status       string
		RetryCount   int       `json:"retry_count"`
		ProcessedAt  time.Time `json:"processed_at"`
		ErrorMessage *string   `json:"error_message"`
	}
	text := s.Value(t, "SELECT row FROM outbox_archive WHERE table_name = 'outbox_events' AND id = ?1", id.String())
	if err := json.Unmarshal([]byte(text), &row); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if row.ID != id.String() || row.Position != position || row.EventTopic != "order.placed" ||
		!row.OccurredAt.Equal(at) || row.AggregateID != `a"b` || row.TenantID != "acme" || row.Status != "SENT" ||
		row.RetryCount != 2 ||
		!row.ProcessedAt.Equal(at) || row.ErrorMessage != nil ||
		!tabletest.SameJSON(row.Payload, []byte(`{"a":["é\n\u2028",1e-7,null],"b":1}`)) ||
		!tabletest.SameJSON(row.Metadata, []byte(`{"trace_id":"t"}`)) {
		t.Errorf("archived as %s", text)
	}
	var columns map[string]any
	if err := json.Unmarshal([]byte(text), &columns); err != nil || len(columns) < 18 {
		t.Errorf("%d columns are archived, error %v, want all", len(columns), err)
	}
	if n := s.rows.Count(t, "outbox_archive", "archived_at > ?1 AND position = ?2", time.Now().Add(-time.Minute),
		position); n != 1 || s.rows.Count(t, "outbox_events", "1 = 1") != 1 {
		t.Errorf("%d rows archived now, %d left, want 1 and 1", n, s.rows.Count(t, "outbox_events", "1 = 1"))
	}
}

func archivesFiles(t *testing.T, s *suite) {
	s.rows.MakeRun(t)
	goes := s.aged(t, "crawl_outbox", 20)
	due := s.rows.Count(t, "crawl_outbox", goes, time.Now().Add(-week))
	dir := t.TempDir()
	k := keeper(t, s.Retention(t, outbox.CrawlOutbox()), "crawl_outbox",
		retention.Config{Batch: 3, FileRows: 8, Archive: retention.Archive{Dir: dir}})
	report, err := k.Purge(t.Context(), 0, nil)
	if err != nil || report.Rows != due || len(report.Files) < 2 || report.Action != retention.Archived {
		t.Errorf("got %+v, error %v, want %d rows in several files", report, err, due)
	}
	seen := map[string]bool{}
	for _, name := range report.Files {
		if filepath.Dir(name) != dir {
			t.Errorf("file %s is not in %s", name, dir)
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		zip, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(zip); lines.Scan(); {
			var line retention.Line
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Table != "crawl_outbox" ||
				!strings.Contains(string(line.Row), line.ID.String()) || !strings.Contains(string(line.Row), tabletest.CrawlRun) {
				t.Errorf("line %s, error %v", lines.Bytes(), err)
			}
			seen[line.ID.String()] = true
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if int64(len(seen)) != due {
		t.Errorf("files have %d rows, want %d", len(seen), due)
	}
}

// An event that arrived at one destination by a replay and has a letter for another stays until
// that letter is replayed or discarded. Only its row can be put back.
func keepsNeededRows(t *testing.T, s *suite) {
	u, d := s.rows.Bury(t, outbox.OutboxEvents()), s.letters(t)
	event := tabletest.NewID(t)
	s.Exec(t,
		`INSERT INTO outbox_events (id, event_topic, occurred_at, source_bc, payload, destination_topics) VALUES (?1, 't', ?2, 's', '1', '["a", "b"]')`, event.String(), time.Now())
	u.Settle(tabletest.DieAt("a", "b"))
	letters, err := d.Show(t.Context(), event, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range letters {
		if l.Destination == "a" {
			replay(t, d, deadletter.Selection{IDs: []uuid.UUID{l.ID}})
		}
	}
	u.Settle(tabletest.Arrive)
	s.Exec(t, "UPDATE outbox_events SET created_at = ?1, processed_at = ?2", time.Now().Add(-9*day),
		time.Now().Add(-8*day))
	k := keeper(t, s.Retention(t, outbox.OutboxEvents()), "outbox_events", retention.Config{})
	if report, err := k.Purge(t.Context(), 0, nil); err != nil || report.Rows != 0 {
		t.Errorf("got %+v, error %v while a letter is pending", report, err)
	}
	s.Exec(t, "UPDATE job_dlq SET discarded_at = ?1 WHERE destination = 'b'", time.Now())
	if report, err := k.Purge(t.Context(), 0, nil); err != nil || report.Rows != 1 {
		t.Errorf("got %+v, error %v after the letter was discarded, want the row", report, err)
	}
}

// due leases a table's maintenance and finds what may be removed from it.
func (s *suite) due(t *testing.T, layout outbox.Layout) (store retention.Store, removal retention.Removal) {
	t.Helper()
	store, removal = s.Retention(t, layout), retention.Removal{Owner: tabletest.NewID(t), OlderThan: week, Archive: true}
	if l, err := store.Lease(t.Context(), retention.LeaseRequest{Owner: removal.Owner, TTL: time.Minute}); err != nil ||
		!l.Held {
		t.Fatalf("got %+v, error %v", l, err)
	}
	if _, err := store.Find(t.Context(), retention.Search{Sweep: true, OlderThan: week, Limit: 100},
		func(r retention.Row) error {
			removal.Rows = append(removal.Rows, r)
			return nil
		}); err != nil {
		t.Fatal(err)
	}
	return store, removal
}

// Between the search for rows and their removal may lie the writing of a file, and an operator's
// work.
func keepsWhatChanged(t *testing.T, s *suite) {
	long := time.Now().Add(-10 * day)
	goes, young, again := s.rows.Place(t, "outbox_events", "goes", "k"), s.rows.Place(t, "outbox_events", "young", "k"),
		s.rows.Place(t, "outbox_events", "again", "k")
	s.Exec(t, "UPDATE outbox_events SET status = 'SENT', created_at = ?1, processed_at = ?1", long)
	store, removal := s.due(t, outbox.OutboxEvents())
	if len(removal.Rows) != 3 {
		t.Fatalf("found %d rows, want 3", len(removal.Rows))
	}
	s.Exec(t, "UPDATE outbox_events SET processed_at = ?1 WHERE id = ?2", time.Now(), young.String())
	s.Exec(t, "UPDATE outbox_events SET status = 'NEW', processed_at = NULL WHERE id = ?1", again.String())
	if n, err := store.Remove(t.Context(), removal); n.Rows != 1 || err != nil {
		t.Errorf("removed %+v, error %v, want 1", n, err)
	}
	if n := s.rows.Count(t, "outbox_events", "id IN (?1, ?2)", young.String(), again.String()); n != 2 ||
		s.rows.Count(t, "outbox_archive", "id = ?1", goes.String()) != 1 || s.rows.Count(t, "outbox_archive", "1 = 1") != 1 {
		t.Errorf("%d of the 2 rows that changed are left, %d archived, want the one that did not", n,
			s.rows.Count(t, "outbox_archive", "1 = 1"))
	}
}

// Foreign keys of the application, checked at once or at the commit, and its triggers keep rows in
// the table. The other rows of the batch leave, and the report counts and names what stays. A walk
// tries such a row once, and a sweep tries it again.
func keepsReferencedRows(t *testing.T, s *suite) {
	for name, deferred := range map[string]string{"at once": "", "at the commit": "DEFERRABLE INITIALLY DEFERRED"} {
		var ids []string
		for range 6 {
			ids = append(ids, s.rows.Place(t, "outbox_events", "x", "k").String())
		}
		s.Exec(t, "UPDATE outbox_events SET status = 'SENT', created_at = ?1, processed_at = ?1", time.Now().Add(-10*day))
		s.Exec(t, "CREATE TABLE mail_log (event uuid REFERENCES outbox_events (id) "+deferred+")")
		s.Exec(t, "INSERT INTO mail_log VALUES (?1)", ids[2])
		store := s.Retention(t, outbox.OutboxEvents())
		k := keeper(t, store, "outbox_events", retention.Config{Archive: retention.Archive{None: true}})
		report, err := k.Purge(t.Context(), 0, nil)
		if err != nil || report.Rows != 5 || report.Refused != 1 ||
			!strings.Contains(strings.ToLower(report.Refusal), "foreign key constraint") {
			t.Errorf("%s: got %+v, error %v, want 5 rows removed and 1 refused", name, report, err)
		}
		search := retention.Search{OlderThan: week, Limit: 10}
		for sweep, want := range map[bool]int{false: 0, true: 1} {
			search.Sweep = sweep
			found := 0
			if _, err := store.Find(t.Context(), search, func(retention.Row) error { found++; return nil }); err != nil ||
				found != want {
				t.Errorf("%s: found %d rows with sweep %v, error %v, want %d", name, found, sweep, err, want)
			}
		}
		s.Exec(t, "DROP TABLE mail_log")
		if report, err := k.Purge(t.Context(), 0, nil); err != nil || report.Rows != 1 || report.Refused != 0 {
			t.Errorf("%s: got %+v, error %v once nothing refers to the row, want 1", name, report, err)
		}
	}
}

// An id may be written again when its row has gone, and at the same position. An archived row is
// put back by hand, or the table gives its last position out again.
func archivesTwice(t *testing.T, s *suite) {
	id := tabletest.NewID(t)
	for _, payload := range []string{`"first"`, `"second"`} {
		s.Exec(t,
			`INSERT INTO outbox_events (position, id, event_topic, occurred_at, source_bc, payload, status, processed_at) VALUES (1, ?1, 't', ?2, 's', ?3, 'SENT', ?2)`, id.String(), time.Now().Add(-10*day), payload)
		store, removal := s.due(t, outbox.OutboxEvents())
		if n, err := store.Remove(t.Context(), removal); n.Rows != 1 || err != nil {
			t.Fatalf("removed %+v, error %v, want 1", n, err)
		}
		if err := store.Release(t.Context(), removal.Owner, retention.Done{Rows: 1}); err != nil {
			t.Fatal(err)
		}
		if n := s.rows.Count(t, "outbox_archive", "id = ?1 AND position = 1 AND CAST(row AS TEXT) LIKE ?2", id.String(),
			"%"+payload+"%"); n != 1 {
			t.Errorf("%d rows with %s are archived", n, payload)
		}
	}
	if n := s.rows.Count(t, "outbox_archive", "1 = 1"); n != 2 {
		t.Errorf("%d rows are archived, want both", n)
	}
}

func leasesMaintenance(t *testing.T, s *suite) {
	s.aged(t, "outbox_events", 10)
	dead, next := s.Retention(t, outbox.OutboxEvents()), s.Retention(t, outbox.OutboxEvents())
	owner, successor := tabletest.NewID(t), tabletest.NewID(t)
	lease := func(store retention.Store, request retention.LeaseRequest) retention.Lease {
		t.Helper()
		l, err := store.Lease(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if l := lease(dead, retention.LeaseRequest{Owner: owner, TTL: time.Minute}); !l.Held || l.SinceSweep < 365*day {
		t.Fatalf("got %+v, want it held, and never swept", l)
	}
	var found []retention.Row
	if _, err := dead.Find(t.Context(), retention.Search{Sweep: true, OlderThan: week, Limit: 10},
		func(r retention.Row) error {
			found = append(found, r)
			return nil
		}); err != nil || len(found) != 10 {
		t.Fatalf("found %d rows, error %v", len(found), err)
	}
	removal := retention.Removal{Owner: owner, OlderThan: week, Rows: found[:5]}
	if n, err := dead.Remove(t.Context(), removal); n.Rows != 5 || err != nil {
		t.Fatalf("removed %+v, error %v, want 5", n, err)
	}
	if n, err := dead.Remove(t.Context(), removal); n.Rows != 0 || err != nil {
		t.Errorf("removed %+v again, error %v", n, err)
	}
	if l := lease(next, retention.LeaseRequest{Owner: successor, TTL: time.Minute}); l.Held {
		t.Fatalf("got %+v while another holds it", l)
	}
	if _, err := keeper(t, next, "outbox_events", retention.Config{}).Purge(t.Context(), 0, nil); !errors.Is(err,
		retention.ErrBusy) {
		t.Fatalf("got error %v, want ErrBusy", err)
	}
	s.Exec(t, "UPDATE outbox_maintenance SET expires_at = ?1", time.Now().Add(-time.Second))
	removal.Rows = found[5:]
	if n, err := dead.Remove(t.Context(), removal); n.Rows != 0 || err != nil {
		t.Errorf("one whose lease has lapsed removed %+v, error %v", n, err)
	}
	if l := lease(next, retention.LeaseRequest{Owner: successor, TTL: time.Minute}); !l.Held {
		t.Fatal("a lapsed lease is not taken over")
	}
	if n, err := dead.Remove(t.Context(), removal); n.Rows != 0 || err != nil {
		t.Errorf("a zombie removed %d, error %v", n, err)
	}
	if l := lease(dead, retention.LeaseRequest{Owner: owner, TTL: time.Minute}); l.Held {
		t.Errorf("a zombie renewed: %+v", l)
	}
	if err := next.Release(t.Context(), successor, retention.Done{Rows: 7, Swept: true}); err != nil {
		t.Fatal(err)
	}
	if l := lease(dead, retention.LeaseRequest{Owner: owner, TTL: time.Minute, Least: time.Minute}); l.Held {
		t.Errorf("a run directly after another was granted: %+v", l)
	}
	if l := lease(dead, retention.LeaseRequest{Owner: owner, TTL: time.Minute}); !l.Held || l.SinceSweep > time.Minute {
		t.Errorf("got %+v, want it held, just swept", l)
	}
	if n := s.Value(t, "SELECT rows FROM outbox_maintenance WHERE table_name = 'outbox_events'"); n != "7" {
		t.Errorf("the record has %s rows, want 7", n)
	}
}

func removesOldLetters(t *testing.T, s *suite) {
	for _, age := range []time.Duration{day, 8 * day, 9 * day} {
		at := time.Now().Add(-age)
		for _, l := range []struct {
			kind                string
			replayed, discarded any
		}{{"pending", nil, nil}, {"replayed", at, nil}, {"discarded", nil, at}} {
			s.Exec(t, `INSERT INTO job_dlq (id, source, original_job_id, app_id, type, payload, error_reason, attempts, error_history, replayed_at, discarded_at)
				VALUES (?1, 'job', ?2, (SELECT id FROM apps WHERE namespace = 'default'), ?3, '{}', 'Panic', 1, '[]', ?4, ?5)`,
				tabletest.NewID(t).String(), tabletest.NewID(t).String(), l.kind, l.replayed, l.discarded)
		}
	}
	store := s.LetterRetention(t)
	// By the order in which they grow old, as by the order in which they are stored.
	for _, sweep := range []bool{false, true} {
		var ids []string
		for search, more := (retention.Search{Sweep: sweep, OlderThan: week, Limit: 1, Content: true}),
			true; more; more = search.After != "" {
			var err error
			if search.After, err = store.Find(t.Context(), search, func(r retention.Row) error {
				if !strings.Contains(string(r.Content), `"replayed"`) {
					t.Errorf("found %s", r.Content)
				}
				ids = append(ids, r.ID.String())
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if len(ids) != 2 || ids[0] == ids[1] {
			t.Errorf("sweep %t: found %v, want two letters", sweep, ids)
		}
	}
	report, err := keeper(t, store, "job_dlq", retention.Config{}).Purge(t.Context(), 0, nil)
	if err != nil || report.Rows != 2 || report.Action != retention.Archived {
		t.Errorf("got %+v, error %v, want two letters", report, err)
	}
	if n, kept := s.rows.Count(t, "job_dlq", "1 = 1"),
		s.rows.Count(t, "outbox_archive", "table_name = 'job_dlq'"); n != 7 || kept != 2 {
		t.Errorf("%d letters are left, %d archived, want 7 and 2", n, kept)
	}
}

func cleansMapped(t *testing.T, s *suite) {
	layout := s.Mapped(t)
	var old []uuid.UUID
	for range 12 {
		old = append(old, s.rows.PlaceLegacy(t, "old", "k"))
	}
	s.Exec(t, "UPDATE legacy SET done_at = ?1", time.Now().Add(-10*day))
	for range 3 {
		s.rows.PlaceLegacy(t, "waits", "k")
	}
	s.Exec(t, "UPDATE legacy SET done_at = ?1 WHERE n = (SELECT max(n) FROM legacy)", time.Now())
	k := keeper(t, s.Retention(t, layout), "legacy", retention.Config{Batch: 5})
	if report, err := k.Purge(t.Context(), 0, nil); err != nil || report.Rows != 12 {
		t.Errorf("got %+v, error %v, want 12 rows", report, err)
	}
	if n := s.rows.Count(t, "legacy", "1 = 1"); n != 3 {
		t.Errorf("%d rows are left, want the three that wait or came now", n)
	}
	var row struct {
		UID     uuid.UUID
		Body    json.RawMessage
		Version int
	}
	text := s.Value(t, "SELECT row FROM outbox_archive WHERE id = ?1", old[0].String())
	if err := json.Unmarshal([]byte(text), &row); err != nil || row.UID != old[0] || row.Version != 4 ||
		!tabletest.SameJSON(row.Body, []byte(`{"a":[2],"b":1}`)) {
		t.Errorf("archived as %s, error %v", text, err)
	}
}

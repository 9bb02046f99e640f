package postgres

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

func job(kind string) deadletter.Job {
	return deadletter.Job{ID: uuid.New(), Type: kind, Payload: json.RawMessage(`{"to": "x"}`),
		Reason: deadletter.JobMaxRetries, Attempts: 3,
		Errors: []deadletter.Failure{{Error: "first", Timestamp: time.Now()}, {Error: "bad\x00 last", Timestamp: time.Now()}}}
}

func TestRecordJobs(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	for _, reason := range []outbox.Reason{deadletter.JobMaxRetries, deadletter.JobValidation,
		outbox.ReasonHandlerMissing, deadletter.JobRunnerUnavailable, deadletter.JobTimeout, deadletter.JobPanic} {
		j := job("mail")
		j.Reason = reason
		if _, err := deadletter.Add(t.Context(), NewJobLetters(pool), j); err != nil {
			t.Errorf("%s: %v", reason, err)
		}
	}
	for says, change := range map[string]func(*deadletter.Job){
		`Reason is "DeliveryFailed", must be one of [MaxRetries`: func(j *deadletter.Job) { j.Reason = "DeliveryFailed" },
		`for source "event"`:  func(j *deadletter.Job) { j.Source = deadletter.SourceEvent },
		`Source is "batch"`:   func(j *deadletter.Job) { j.Source = "batch" },
		"ID is required":      func(j *deadletter.Job) { j.ID = uuid.Nil },
		"Type is required":    func(j *deadletter.Job) { j.Type = "" },
		"Attempts is 0":       func(j *deadletter.Job) { j.Attempts = 0 },
		"Errors is empty":     func(j *deadletter.Job) { j.Errors = nil },
		"Payload is required": func(j *deadletter.Job) { j.Payload = nil },
		"Payload is not":      func(j *deadletter.Job) { j.Payload = json.RawMessage("{") },
		"TenantID has 65":     func(j *deadletter.Job) { j.Tenant = strings.Repeat("x", 65) },
	} {
		j := job("mail")
		change(&j)
		if _, err := deadletter.Add(t.Context(), NewJobLetters(pool), j); !errors.Is(err, deadletter.ErrInvalidJob) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want ErrInvalidJob that says %q", err, says)
		}
	}
	// In the caller's transaction, and again when its runner did not learn that it was recorded.
	j := job("mail")
	j.Tenant, j.UserID, j.RequestID = "acme", uuid.New(), uuid.New()
	rolledBack := errors.New("rolled back")
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := deadletter.Add(t.Context(), NewJobLetters(tx), j); err != nil {
			return err
		}
		return rolledBack
	})
	if !errors.Is(err, rolledBack) {
		t.Fatal(err)
	}
	first, err := deadletter.Add(t.Context(), NewJobLetters(pool), j)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := deadletter.Add(t.Context(), NewJobLetters(pool), j); err != nil || second != first {
		t.Errorf("recorded again: letter %s, error %v, want %s", second, err, first)
	}
	shown, err := openLetters(t, pool).Show(t.Context(), j.ID, "")
	if err != nil || len(shown) != 1 {
		t.Fatalf("%d letters, error %v", len(shown), err)
	}
	l := shown[0]
	if l.ID != first || l.Source != deadletter.SourceJob || l.Tenant != "acme" || *l.UserID != j.UserID ||
		*l.RequestID != j.RequestID || l.Reason != "MaxRetries" || l.Attempts != 3 ||
		l.LastError != "bad last" || string(l.Payload) != `{"to": "x"}` || l.Position != nil {
		t.Errorf("got %+v", l)
	}
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	u := burying(t, pool, outbox.OutboxEvents())
	writeOrders(t, pool, 2, "a", "b")
	u.settle(dieAt("t"))
	d := openLetters(t, pool)
	a := deadletter.Selection{Filter: deadletter.Filter{Key: "a"}}
	for _, reason := range []string{"", " \n"} {
		if n, err := deadletter.Discard(t.Context(), d, a, deadletter.Operator{Actor: "me", Reason: reason}); !errors.Is(err,
			deadletter.ErrNoReason) || n != 0 {
			t.Errorf("reason %q: discarded %d, error %v", reason, n, err)
		}
	}
	if n, err := deadletter.Discard(t.Context(), d, a, operator); err != nil || n != 2 {
		t.Fatalf("discarded %d, error %v", n, err)
	}
	if n, err := deadletter.Discard(t.Context(), d, a, operator); err != nil || n != 0 {
		t.Errorf("discarded %d again, error %v", n, err)
	}
	if sum := replay(t, d, deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}}); sum.Letters != 2 ||
		sum.Skipped != 0 {
		t.Errorf("replayed %+v, want the two that are not discarded", sum)
	}
	discarded, _, err := d.List(t.Context(), deadletter.Filter{State: deadletter.StateDiscarded})
	if err != nil || len(discarded) != 2 || discarded[0].DiscardReason != "because" || discarded[0].DiscardedAt == nil {
		t.Fatalf("got %+v, error %v", discarded, err)
	}
	o := choose(discarded[0].ID)
	if sum := replay(t, d, o); sum.Letters != 0 || !strings.Contains(whys(sum), "--discarded") {
		t.Errorf("without --discarded: %+v", sum)
	}
	o.Selection.Discarded = true
	if sum := replay(t, d, o); sum.Letters != 1 {
		t.Errorf("with --discarded: %+v", sum)
	}
	if _, err := deadletter.Replay(t.Context(), d,
		deadletter.ReplayOptions{Selection: deadletter.Selection{Discarded: true}}); !errors.Is(err, deadletter.ErrFilter) {
		t.Errorf("all that were discarded: got %v, want deadletter.ErrFilter", err)
	}
	actions, next, err := d.Actions(t.Context(), deadletter.ActionFilter{Limit: 1})
	if err != nil || len(actions) != 1 || actions[0].Action != "replay" || actions[0].Letters != 1 ||
		actions[0].Actor != "test@here" || !strings.Contains(string(actions[0].Filter), discarded[0].ID.String()) {
		t.Fatalf("last action %+v, error %v", actions, err)
	}
	actions, _, err = d.Actions(t.Context(), deadletter.ActionFilter{After: next})
	if err != nil || len(actions) != 2 || actions[1].Action != "discard" || actions[1].Letters != 2 ||
		*actions[1].Reason != "because" || string(actions[1].Filter) != `{"key": "a"}` {
		t.Errorf("actions before %+v, error %v", actions, err)
	}
	if actions, _, err = d.Actions(t.Context(),
		deadletter.ActionFilter{Action: "discard", Actor: "test@here", Since: time.Now().Add(-time.Hour),
			Until: time.Now().Add(time.Hour)}); err != nil || len(actions) != 1 {
		t.Errorf("discards: %+v, error %v", actions, err)
	}
}

func TestPurgeLetters(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	exec(t, pool, `INSERT INTO apps (name, namespace) VALUES ('Acme', 'acme')`)
	exec(t, pool, `INSERT INTO job_dlq (original_job_id, app_id, type, payload, error_reason, attempts, error_history, replayed_at, discarded_at)
		SELECT gen_random_uuid(), a.id, state, '{}', 'Panic', 1, '[]', CASE WHEN state IN ('replayed', 'both') THEN now() - age * interval '1 day' END,
		       CASE WHEN state IN ('discarded', 'both') THEN now() - interval '100 days' END
		  FROM apps a, unnest(ARRAY['pending', 'replayed', 'discarded', 'both']) state, unnest(ARRAY[1, 29, 31]) age`)
	exec(t, pool, `INSERT INTO job_dlq (original_job_id, app_id, type, payload, error_reason, attempts, error_history, replayed_at)
		SELECT gen_random_uuid(), id, 'many', '{}', 'Panic', 1, '[]', now() - interval '50 days' FROM apps, generate_series(1, 2500) WHERE namespace = 'acme'`)
	d := openLetters(t, pool)
	for _, c := range []struct {
		purge deadletter.Purge
		want  int
	}{
		{deadletter.Purge{OlderThan: 30 * 24 * time.Hour, Tenant: "default"}, 2},
		{deadletter.Purge{OlderThan: 30 * 24 * time.Hour}, 2502},
		{deadletter.Purge{OlderThan: 30 * 24 * time.Hour}, 0},
		{deadletter.Purge{OlderThan: 30 * 24 * time.Hour, Discarded: true}, 6},
		{deadletter.Purge{OlderThan: 0, Discarded: true}, 8},
	} {
		if n, err := d.Purgeable(t.Context(), c.purge); err != nil || n != c.want {
			t.Errorf("%+v: would delete %d, error %v, want %d", c.purge, n, err, c.want)
		}
		if n, err := c.purge.Run(t.Context(), d, operator); err != nil || n != c.want {
			t.Errorf("%+v: deleted %d, error %v, want %d", c.purge, n, err, c.want)
		}
	}
	if n := query[int](t, pool, `SELECT count(*) FROM job_dlq WHERE type = 'pending'`); n != 6 {
		t.Errorf("%d pending letters are left, want 6", n)
	}
	if n := query[int](t, pool, `SELECT sum(letters) FROM outbox_audit WHERE action = 'purge'`); n != 2+2502+6+8 {
		t.Errorf("the record has %d letters", n)
	}
	if n := query[int](t, pool, `SELECT max(letters) FROM outbox_audit`); n != 1000 {
		t.Errorf("a batch had %d letters, want at most 1000", n)
	}
}

// All of an operator's work, as outbox_operator and nothing else.
func TestOperatorRole(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	if err := migrations.ApplyRoles(t.Context(), pool.Config().ConnString()); err != nil {
		t.Fatal(err)
	}
	events, bus, crawl := burying(t, pool, outbox.OutboxEvents()), burying(t, pool, outbox.EventOutbox()),
		burying(t, pool, outbox.CrawlOutbox())
	writeOrders(t, pool, 3, "a")
	exec(t, pool,
		`INSERT INTO event_outbox (app_id, event_id, event_type, payload) SELECT id, outbox_uuidv7(), 't', '1' FROM apps`)
	exec(t, pool, `INSERT INTO crawl_runs (id, app_package) VALUES ('00000000-0000-0000-0000-000000000001', 'shop')`)
	exec(t, pool,
		`INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES ('00000000-0000-0000-0000-000000000001', 'NODE', '1')`)
	for _, u := range []undertaker{events, bus, crawl} {
		u.settle(dieAt("t"))
	}
	cfg := pool.Config()
	cfg.ConnConfig.RuntimeParams["role"] = "outbox_operator"
	own, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	d := openLetters(t, own)
	if _, err := d.Preview(t.Context(), deadletter.Selection{}, time.Minute); err != nil {
		t.Error(err)
	}
	if n, err := deadletter.Discard(t.Context(), d,
		deadletter.Selection{IDs: []uuid.UUID{query[uuid.UUID](t, pool,
			`SELECT id FROM job_dlq WHERE event_key = 'a' LIMIT 1`)}}, operator); err != nil || n != 1 {
		t.Errorf("discarded %d, error %v", n, err)
	}
	one := choose(query[uuid.UUID](t, pool,
		`SELECT id FROM job_dlq WHERE event_key = 'a' AND discarded_at IS NULL LIMIT 1`))
	one.Payload = json.RawMessage(`2`)
	if sum := replay(t, d, one); sum.Letters != 1 {
		t.Errorf("with a payload: %+v", sum)
	}
	if sum := replay(t, d, deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}}); sum.Letters != 3 ||
		sum.Skipped != 0 || len(sum.Tables) != 3 {
		t.Errorf("replayed %+v", sum)
	}
	if _, err := d.Stats(t.Context(), deadletter.Filter{}); err != nil {
		t.Error(err)
	}
	if n, err := (deadletter.Purge{}).Run(t.Context(), d, operator); err != nil || n != 4 {
		t.Errorf("purged %d, error %v", n, err)
	}
	if actions, _, err := d.Actions(t.Context(), deadletter.ActionFilter{}); err != nil || len(actions) != 4 {
		t.Errorf("actions %+v, error %v", actions, err)
	}
	// What was replayed is undelivered again, and dies again.
	for _, u := range []undertaker{events, bus, crawl} {
		if died := u.settle(dieAt("t")); len(died) == 0 {
			t.Errorf("nothing of %s is undelivered", u.layout.Table)
		}
	}
	exec(t, pool, `DELETE FROM job_dlq`)
	exec(t, pool, `UPDATE outbox_events SET tenant_id = 'newcomer'`)
	if n, err := deadletter.Collect(t.Context(), d, "outbox_events", operator); err != nil || n != 3 {
		t.Errorf("collected %d, error %v, want the three rows without a letter", n, err)
	}
	for _, sql := range []string{`UPDATE outbox_audit SET actor = 'x'`, `DELETE FROM outbox_audit`,
		`DELETE FROM outbox_events`, `UPDATE job_dlq SET payload = '1'`,
		`INSERT INTO event_outbox (event_type) VALUES ('t')`} {
		if _, err := own.Exec(t.Context(), sql); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("%s: got %v, want it refused", sql, err)
		}
	}
}

// A consumer keeps letters of the events that it gives up, with the reasons of events and with no
// other.
func TestRecordEvents(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	given := job("order.placed")
	given.Source = deadletter.SourceEvent
	for source, reasons := range map[deadletter.Source]map[outbox.Reason]bool{
		deadletter.SourceEvent: {outbox.ReasonDeliveryFailed: true, outbox.ReasonDeserializationFailed: true,
			outbox.ReasonDuplicateEvent: true,
			outbox.ReasonHandlerMissing: true, outbox.ReasonHandlerTimeout: true, deadletter.JobTimeout: false,
			deadletter.JobMaxRetries: false},
		deadletter.SourceJob: {outbox.ReasonHandlerMissing: true, outbox.ReasonHandlerTimeout: false,
			outbox.ReasonDuplicateEvent: false},
	} {
		for reason, may := range reasons {
			j := given
			j.ID, j.Source, j.Reason = uuid.New(), source, reason
			_, err := deadletter.Add(t.Context(), NewJobLetters(pool), j)
			var refused *deadletter.ReasonError
			if (err == nil) != may || (err != nil) != errors.As(err, &refused) || refused != nil &&
				(refused.Reason != reason || refused.Source != source || !errors.Is(err, deadletter.ErrInvalidJob)) {
				t.Errorf("%s %s: %v, want allowed %t", source, reason, err, may)
			}
		}
	}
	given.Reason = outbox.ReasonHandlerTimeout
	first, err := deadletter.Add(t.Context(), NewJobLetters(pool), given)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := deadletter.Add(t.Context(), NewJobLetters(pool), given); err != nil || again != first {
		t.Errorf("recorded again: %s, %v, want %s", again, err, first)
	}
	same := given // a job of the same id is another matter
	same.Source, same.Reason = "", deadletter.JobTimeout
	if other, err := deadletter.Add(t.Context(), NewJobLetters(pool), same); err != nil || other == first {
		t.Errorf("the letter of a job with the id: %s, %v", other, err)
	}
	d := openLetters(t, pool)
	shown, err := d.Show(t.Context(), given.ID, "")
	if err != nil || len(shown) != 2 {
		t.Fatalf("%d letters (%v), want 2", len(shown), err)
	}
	for _, l := range shown {
		if l.ID == first && (l.Source != deadletter.SourceEvent || l.Reason != "HandlerTimeout" || l.Type != "order.placed" ||
			l.Attempts != 3 || l.LastError != "bad last") {
			t.Errorf("letter %+v", l)
		}
	}
	page, err := d.ReplayPage(t.Context(),
		deadletter.ReplayRequest{Selection: deadletter.Selection{IDs: []uuid.UUID{first}},
			Operator: deadletter.Operator{Actor: "test"}, Limit: 10})
	if err != nil || len(page.Skipped) != 1 || !strings.Contains(page.Skipped[0].Why, "a consumer recorded it") {
		t.Errorf("replayed: %+v, %v", page, err)
	}
}

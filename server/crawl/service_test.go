package crawl

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

func newService(m *memory) *Service {
	return NewService(m, ServiceConfig{Crawlers: []string{"script:checkout", "demo", "demo"}})
}

// fields are the fields that an error refuses, in its order.
func fields(t *testing.T, err error) (names []string) {
	t.Helper()
	problems := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		problems = joined.Unwrap()
	}
	for _, e := range problems {
		field, ok := errors.AsType[*FieldError](e)
		if !ok || !errors.Is(e, ErrInvalid) {
			t.Fatalf("%v is no *FieldError", e)
		}
		names = append(names, field.Field)
	}
	return names
}

func TestCreateFillsIn(t *testing.T) {
	t.Parallel()
	s := newService(&memory{})
	r, created, err := s.Create(t.Context(), "acme",
		NewRun{AppPackage: "com.example", DeviceConfig: json.RawMessage(" null"), IdempotencyKey: "k"})
	if err != nil || !created || r.Status != Pending || r.Tenant != "acme" || r.MaxSteps != 100 || r.Crawler != External ||
		r.DeviceConfig != nil {
		t.Errorf("created %v: %+v, error %v", created, r, err)
	}
	again, created, err := s.Create(t.Context(), "acme", NewRun{AppPackage: "com.example", IdempotencyKey: "k"})
	if err != nil || created || again.ID != r.ID {
		t.Errorf("again, created %v: %+v, error %v", created, again, err)
	}
	if want := []string{External, "demo", "script:checkout"}; !slices.Equal(s.Crawlers(), want) {
		t.Errorf("the crawlers are %v, want %v", s.Crawlers(), want)
	}
}

func TestCreateRefuses(t *testing.T) {
	t.Parallel()
	m := &memory{}
	s := newService(m)
	good := NewRun{AppPackage: "com.example", Crawler: "demo", MaxSteps: 100_000, Goal: strings.Repeat("é", MaxGoal),
		DeviceConfig: json.RawMessage(` {"os": "android"}`)}
	for _, c := range []struct {
		name   string
		change func(*NewRun)
		want   string // the whole error
	}{
		{"good", func(*NewRun) {}, ""},
		{"no app", func(n *NewRun) { n.AppPackage = "" }, "appPackage is required"},
		{"long app", func(n *NewRun) { n.AppPackage = strings.Repeat("é", 256) },
			"appPackage has 256 characters, the limit is 255"},
		{"NUL", func(n *NewRun) { n.AppPackage = "a\x00" }, "appPackage contains NUL, which PostgreSQL text cannot hold"},
		{"no UTF-8", func(n *NewRun) { n.Goal = "\xff" }, "goal is not valid UTF-8"},
		{"long goal", func(n *NewRun) { n.Goal += "é" }, "goal has 10001 characters, the limit is 10000"},
		{"negative steps", func(n *NewRun) { n.MaxSteps = -1 }, "maxSteps is -1, must be between 1 and 100000"},
		{"too many steps", func(n *NewRun) { n.MaxSteps++ }, "maxSteps is 100001, must be between 1 and 100000"},
		{"list", func(n *NewRun) { n.DeviceConfig = json.RawMessage(`[{}]`) }, "deviceConfig is not a JSON object"},
		{"no JSON", func(n *NewRun) { n.DeviceConfig = json.RawMessage(`{`) }, "deviceConfig is not valid JSON"},
		{"empty JSON", func(n *NewRun) { n.DeviceConfig = json.RawMessage{} }, ""},
		{"long JSON", func(n *NewRun) {
			n.DeviceConfig = json.RawMessage(`{"a":"` + strings.Repeat("x", MaxDeviceConfig) + `"}`)
		}, "deviceConfig has 16392 bytes, the limit is 16384"},
		{"JSON that jsonb makes long", func(n *NewRun) { n.DeviceConfig = json.RawMessage(`{"a":1e20000}`) },
			"deviceConfig has 13 bytes, and numbers that jsonb spells out to over 16371 digits more: too many (at byte 5)"},
		{"jsonb", func(n *NewRun) { n.DeviceConfig = json.RawMessage(`{"a": "\ud800"}`) },
			"deviceConfig contains a lone surrogate, which jsonb refuses (at byte 12)"},
		{"long key", func(n *NewRun) { n.IdempotencyKey = strings.Repeat("k", 256) },
			"idempotencyKey has 256 characters, the limit is 255"},
		{"crawler", func(n *NewRun) { n.Crawler = "robot" },
			`crawler "robot" is unknown: choose one of external, demo, script:checkout`},
		{"all at once", func(n *NewRun) { *n = NewRun{MaxSteps: -1, Crawler: "x", Goal: "\x00"} },
			"appPackage is required\ngoal contains NUL, which PostgreSQL text cannot hold\nmaxSteps is -1, must be between 1 " +
				"and 100000\ncrawler \"x\" is unknown: choose one of external, demo, script:checkout"},
	} {
		n := good
		c.change(&n)
		before := len(m.runs)
		_, _, err := s.Create(t.Context(), DefaultTenant, n)
		switch {
		case c.want == "":
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		case err == nil || err.Error() != c.want:
			t.Errorf("%s: got %v\nwant %s", c.name, err, c.want)
		case len(m.runs) != before || !errors.Is(err, ErrInvalid):
			t.Errorf("%s: refused with %v, and the store has %d runs", c.name, err, len(m.runs))
		}
	}
	if _, _, err := s.Create(t.Context(), strings.Repeat("t", 65), good); fmt.Sprint(fields(t, err)) != "[tenant]" {
		t.Errorf("a tenant that no column holds: %v", err)
	}
	unlimited := NewService(m, ServiceConfig{MaxMaxSteps: -1})
	if _, _, err := unlimited.Create(t.Context(), DefaultTenant,
		NewRun{AppPackage: "a", MaxSteps: 1<<31 - 1}); err != nil {
		t.Errorf("without a limit: %v", err)
	}
}

// Every change from every status: what becomes of the run, and what is appended.
func TestStateMachine(t *testing.T) {
	t.Parallel()
	const refused = "refused"
	changes := []struct {
		name string
		do   func(*Service, Run) (Run, error)
		want [5]string // by Statuses: the event that is appended, "" for none, or refused
		to   Status
	}{
		{"start", func(s *Service, r Run) (Run, error) { return s.Start(t.Context(), r.Tenant, r.ID) },
			[5]string{RunStarted, "", refused, refused, refused}, Running},
		{"complete", func(s *Service, r Run) (Run, error) { return s.Complete(t.Context(), r.Tenant, r.ID) },
			[5]string{refused, RunCompleted, "", refused, refused}, Completed},
		{"fail", func(s *Service, r Run) (Run, error) { return s.Fail(t.Context(), r.Tenant, r.ID, "it broke") },
			[5]string{refused, RunFailed, refused, "", refused}, Failed},
		{"cancel", func(s *Service, r Run) (Run, error) { return s.Cancel(t.Context(), r.Tenant, r.ID) },
			[5]string{RunCancelled, RunCancelled, refused, refused, ""}, Cancelled},
		{"append", func(s *Service, r Run) (Run, error) {
			c, err := s.Append(t.Context(), r.Tenant, r.ID, NewEvent{Type: Processing})
			return c.Run, err
		}, [5]string{refused, Processing, refused, refused, refused}, Running},
	}
	payloads := map[string]string{
		RunStarted: `{"appPackage":"com.example","maxSteps":100,"crawler":"external"}`, RunCompleted: `{"reason":"finished"}`,
		RunFailed:    `{"error":"it broke"}`,
		RunCancelled: `{"reason":"requested"}`, Processing: `{}`,
	}
	for _, c := range changes {
		for i, from := range Statuses {
			m := &memory{}
			run := m.has(t, External, func(r *stored) { r.Status = from })
			got, err := c.do(newService(m), run)
			after := m.get(run)
			state, isState := errors.AsType[*StateError](err)
			switch want := c.want[i]; {
			case want == refused:
				if !isState || state.Status != from || after.Status != from || len(after.events) != 0 {
					t.Errorf("%s of %s: error %v, left %s with %d events", c.name, from, err, after.Status, len(after.events))
				}
			case err != nil || got.ID != run.ID || got.Status != c.to || after.Status != c.to:
				t.Errorf("%s of %s: %+v, error %v, want %s", c.name, from, got, err, c.to)
			case want == "" && len(after.events) != 0:
				t.Errorf("%s of %s, which it is already: appended %s", c.name, from, m.history(run.ID))
			case want != "" && (len(after.events) != 1 || after.events[0].Type != want ||
				string(after.events[0].Payload) != payloads[want] || after.events[0].ID == uuid.Nil):
				t.Errorf("%s of %s: appended %+v, want %s %s", c.name, from, after.events, want, payloads[want])
			}
			if _, err := c.do(newService(m), Run{ID: run.ID, Tenant: "other"}); !errors.Is(err, ErrNotFound) {
				t.Errorf("%s by another tenant: %v", c.name, err)
			}
		}
	}
}

func TestStateErrorSaysWhatToDo(t *testing.T) {
	t.Parallel()
	m := &memory{}
	s := newService(m)
	run := m.has(t, External)
	if _, err := s.Complete(t.Context(), run.Tenant, run.ID); err == nil ||
		!strings.Contains(err.Error(), "is PENDING: start it first") {
		t.Errorf("got %v", err)
	}
	if _, err := s.Fail(t.Context(), run.Tenant, run.ID, ""); fmt.Sprint(fields(t, err)) != "[error]" {
		t.Errorf("got %v", err)
	}
}

// A worker's run is the worker's: only to start, fail or cancel it makes sense from outside.
func TestRunsOfWorkersAreLeftToThem(t *testing.T) {
	t.Parallel()
	m := &memory{}
	s := newService(m)
	run := m.has(t, "demo")
	if r, err := s.Start(t.Context(), run.Tenant, run.ID); err != nil || r.Status != Running {
		t.Fatalf("start: %+v, error %v", r, err)
	}
	_, appendErr := s.Append(t.Context(), run.Tenant, run.ID, NewEvent{Type: Processing})
	_, completeErr := s.Complete(t.Context(), run.Tenant, run.ID)
	for _, err := range []error{appendErr, completeErr} {
		if fmt.Sprint(fields(t, err)) != "[crawler]" || !strings.Contains(err.Error(), "is demo: only the worker") {
			t.Errorf("got %v", err)
		}
	}
	if r, err := s.Fail(t.Context(), run.Tenant, run.ID, "enough"); err != nil || r.Status != Failed ||
		r.Error != "enough" {
		t.Errorf("fail: %+v, error %v", r, err)
	}
}

func TestAppend(t *testing.T) {
	t.Parallel()
	m := &memory{}
	s := newService(m)
	run := m.has(t, External, func(r *stored) { r.Status = Running })
	id := uuid.New()
	events := []NewEvent{{ID: id, Type: "MY_EVENT_2", Payload: json.RawMessage(`{"n": 1}`)}, {Type: Processing}}
	c, err := s.Append(t.Context(), run.Tenant, run.ID, events...)
	if err != nil || c.Appended != 2 || c.Last != 2 || events[1].ID != uuid.Nil || events[1].Payload != nil {
		t.Errorf("got %+v, error %v; the caller's events: %+v", c, err, events)
	}
	stored := m.get(run).events
	if stored[0].ID != id || stored[1].ID == uuid.Nil || string(stored[1].Payload) != "{}" {
		t.Errorf("stored %+v", stored)
	}
	if c, err := s.Append(t.Context(), run.Tenant, run.ID, events[0]); err != nil || c.Appended != 0 {
		t.Errorf("again: %+v, error %v", c, err)
	}
}

func TestAppendRefuses(t *testing.T) {
	t.Parallel()
	m := &memory{}
	s := NewService(m, ServiceConfig{MaxPayload: 20})
	run := m.has(t, External, func(r *stored) { r.Status = Running })
	id := uuid.New()
	payload := func(s string) []NewEvent { return []NewEvent{{Type: "A", Payload: json.RawMessage(s)}} }
	for _, c := range []struct {
		events []NewEvent
		want   string
	}{
		{nil, "events has 0, must have between 1 and 500"},
		{make([]NewEvent, 501), "events has 501, must have between 1 and 500"},
		{[]NewEvent{{}}, "events[0].type is required"},
		{[]NewEvent{{Type: "Ä"}}, "events[0].type must be of A-Z, 0-9 and _"},
		{[]NewEvent{{Type: "lower"}}, "events[0].type must be of A-Z, 0-9 and _"},
		{[]NewEvent{{Type: strings.Repeat("A", 51)}}, "events[0].type has 51 characters, the limit is 50"},
		{[]NewEvent{{Type: RunStarted}}, "events[0].type RUN_STARTED cannot be appended: start the run, which appends it"},
		{[]NewEvent{{Type: RunCompleted}},
			"events[0].type RUN_COMPLETED cannot be appended: complete the run, which appends it"},
		{[]NewEvent{{Type: RunFailed}}, "events[0].type RUN_FAILED cannot be appended: fail the run, which appends it"},
		{[]NewEvent{{Type: RunCancelled}},
			"events[0].type RUN_CANCELLED cannot be appended: cancel the run, which appends it"},
		{payload(`{]`), "events[0].payload is not valid JSON"},
		{payload(`"\u0000"`), `events[0].payload contains \u0000, which jsonb refuses (at byte 6)`},
		{payload(`1e999999`), "events[0].payload has a number outside the range of PostgreSQL's numeric (at byte 0)"},
		{payload(`"` + strings.Repeat("a", 19) + `"`), "events[0].payload has 21 bytes, the limit is 20"},
		{[]NewEvent{{Type: "A", ID: id}, {Type: "A"}, {Type: "A", ID: id}}, "events[2].id is that of events[0]"},
		{[]NewEvent{{Type: "A"}, {Type: "b"}, {Type: "C", Payload: json.RawMessage("x")}},
			"events[1].type must be of A-Z, 0-9 and _\nevents[2].payload is not valid JSON"},
	} {
		_, err := s.Append(t.Context(), run.Tenant, run.ID, c.events...)
		if err == nil || err.Error() != c.want || !errors.Is(err, ErrInvalid) {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
	if got := m.history(run.ID); got != "" {
		t.Errorf("appended %s", got)
	}
}

func TestListPages(t *testing.T) {
	t.Parallel()
	m := &memory{}
	s := newService(m)
	base := time.Now()
	for i := range 5 {
		m.has(t, External, func(r *stored) { r.CreatedAt = base.Add(time.Duration(i) * time.Second) })
	}
	var got []int
	f := RunFilter{Limit: 2}
	for range 3 {
		runs, next, err := s.List(t.Context(), DefaultTenant, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			got = append(got, int(r.CreatedAt.Sub(base).Seconds()))
		}
		f.Before = next
	}
	if fmt.Sprint(got) != "[4 3 2 1 0]" || f.Before != (Cursor{}) {
		t.Errorf("got %v, and then %v", got, f.Before)
	}
	if runs, next, err := s.List(t.Context(), DefaultTenant, RunFilter{Limit: 5}); err != nil || len(runs) != 5 ||
		next != (Cursor{}) {
		t.Errorf("a page that is just full: %d runs, next %v, error %v", len(runs), next, err)
	}
	_, _, err := s.List(t.Context(), DefaultTenant, RunFilter{Limit: 501, Status: "DONE", AppPackage: "\x00"})
	if got := fmt.Sprint(fields(t, err)); got != "[appPackage limit status]" {
		t.Errorf("refused %s: %v", got, err)
	}
	_, err = s.Events(t.Context(), DefaultTenant, uuid.New(), -1, 1001)
	if got := fmt.Sprint(fields(t, err)); got != "[after limit]" {
		t.Errorf("refused %s: %v", got, err)
	}
}

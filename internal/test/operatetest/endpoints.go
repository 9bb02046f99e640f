package operatetest

import (
	"reflect"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/endpoint"
)

func endpointTests() []behaviour {
	return []behaviour{
		{name: "endpoints are kept as they are, and each change is seen and on the record", run: keepsEndpoints},
		{name: "nobody overwrites what another has changed of an endpoint", run: keepsOthersChanges},
	}
}

// endpoints is a table and the version that was read last.
type endpoints struct {
	endpoint.Table
	t       *testing.T
	version string
}

// changed reads the endpoints, which must have changed since they were read last.
func (e *endpoints) changed() []endpoint.Stored {
	e.t.Helper()
	all, version, err := e.Read(e.t.Context(), e.version)
	if err != nil || version == e.version {
		e.t.Fatalf("version %q, error %v, want another version", version, err)
	}
	e.version = version
	if again, same, err := e.Read(e.t.Context(), version); err != nil || again != nil || same != version {
		e.t.Fatalf("asked again: %v, version %q, error %v, want nothing new", again, same, err)
	}
	return all
}

func (e *endpoints) put(one endpoint.Stored, want bool) {
	e.t.Helper()
	done, err := e.Put(e.t.Context(), one, endpoint.Change{Action: "endpoint-add", Actor: "me", Reason: "because"})
	if err != nil || done != want {
		e.t.Fatalf("put %s: %t, error %v, want %t", one.Name, done, err, want)
	}
}

// same compares endpoints but for what the table draws itself.
func same(a, b endpoint.Stored) bool {
	a.Revision, b.Revision, a.Created, b.Created = 0, 0, time.Time{}, time.Time{}
	return reflect.DeepEqual(a, b)
}

func keepsEndpoints(t *testing.T, s *suite) {
	e := &endpoints{Table: Opened(t, s.Operators.Endpoints), t: t}
	if all := e.changed(); len(all) != 0 {
		t.Fatalf("a new table has %v", all)
	}
	acme := endpoint.Stored{Name: "acme", Tenant: "t1", Topics: []string{"order.*", "ü"}, Types: []string{"Order"},
		URL: "https://acme.example/hook?a=%20&ü", Rate: 2.5,
		Timeout: 30 * time.Second, Concurrency: 7, Headers: map[string]string{"X-A": "env:A"},
		Secrets: []endpoint.Secret{{Value: "env:NEW"},
			{Value: "sealed:1:x", Until: time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)}}}
	plain := endpoint.Stored{Name: "plain", URL: "https://plain.example", Headers: map[string]string{},
		Topics: []string{}, Types: []string{},
		Secrets: []endpoint.Secret{{Value: "file:/run/secret"}}}
	e.put(plain, true)
	e.put(acme, true)
	e.put(acme, false)
	all := e.changed()
	if len(all) != 2 || !same(all[0], acme) || !same(all[1], plain) || all[0].Revision == 0 || all[0].Created.IsZero() {
		t.Fatalf("endpoints are\n%+v, want\n%+v, %+v", all, acme, plain)
	}
	acme = all[0]
	acme.URL, acme.Rate, acme.Types = "https://new.example", 0, []string{"Invoice", "Order"}
	e.put(acme, true)
	if all = e.changed(); !same(all[0], acme) || !same(all[1], plain) {
		t.Errorf("after a change they are %+v", all)
	}
	removal := endpoint.Change{Action: "endpoint-remove", Actor: "me"}
	if done, err := e.Remove(t.Context(), "acme", removal); err != nil || !done {
		t.Errorf("remove: %t, error %v", done, err)
	}
	if all = e.changed(); len(all) != 1 || !same(all[0], plain) {
		t.Errorf("after a removal they are %+v", all)
	}
	if done, err := e.Remove(t.Context(), "acme", removal); err != nil || done {
		t.Errorf("remove again: %t, error %v", done, err)
	}
	for action, want := range map[string]int{"endpoint-add": 3, "endpoint-remove": 1} {
		actions, _, err := s.letters(t).Actions(t.Context(), deadletter.ActionFilter{Action: action})
		if err != nil || len(actions) != want || actions[0].Actor != "me" {
			t.Errorf("the record has %d of %s, error %v, want %d", len(actions), action, err, want)
		}
	}
}

func keepsOthersChanges(t *testing.T, s *suite) {
	e := &endpoints{Table: Opened(t, s.Operators.Endpoints), t: t}
	secrets := []endpoint.Secret{{Value: "env:A"}}
	e.put(endpoint.Stored{Name: "acme", URL: "https://a.example", Secrets: secrets}, true)
	read := e.changed()[0]
	changed := read
	changed.URL = "https://b.example"
	e.put(changed, true)
	e.put(read, false)
	if err := e.Disable(t.Context(), "acme", read.Revision, "gone"); err != nil {
		t.Fatal(err)
	}
	now := e.changed()[0]
	if now.URL != changed.URL || !now.Disabled.IsZero() || now.Revision == read.Revision {
		t.Fatalf("it is %+v, want the first change alone", now)
	}
	if err := e.Disable(t.Context(), "acme", now.Revision, "gone"); err != nil {
		t.Fatal(err)
	}
	now = e.changed()[0]
	if time.Since(now.Disabled).Abs() > time.Hour || now.Reason != "gone" {
		t.Fatalf("it is %+v, want it disabled", now)
	}
	disabled := now.Disabled
	now.Rate = 3
	e.put(now, true)
	if now = e.changed()[0]; !now.Disabled.Equal(disabled) {
		t.Errorf("it is disabled since %s, want %s still", now.Disabled, disabled)
	}
	now.Disabled, now.Reason = time.Time{}, ""
	e.put(now, true)
	if now = e.changed()[0]; !now.Disabled.IsZero() || now.Reason != "" {
		t.Errorf("it is %+v, want it enabled", now)
	}
}

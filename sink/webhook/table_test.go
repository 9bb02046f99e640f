package webhook

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/endpoint"
)

// rows is a table of endpoints that a test writes into. The real ones have their own tests, with databases.
type rows struct {
	endpoint.Table
	all     []endpoint.Stored
	version string
	err     error
	reads   int
}

func (r *rows) Read(_ context.Context, known string) ([]endpoint.Stored, string, error) {
	r.reads++
	if r.err != nil || known == r.version {
		return nil, known, r.err
	}
	return r.all, r.version, nil
}

// While the database is away the endpoints that are known stay in use, and of others nobody says that there are none. A
// former secret ends in its time, although no row changes.
func TestTableOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Setenv("TEST_SECRET", string(key))
		r := &rows{version: "1", all: []endpoint.Stored{{Name: "acme", URL: "https://acme.example", Revision: 1,
			Secrets: []endpoint.Secret{{Value: "env:TEST_SECRET"},
				{Value: "env:TEST_SECRET", Until: time.Now().Add(90 * time.Second)}}}}}
		table := &endpointTable{store: r, log: local.Logger}
		secrets := func() int {
			t.Helper()
			found, err := table.Lookup(t.Context(), "acme")
			if err != nil {
				t.Fatal(err)
			}
			return len(found["acme"].Secrets)
		}
		if n := secrets(); n != 2 {
			t.Errorf("%d secrets, want both", n)
		}
		before := r.reads
		for range 100 {
			secrets()
		}
		if r.reads != before {
			t.Errorf("the table was asked %d times within a second", r.reads-before)
		}
		time.Sleep(3 * time.Minute)
		if n := secrets(); n != 1 {
			t.Errorf("%d secrets, want the present one", n)
		}
	})
}

// The database is away; a secret cannot be read; an event of another tenant comes.
func TestTableThatCannotBeRead(t *testing.T) {
	t.Setenv("TEST_SECRET", string(key))
	h := receive(t, status(http.StatusNoContent))
	secret := []endpoint.Secret{{Value: "env:TEST_SECRET"}}
	r := &rows{version: "1", all: []endpoint.Stored{
		{Name: "acme", URL: h.URL, Revision: 1, Secrets: secret, Tenant: "t1"},
		{Name: "unset", URL: h.URL, Revision: 2, Secrets: []endpoint.Secret{{Value: "env:TEST_NOT_SET"}}},
		{Name: "sealed", URL: h.URL, Revision: 3, Secrets: []endpoint.Secret{{Value: "sealed:0:eA=="}}},
		{Name: "off", URL: h.URL, Revision: 4, Secrets: secret, Disabled: time.Now(), Reason: "INC-4711"}}}
	cfg := local
	cfg.Table = func(context.Context) (endpoint.Table, error) { return r, nil }
	s, err := Open(t.Context(), "webhook:table", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	d := event(t, "acme", 1)
	wantClass(t, one(t, s, d), outbox.ClassPermanent, "another tenant")
	d.TenantID = "t1"
	wantDelivered(t, s.Publish(t.Context(), []outbox.Delivery{d}))
	wantClass(t, one(t, s, event(t, "unset", 1)), outbox.ClassPostponed, "TEST_NOT_SET is not set")
	wantClass(t, one(t, s, event(t, "sealed", 1)), outbox.ClassPostponed, "OUTBOX_ENDPOINT_KEY")
	wantClass(t, one(t, s, event(t, "off", 1)), outbox.ClassPermanent, "INC-4711", "outbox endpoints enable")
	wantClass(t, one(t, s, event(t, "nobody", 1)), outbox.ClassPermanent, "outbox endpoints add")
	wantClass(t, s.Ping(t.Context()), outbox.ClassUnavailable, "TEST_NOT_SET", "OUTBOX_ENDPOINT_KEY")
	r.err = errors.New("the database is away")
	wantClass(t, one(t, s, event(t, "nobody", 1)), outbox.ClassUnavailable, "the database is away")
	wantDelivered(t, s.Publish(t.Context(), []outbox.Delivery{d}))
	wantClass(t, s.Ping(t.Context()), outbox.ClassUnavailable, "former", "the database is away")
	if h.count() != 2 {
		t.Errorf("%d requests, want 2", h.count())
	}
	for url, text := range map[string]string{
		"webhook:table?key=hunter2": "neither env:NAME nor file:PATH", "webhook:x.yaml?key=env:A": "is for webhook:table",
		"webhook:table?key=env:TEST_NOT_SET": "TEST_NOT_SET",
	} {
		if _, err := Open(t.Context(), url, cfg); err == nil {
			t.Errorf("%s is opened", url)
		} else {
			wantClass(t, outbox.Permanent(err), outbox.ClassPermanent, text)
		}
	}
	if _, err := Open(t.Context(), "webhook:table", local); err == nil {
		t.Error("a table is opened without a database")
	}
}

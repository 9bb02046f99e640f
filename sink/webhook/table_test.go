package webhook

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/endpoint"
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

// sealedFor seals secrets for an endpoint without a tenant.
func sealedFor(t *testing.T, r keyring, row endpoint.Stored) endpoint.Stored {
	t.Helper()
	for i := range row.Secrets {
		text, err := r.seal(string(key), useOf(row, useSecret))
		if err != nil {
			t.Fatal(err)
		}
		row.Secrets[i].Value = text
	}
	return row
}

// While the database is away the endpoints that are known stay in use, and of others nobody says that there are none. A
// former secret ends in its time, although no row changes.
func TestTableOverTime(t *testing.T) {
	keys := ring(t, aKey("a"))
	synctest.Test(t, func(t *testing.T) {
		r := &rows{version: "1", all: []endpoint.Stored{sealedFor(t, keys, endpoint.Stored{Name: "acme",
			URL: "https://acme.example", Revision: 1,
			Secrets: []endpoint.Secret{{}, {Until: time.Now().Add(90 * time.Second)}}})}}
		table := &endpointTable{store: r, ring: keys, log: local.Logger}
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
	keys := ring(t, aKey("a"))
	aSecret := func() []endpoint.Secret { return []endpoint.Secret{{}} }
	moved := sealedFor(t, keys, endpoint.Stored{Name: "moved", URL: "https://acme.example", Secrets: aSecret()})
	moved.URL = h.URL
	r := &rows{version: "1", all: []endpoint.Stored{
		sealedFor(t, keys, endpoint.Stored{Name: "acme", URL: h.URL, Revision: 1, Secrets: aSecret(), Tenant: "t1"}),
		{Name: "spy", URL: h.URL, Revision: 2, Secrets: []endpoint.Secret{{Value: "env:TEST_SECRET"}}},
		{Name: "other", URL: h.URL, Revision: 3, Secrets: []endpoint.Secret{{Value: "sealed:0:eA=="}}},
		sealedFor(t, keys, endpoint.Stored{Name: "off", URL: h.URL, Revision: 4, Secrets: aSecret(), Disabled: time.Now(),
			Reason: "INC-4711"}), moved}}
	cfg := local
	cfg.key = "env:TEST_ENDPOINT_KEY"
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
	wantClass(t, one(t, s, event(t, "spy", 1)), outbox.ClassPostponed, "only a file of endpoints")
	wantClass(t, one(t, s, event(t, "other", 1)), outbox.ClassPostponed, "none of those given")
	wantClass(t, one(t, s, event(t, "moved", 1)), outbox.ClassPostponed, "its row was changed")
	wantClass(t, one(t, s, event(t, "off", 1)), outbox.ClassPermanent, "INC-4711", "outbox endpoints enable")
	wantClass(t, one(t, s, event(t, "nobody", 1)), outbox.ClassPermanent, "outbox endpoints add")
	wantClass(t, s.Abilities().Ping(t.Context()), outbox.ClassUnavailable, `"spy"`, `"other"`, `"moved"`)
	r.err = errors.New("the database is away")
	wantClass(t, one(t, s, event(t, "nobody", 1)), outbox.ClassUnavailable, "the database is away")
	wantDelivered(t, s.Publish(t.Context(), []outbox.Delivery{d}))
	wantClass(t, s.Abilities().Ping(t.Context()), outbox.ClassUnavailable, "former", "the database is away")
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

package endpoint

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/sink"
	"github.com/outboxrelay/outbox/sink/webhook"
)

// sealedFor is a row with a secret that is sealed for it.
func sealedFor(t *testing.T, r keyring, one row) row {
	t.Helper()
	text, err := r.seal(secret, one.use(aSecret))
	if err != nil {
		t.Fatal(err)
	}
	one.Sealed = append(one.Sealed, sealed{Value: text})
	return one
}

// named is a row of this name and URL.
func named(name, url string) row { return row{Endpoint: webhook.Endpoint{Name: name, URL: url}} }

// wants publishes an event, and checks the class of what comes of it (-1: delivered) and its words.
func wants(t *testing.T, s *webhook.Sink, to, tenant string, class outbox.Class, texts ...string) {
	t.Helper()
	d := outbox.Delivery{Destination: to,
		Record: &outbox.Record{Event: outbox.Event{ID: uuid.New(), Topic: "t", TenantID: tenant, Payload: []byte("1")}}}
	checkClass(t, s.Publish(t.Context(), []outbox.Delivery{d})[0].Err, class, texts...)
}

const delivered outbox.Class = -1

func checkClass(t *testing.T, err error, class outbox.Class, texts ...string) {
	t.Helper()
	got := delivered
	if err != nil {
		got, _ = outbox.Classify(err)
	}
	if got != class {
		t.Fatalf("answered %v (class %d), want class %d", err, got, class)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error is %q, want %q in it", err, text)
		}
	}
}

// The database is away; a secret cannot be read; an event of another tenant comes.
func TestTableThatCannotBeRead(t *testing.T) {
	t.Setenv("TEST_SECRET", string(secret))
	keys := ring(t, aKey("a"))
	onStores(t, func(db database) {
		t := db.t
		var asked atomic.Int64
		hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
		t.Cleanup(hook.Close)
		s := store(db)
		acme, off := named("acme", hook.URL), named("off", hook.URL)
		acme.Tenant, off.Since, off.Reason = "t1", time.Now(), "INC-4711"
		moved := sealedFor(t, keys, named("moved", "https://acme.example"))
		moved.URL = hook.URL
		spy, other := named("spy", hook.URL), named("other", hook.URL)
		spy.Sealed, other.Sealed = []sealed{{Value: "env:TEST_SECRET"}}, []sealed{{Value: "sealed:0:eA=="}}
		for _, r := range []row{sealedFor(t, keys, acme), spy, other, sealedFor(t, keys, off), moved} {
			s.do("add", r, true)
		}
		to := db.open().Sink
		wants(t, to, "acme", "", outbox.ClassPermanent, "another tenant")
		wants(t, to, "acme", "t1", delivered)
		wants(t, to, "spy", "", outbox.ClassPostponed, "only a file of endpoints")
		wants(t, to, "other", "", outbox.ClassPostponed, "none of those given")
		wants(t, to, "moved", "", outbox.ClassPostponed, "its row was changed")
		wants(t, to, "off", "", outbox.ClassPermanent, "INC-4711", "outbox endpoints enable")
		wants(t, to, "nobody", "", outbox.ClassPermanent, "outbox endpoints add")
		checkClass(t, to.Abilities().Ping(t.Context()), outbox.ClassUnavailable, `"spy"`, `"other"`, `"moved"`)
		db.exec("ALTER TABLE outbox_endpoints RENAME TO away")
		wants(t, to, "nobody", "", outbox.ClassUnavailable, "outbox_endpoints")
		wants(t, to, "acme", "t1", delivered)
		checkClass(t, to.Abilities().Ping(t.Context()), outbox.ClassUnavailable, "former", "outbox_endpoints")
		if _, err := to.Abilities().Subscriptions(t.Context()); err == nil {
			t.Error("who has subscribed is said to be known")
		}
		if n := asked.Load(); n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
		_, err := db.try("webhook:table?key=env:TEST_NOT_SET")
		if err == nil || !strings.Contains(err.Error(), "TEST_NOT_SET") {
			t.Errorf("without the key: %v", err)
		}
		if _, err := db.try("webhook:table"); err == nil {
			t.Error("a table that is not there is opened")
		}
	})
}

// A former secret ends in its time, although no row changes.
func TestSecretsEnd(t *testing.T) {
	keys := ring(t, aKey("a"))
	onStores(t, func(db database) {
		t := db.t
		r := sealedFor(t, keys, sealedFor(t, keys, named("acme", "https://acme.example")))
		r.Sealed[1].Until = time.Now().Add(time.Hour)
		store(db).do("add", r, true)
		of := db.open().table
		if n := len(of.known["acme"].Secrets); n != 2 {
			t.Errorf("%d secrets, want both", n)
		}
		if list, err := of.Read(t.Context()); list != nil || err != nil {
			t.Errorf("nothing has changed: %v, error %v", list, err)
		}
		of.read = time.Now().Add(-readEvery)
		if list, err := of.Read(t.Context()); len(list) != 1 || err != nil {
			t.Errorf("after a minute: %v, error %v, want all", list, err)
		}
		if e := of.unsealed(r, time.Now().Add(2*time.Hour)); len(e.Secrets) != 1 || e.Err != nil {
			t.Errorf("it has %d secrets, error %v, want the present one", len(e.Secrets), e.Err)
		}
	})
}

// An answer 410 disables the row, unless somebody has changed it, and whoever enables it has it
// asked again.
func TestGone(t *testing.T) {
	ring(t, aKey("a"))
	onStores(t, func(db database) {
		t := db.t
		status := http.StatusGone
		var meanwhile func()
		hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			meanwhile()
			w.WriteHeader(status)
		}))
		t.Cleanup(hook.Close)
		operator := func() *Endpoints { return db.open() } // a command
		_, err := operator().Add(t.Context(), webhook.Endpoint{Name: "acme", URL: hook.URL}, by)
		checkClass(t, err, delivered)
		of := db.open()
		meanwhile = func() {
			_, err := operator().Rotate(t.Context(), "acme", "", time.Hour, by)
			checkClass(t, err, delivered)
		}
		wants(t, of.Sink, "acme", "", outbox.ClassPermanent, "410 Gone", "outbox endpoints enable")
		meanwhile = func() {}
		wants(t, of.Sink, "acme", "", outbox.ClassPermanent, "answered 410 Gone") // it was asked again: it was changed
		wants(t, of.Sink, "acme", "", outbox.ClassPermanent, "is disabled (answered 410 Gone)")
		status = http.StatusOK
		if done, err := operator().Switch(t.Context(), "acme", true, by); !done || err != nil {
			t.Fatalf("enabled: %t, error %v", done, err)
		}
		fresh := db.open()
		wants(t, fresh.Sink, "acme", "", delivered)
	})
}

// Everything is sealed with the first key once a row is changed, and the secrets stay.
func TestKeysChange(t *testing.T) {
	onStores(t, func(db database) {
		t := db.t
		got := make(chan http.Header, 1)
		hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
		t.Cleanup(hook.Close)
		ring(t, aKey("a"))
		e := webhook.Endpoint{Name: "acme", URL: hook.URL, Headers: map[string]webhook.Secret{"X-A": "Bearer x"}}
		made, err := db.open().Add(t.Context(), e, by)
		if err != nil || made.Check() != nil {
			t.Fatalf("made %q, error %v", string(made), err)
		}
		ring(t, aKey("b"), aKey("a"))
		if _, err := db.open().Rotate(t.Context(), "acme", "", time.Hour, by); err != nil {
			t.Fatal(err)
		}
		ring(t, aKey("b"))
		of := db.open()
		wants(t, of.Sink, "acme", "", delivered)
		if h := <-got; h.Get("X-A") != "Bearer x" || len(strings.Split(h.Get("webhook-signature"), " ")) != 2 {
			t.Errorf("the headers are %v, want both secrets to sign", h)
		}
		all, err := of.List(t.Context())
		if err != nil || len(all) != 1 || all[0].Secrets != 2 || all[0].State != "enabled" {
			t.Errorf("the list is %+v, error %v", all, err)
		}
		for text, err := range map[string]error{
			"already":        second(of.Add(t.Context(), e, by)),
			"neither https":  second(of.Add(t.Context(), webhook.Endpoint{Name: "b", URL: "ftp://b"}, by)),
			"no name":        second(of.Add(t.Context(), webhook.Endpoint{URL: hook.URL}, by)),
			"begins neither": second(of.Rotate(t.Context(), "acme", "hunter2", 0, by)),
			"no endpoint":    of.Remove(t.Context(), "nobody", by),
		} {
			if err == nil || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %v, want %q", err, text)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

// A URL of a list shows neither user nor query, and a sink of another scheme is its driver's.
func TestOthers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://user:hunter2@acme.example/hook?token=hunter2#hunter2": "https://acme.example/hook",
		"https://acme.example/?to=a@b":                                 "https://acme.example/",
		"mailto:hunter2":                                               "(no valid URL)",
	} {
		if got := masked(text); got != want {
			t.Errorf("%s is masked as %s, want %s", text, got, want)
		}
	}
	asked := false
	d := sink.Driver{Open: func(context.Context, string, sink.Options) (sink.Sink, error) {
		asked = true
		return nil, nil
	}}
	db := func(context.Context) (cold.Database, error) { return nil, nil }
	if _, err := OpenSink(t.Context(), d, "redis://host", sink.Options{}, db); err != nil || !asked {
		t.Errorf("its driver was asked: %t, error %v", asked, err)
	}
}

package pgtable

import (
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/sink"
)

func TestURLs(t *testing.T) {
	t.Parallel()
	sinktest.URLs{
		Check: map[string]string{
			"postgres://u:p@h:5432/d": "", "postgresql://h1,h2/d?sslmode=verify-full&create=true": "",
			"postgres:///d?host=/run/postgresql": "", "postgres://h/d?create=yes": "true, false",
			"postgres://h/d?cloudevents=binary": "columns", "postgres://u:hunter2@h:x/d": "invalid port",
			"postgres://u:hunt/er2@h/d": "%2F", "postgres://h/d?sslmode=hunter2": "none of disable",
			"host=h password=hunter2": "not of the form", "postgres://h/d#hunter2": "not of the form",
		},
		Plaintext: map[string]string{
			"postgres://u:p@db/d": "db", "postgres://a,localhost,b/d?sslmode=disable": "a b", "postgres://127.0.0.1/d": "",
			"postgres://db/d?sslmode=require": "", "postgres:///d?host=/run": "",
		},
		Mask: map[string]string{"postgres://u:hunter2@h:5433/d?create=true": "d at h:5433"},
	}.Test(t, Driver())
	if _, err := New(nil, Config{}); err == nil {
		t.Error("New takes a nil pool")
	}
}

func TestDriver(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	d := Driver()
	sinktest.Opens(t, d, map[string]sinktest.Opening{
		url + "&create=true": {Opens: true},
		strings.Replace(url, "postgres@", "nobody:hunter2@", 1): {Hint: "correct user"},
		strings.Replace(url, "/test_", "/no_test_", 1):          {Hint: "database"},
		url + "&unheard=1": {Hint: "parameters"},
		"postgres://u:hunter2@127.0.0.1:1/d?sslmode=disable": {Waits: true, Hint: "is PostgreSQL running"},
	})
	s, err := d.Open(t.Context(), url+"&create=true", sink.Options{})
	deliver(t, sinktest.Closing(t, s, err), event(t, "inbox", 1))
	// No error is taken for one of the database that events come from: that has hints of its own.
	if _, err := d.Open(t.Context(), url+"&unheard=1", sink.Options{}); code(err) != "" {
		t.Errorf("the error has the type of another's: %v", err)
	}
}

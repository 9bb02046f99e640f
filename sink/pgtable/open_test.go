package pgtable

import (
	"errors"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/sink"
)

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for url, says := range map[string]string{
		"postgres://u:p@h:5432/d": "", "postgresql://h1,h2/d?sslmode=verify-full&create=true": "",
		"postgres:///d?host=/run/postgresql": "", "postgres://h/d?create=yes": "true, false",
		"postgres://h/d?cloudevents=binary": "columns", "postgres://u:hunter2@h:x/d": "not of the form",
		"postgres://u:hunt/er2@h/d": "%2F", "postgres://h/d?sslmode=hunter2": "not of the form",
		"host=h password=hunter2": "not of the form", "postgres://h/d#hunter2": "not of the form",
	} {
		err := checkURL(url)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) ||
			err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got error %v, want %q", url, err, says)
		}
	}
}

// The class of an error says whether to wait, the hint what to do, and none shows a password. None is taken for one of
// the database that events come from: that has hints of its own.
func TestDriverSaysWhetherToWait(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	d := Driver()
	for bad, want := range map[string]struct {
		waits bool
		hint  string
	}{
		strings.Replace(url, "postgres@", "nobody:hunter2@", 1): {false, "correct user"},
		strings.Replace(url, "/test_", "/no_test_", 1):          {false, "database"},
		url + "&hunter2=1": {false, "parameters"},
		"postgres://u:hunter2@127.0.0.1:1/d?sslmode=disable": {true, "is PostgreSQL running"},
	} {
		_, err := d.Open(t.Context(), bad, sink.Options{})
		if class, _ := outbox.Classify(err); err == nil || (class == outbox.ClassUnavailable) != want.waits {
			t.Errorf("%s: class %v of %v", bad, class, err)
			continue
		}
		if got := d.Hint(err); !strings.Contains(got, want.hint) {
			t.Errorf("%s: got hint %q, want %q", bad, got, want.hint)
		}
		if code(err) != "" {
			t.Errorf("%s: the error has the type of another's", bad)
		}
		if strings.Contains(bad, ":hunter2@") && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error is %v", bad, err)
		}
	}
	if d.Hint(errors.New("other")) != "" {
		t.Error("a hint for another's error")
	}
}

func TestDriver(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	d := Driver()
	s, err := d.Open(t.Context(), url+"&create=true", sink.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Abilities().Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if got := s.Publish(t.Context(), []outbox.Delivery{event(t, "inbox", 1)}); got[0] != (outbox.Result{}) {
		t.Errorf("answered %+v", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if got := d.Mask("postgres://u:hunter2@h:5433/d?create=true"); got != "d at h:5433" {
		t.Errorf("it is shown as %s", got)
	}
	for url, want := range map[string]string{
		"postgres://u:p@db/d": "db", "postgres://a,localhost,b/d?sslmode=disable": "a b", "postgres://127.0.0.1/d": "",
		"postgres://db/d?sslmode=require": "", "postgres:///d?host=/run": "",
	} {
		if got := strings.Join(d.Plaintext(url), " "); got != want {
			t.Errorf("%s: without TLS are %q, want %q", url, got, want)
		}
	}
	if _, err := New(nil, Config{}); err == nil {
		t.Error("New takes a nil pool")
	}
}

package sinktest

import (
	"errors"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/sinks"
	"github.com/outboxrelay/outbox/sink"
)

// URLs is what a driver is to say of URLs. A password in them is hunter2, or has it as a part.
type URLs struct {
	Check     map[string]string // "" finds nothing wrong
	Plaintext map[string]string // hosts, with a space between
	Encrypted map[string]string // addresses, likewise
	Mask      map[string]string
}

// Test asks a driver that has each function of which it is asked.
func (u URLs) Test(t *testing.T, d sink.Driver) {
	t.Helper()
	registry, err := sinks.NewRegistry(d)
	if err != nil {
		t.Fatal(err)
	}
	for url, says := range u.Check {
		err := d.Check(url)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) ||
			err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got error %v, want %q", url, err, says)
		}
		if masked := registry.Mask(url); strings.Contains(masked, "hunter2") {
			t.Errorf("%s is shown as %s", url, masked)
		}
	}
	for url, want := range u.Plaintext {
		if got := strings.Join(d.Plaintext(url), " "); got != want {
			t.Errorf("%s: without TLS are %q, want %q", url, got, want)
		}
	}
	for url, want := range u.Encrypted {
		if got := strings.Join(d.Encrypted(url), " "); got != want {
			t.Errorf("%s: with TLS are %q, want %q", url, got, want)
		}
	}
	for url, want := range u.Mask {
		if got := registry.Mask(url); got != want {
			t.Errorf("%s is shown as %s, want %s", url, got, want)
		}
	}
}

// Opening is what comes of opening a sink.
type Opening struct {
	Opens, Waits bool
	Hint         string
}

// Opens opens sinks of a driver that has a Hint. The class of an error says whether to wait, the
// hint what to do, and no error of the chain has a piece of a password: hunter, or 65432 in its
// place.
func Opens(t *testing.T, d sink.Driver, urls map[string]Opening) {
	t.Helper()
	for url, want := range urls {
		s, err := d.Open(t.Context(), url, sink.Options{})
		if err == nil {
			if err := errors.Join(s.Abilities().Ping(t.Context()), s.Close()); err != nil || !want.Opens {
				t.Errorf("%s: it opens; ping and close: %v", url, err)
			}
			continue
		}
		if class, _ := outbox.Classify(err); want.Opens || (class == outbox.ClassUnavailable) != want.Waits {
			t.Errorf("%s: class %v of %v", url, class, err)
		}
		if got := d.Hint(err); !strings.Contains(got, want.Hint) {
			t.Errorf("%s: got hint %q of %v, want %q", url, got, err, want.Hint)
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			text := e.Error()
			if strings.Contains(url, "hunter") && strings.Contains(text, "hunter") ||
				strings.Contains(url, "65432") && strings.Contains(text, "65432") {
				t.Errorf("%s: the error is %q", url, text)
			}
		}
	}
	if d.Hint(errors.New("other")) != "" {
		t.Error("a hint for another's error")
	}
}

package memory

import (
	"testing"

	"github.com/outboxrelay/outbox/sink"
)

// What a process publishes, it hears: both come by the URL and are one hub, until it is closed.
func TestDriver(t *testing.T) {
	t.Parallel()
	d := Driver()
	heard, err := d.Subscribe("memory:", sink.Options{})
	if err != nil {
		t.Fatal(err)
	}
	published, err := d.Open(t.Context(), "memory:", sink.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if heard.(subscriber).Hub != published.(*Hub) {
		t.Error("two hubs")
	}
	if other, err := Driver().Open(t.Context(), "memory:", sink.Options{}); err != nil || other == published {
		t.Errorf("another driver has the same hub, error %v", err)
	}
	if s := heard.State(); !s.Up || s.Channels != 0 {
		t.Errorf("got %+v", s)
	}
	if err := published.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := d.Open(t.Context(), "memory:", sink.Options{Window: -1})
	if err != nil || again.Abilities().Ping(t.Context()) != nil || again.(*Hub).seen != nil {
		t.Errorf("a closed hub was opened: %v", err)
	}
	for _, url := range []string{"memory://h", "memory:x"} {
		if _, err := d.Open(t.Context(), url, sink.Options{}); err == nil || d.Check(url) == nil {
			t.Errorf("%s is taken", url)
		}
	}
}

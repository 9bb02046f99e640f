package redispubsub

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/redisscript"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/sink"
)

// The class of an error says whether to wait, and the hint what to do.
func TestDriverSaysWhetherToWait(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	do(t, connectAdmin(t, server), "CONFIG", "SET", "requirepass", "right")
	d := Driver()
	for url, want := range map[string]struct {
		waits bool
		hint  string
	}{
		"redis://:wrong@" + server.Addr(): {false, "password"},
		"redis://" + server.Addr():        {false, "password"},
		"redis://127.0.0.1:1":             {true, "is Redis running there?"},
	} {
		_, err := d.Open(t.Context(), url, sink.Options{})
		if class, _ := outbox.Classify(err); (class == outbox.ClassUnavailable) != want.waits {
			t.Errorf("%s: class %v of %v", url, class, err)
		}
		if got := d.Hint(err); !strings.Contains(got, want.hint) {
			t.Errorf("%s: got hint %q, want %q", url, got, want.hint)
		}
	}
	untrusted := outbox.Unavailable(&tls.CertificateVerificationError{Err: errors.New("signed by nobody")})
	if class, _ := outbox.Classify(redisscript.Lasting(untrusted)); class == outbox.ClassUnavailable {
		t.Error("it waits for another certificate")
	}
	if d.Hint(errors.New("other")) != "" {
		t.Error("a hint for another's error")
	}
}

func TestDriver(t *testing.T) {
	t.Parallel()
	url := testenv.RedisServer(t).URL()
	d := Driver()
	s, err := d.Open(t.Context(), url, sink.Options{Window: time.Minute, Prefix: "driver:"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Abilities().Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	heard, err := d.Subscribe(url, sink.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if state := heard.State(); state.Up || state.Err != nil {
		t.Errorf("before Run: got %+v", state)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- heard.Run(ctx) }()
	for start := time.Now(); !heard.State().Up; time.Sleep(time.Millisecond) {
		if time.Since(start) > testenv.Patience {
			t.Fatal("it does not come up")
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

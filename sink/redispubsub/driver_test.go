package redispubsub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/testenv"
	"github.com/outboxrelay/outbox/sink"
)

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for url, says := range map[string]string{
		"redis://h": "", "redis://u:p@h:6379/0": "", "redis://h1:7000,h2:7001": "", "redis://[::1]:6379": "",
		"unix:///run/redis.sock": "", "redis://:99999@h": "",
		"redis://h:99999/0": "65535", "redis://h:0": "65535", "redis://h1:7000,h2:70001": "65535",
		"redis://u:hunter2@h:x": "65535", "redis://u:hunter2@h/x": "not of the form", "redis://u:hunt/er2@h": "%2F",
	} {
		err := checkURL(url)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) ||
			err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got error %v, want %q", url, err, says)
		}
	}
}

func TestPlaintext(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis://cache:6379/0": "[cache]", "redis://u:p@10.0.0.7": "[10.0.0.7]",
		"redis://[2001:db8::1]:6379":    "[2001:db8::1]",
		"redis://a:1,localhost:2,b:3/0": "[a b]",
		"redis://127.0.0.1:6379":        "[]", "redis://localhost": "[]", "redis://[::1]:6379/0?db=1": "[]",
		"rediss://cache:6379": "[]", "unix:///run/redis.sock": "[]",
	} {
		if got := fmt.Sprint(plaintext(url)); got != want {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
}

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
	if class, _ := outbox.Classify(lasting(untrusted)); class == outbox.ClassUnavailable {
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
	if err := s.Ping(t.Context()); err != nil {
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

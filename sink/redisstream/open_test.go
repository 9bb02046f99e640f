package redisstream

import (
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/sink"
)

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for url, says := range map[string]string{
		"redis+stream://h": "", "rediss+stream://u:p@h:6379/0?maxlen=5&cloudevents=binary&pool_size=3": "",
		"redis+stream://h1:7000,h2:7001": "", "unix+stream:///run/redis.sock?minid=72h&create=true": "",
		"redis+stream://h?cloudevents=batch": "structured, binary", "redis+stream://h?maxlen=0": "maxlen",
		"redis+stream://h?maxlen=many": "maxlen", "redis+stream://h?minid=-1h": "minid", "redis+stream://h?minid=5": "minid",
		"redis+stream://h?maxlen=1&minid=1h": "both",
		"redis+stream://h?exact=true":        "Exact", "redis+stream://h?create=yes": "create",
		"redis+stream://h?maxlen=1&maxlen=2": "maxlen", "redis+stream://h?hunter2=1": "nobody knows",
		"redis+stream://h:99999/0": "65535", "redis+stream://u:hunter2@h/x": "not of the form",
		"redis+stream://u:hunt/er2@h": "%2F", "redis+stream://u:p@h#hunter2": "not of the form",
		"redis+stream:h": "not of the form",
	} {
		err := checkURL(url)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) ||
			err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got error %v, want %q", url, err, says)
		}
	}
}

// Every kind of mistake in a URL with a password, and none of the errors has a piece of it.
func TestPasswordStaysOutOfErrors(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	do(t, connectAdmin(t, server), "CONFIG", "SET", "requirepass", "right")
	d := Driver()
	for url, waits := range map[string]bool{
		"redis+stream://:hunter@" + server.Addr():                                  false,
		"redis+stream://user:hunter@" + server.Addr():                              false,
		"redis+stream://user:hunter@127.0.0.1:1":                                   true,
		"redis+stream://user:hunter/65432@" + server.Addr():                        false,
		"redis+stream://user:hunter@h:1?maxlen=hunter":                             false,
		"redis+stream://user:hunter@h:1?hunter=1":                                  false,
		"redis+stream://user:hunter%zz@" + server.Addr():                           false,
		"unix+stream://user:hunter@/no/such/socket":                                true,
		"redis+stream://user:hunter@127.0.0.1:1,127.0.0.1:2":                       true,
		"redis+stream://user:hunter@127.0.0.1:1,127.0.0.1:2/3":                     false,
		"redis+stream://user:hunter@" + server.Addr() + "?cloudevents=hunter&a=%z": false,
	} {
		s, err := d.Open(t.Context(), url, sink.Options{})
		if err == nil {
			t.Errorf("%s: no error", url)
			_ = s.Close()
			continue
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			if text := e.Error(); strings.Contains(text, "hunter") || strings.Contains(text, "65432") {
				t.Errorf("%s: the error is %q", url, text)
			}
		}
		if class, _ := outbox.Classify(err); (class == outbox.ClassUnavailable) != waits {
			t.Errorf("%s: class %v of %v", url, class, err)
		}
	}
}

func TestConfigProblemsAllAtOnce(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), "nonsense", Config{Window: time.Microsecond, Prefix: "a{b}", MaxLen: -1, MaxAge: -1})
	for _, field := range []string{"Window", "Prefix", "MaxLen", "MaxAge", "URL"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("Open says nothing of %s: %v", field, err)
		}
	}
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	if _, err = New(ring, Config{Window: 1, TLS: &tls.Config{}}); err == nil || !strings.Contains(err.Error(), "Window") ||
		!strings.Contains(err.Error(), "Ring") || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("New: %v", err)
	}
	if _, err = New(nil, Config{}); err == nil {
		t.Error("New takes a nil client")
	}
}

func TestDriver(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	d := Driver()
	for url, masked := range map[string]string{
		"redis+stream://" + server.Addr() + "?create=true":  "redis+stream://" + server.Addr(),
		"unix+stream://" + server.Socket() + "?create=true": "unix+stream://" + server.Socket(),
	} {
		s, err := d.Open(t.Context(), url, sink.Options{Window: time.Minute, Prefix: "driver:"})
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Mask(url); got != masked {
			t.Errorf("%s is shown as %s", url, got)
		}
		if err := s.Abilities().Ping(t.Context()); err != nil {
			t.Error(err)
		}
		if got := s.Publish(t.Context(), []outbox.Delivery{event(t, "s", 1)}); got[0] != (outbox.Result{}) {
			t.Errorf("answered %+v", got)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if keys := admin.Keys(t.Context(), "driver:stream:{*").Val(); len(keys) == 0 {
		t.Error("the prefix is not that of the options")
	}
	if hosts := d.Plaintext("redis+stream://u:p@a:1,localhost:2,b:3"); strings.Join(hosts, " ") != "a b" {
		t.Errorf("without TLS are %q", hosts)
	}
	if hosts := d.Plaintext("rediss+stream://a:1"); hosts != nil {
		t.Errorf("without TLS are %q", hosts)
	}
}

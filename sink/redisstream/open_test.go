package redisstream

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/sink"
)

func TestURLs(t *testing.T) {
	t.Parallel()
	sinktest.URLs{
		Check: map[string]string{
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
		},
		Plaintext: map[string]string{
			"redis+stream://u:p@a:1,localhost:2,b:3": "a b", "rediss+stream://a:1": "",
		},
		Encrypted: map[string]string{
			"rediss+stream://u:p@a,b:1?create=true": "a:6379 b:1", "redis+stream://a": "", "rediss://a": "",
		},
		Mask: map[string]string{
			"redis+stream://u:hunter2@h:1?create=true":  "redis+stream://h:1",
			"unix+stream:///run/redis.sock?create=true": "unix+stream:///run/redis.sock",
		},
	}.Test(t, Driver())
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

// What comes of a URL, and that no error has a piece of its password, whatever the mistake.
func TestDriver(t *testing.T) {
	t.Parallel()
	server, guarded := testenv.RedisServer(t), testenv.RedisServer(t)
	do(t, connectAdmin(t, guarded), "CONFIG", "SET", "requirepass", "right")
	d := Driver()
	sinktest.Opens(t, d, map[string]sinktest.Opening{
		"unix+stream://" + server.Socket() + "?create=true":                         {Opens: true},
		"redis+stream://:hunter@" + guarded.Addr():                                  {Hint: "password"},
		"redis+stream://user:hunter@" + guarded.Addr():                              {Hint: "password"},
		"redis+stream://user:hunter@127.0.0.1:1":                                    {Waits: true},
		"redis+stream://user:hunter/65432@" + guarded.Addr():                        {},
		"redis+stream://user:hunter@h:1?maxlen=hunter":                              {},
		"redis+stream://user:hunter@h:1?hunter=1":                                   {},
		"redis+stream://user:hunter%zz@" + guarded.Addr():                           {},
		"unix+stream://user:hunter@/no/such/socket":                                 {Waits: true},
		"redis+stream://user:hunter@127.0.0.1:1,127.0.0.1:2":                        {Waits: true},
		"redis+stream://user:hunter@127.0.0.1:1,127.0.0.1:2/3":                      {},
		"redis+stream://user:hunter@" + guarded.Addr() + "?cloudevents=hunter&a=%z": {},
	})
	s, err := d.Open(t.Context(), "redis+stream://"+server.Addr()+"?create=true",
		sink.Options{Window: time.Minute, Prefix: "driver:"})
	deliver(t, sinktest.Closing(t, s, err), event(t, "s", 1))
	if keys := connectAdmin(t, server).Keys(t.Context(), "driver:stream:{*").Val(); len(keys) == 0 {
		t.Error("the prefix is not that of the options")
	}
}

package redispubsub

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/redistest"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/sink"
)

func TestURLs(t *testing.T) {
	t.Parallel()
	sinktest.URLs{
		Check: map[string]string{
			"redis://h": "", "redis://u:p@h:6379/0": "", "redis://h1:7000,h2:7001": "", "redis://[::1]:6379": "",
			"unix:///run/redis.sock": "", "redis://:99999@h": "",
			"redis://h:99999/0": "65535", "redis://h:0": "65535", "redis://h1:7000,h2:70001": "65535",
			"redis://u:hunter2@h:x": "65535", "redis://u:hunter2@h/x": "not of the form", "redis://u:hunt/er2@h": "%2F",
			"redis://h?hunter2=1":            "parameter that nobody knows",
			"redis://h?read_timeout=hunter2": "value that one does not take",
		},
		Plaintext: map[string]string{
			"redis://cache:6379/0": "cache", "redis://u:p@10.0.0.7": "10.0.0.7", "redis://[2001:db8::1]:6379": "2001:db8::1",
			"redis://a:1,localhost:2,b:3/0": "a b", "redis://127.0.0.1:6379": "", "redis://localhost": "",
			"redis://[::1]:6379/0?db=1": "", "rediss://cache:6379": "", "unix:///run/redis.sock": "",
		},
		Encrypted: map[string]string{"rediss://a": "a:6379", "redis://a": "", "unix:///run/redis.sock": ""},
	}.Test(t, Driver())
}

// What comes of a URL, and that no error has a piece of its password, whatever the mistake.
func TestDriver(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	do(t, connectAdmin(t, server), "CONFIG", "SET", "requirepass", "right")
	sinktest.Opens(t, Driver(), map[string]sinktest.Opening{
		"redis://:right@" + server.Addr():             {Opens: true},
		"redis://" + server.Addr():                    {Hint: "password"},
		"redis://:hunter@" + server.Addr():            {Hint: "password"}, // wrong
		"redis://user:hunter@" + server.Addr():        {Hint: "password"}, // unknown user
		"redis://user:hunter@127.0.0.1:1":             {Waits: true, Hint: "is Redis running there?"},
		"redis://user:hunter@127.0.0.1:1,127.0.0.1:2": {Waits: true, Hint: "is Redis running there?"},
		"unix://user:hunter@/no/such/socket":          {Waits: true},
		"redis://user:hunter@" + startParrot(t):       {Waits: true},
		"redis://user:hunter/65432@" + server.Addr():  {},
		"redis://user:65432/hunter@" + server.Addr():  {},
		"redis://user:65432#hunter@" + server.Addr():  {}, // a host named user, a port out of the password
		"redis://user:65432?hunter@" + server.Addr():  {},
		"redis://user:hunter%zz@" + server.Addr():     {},
		"redis://user:hunter@@h:port":                 {},
		"redis://user:hunter@h:1,h:port":              {},
		"redis://user:hunter@h:1,h:2/3":               {},
		"redis://user:hunter@h:1/three":               {},
		"redis://user:hunter@h:1?hunter=1":            {},
		"redis://user:hunter@h:1?db=hunter":           {},
		"http://user:hunter@h:1":                      {},
		"user:hunter@h:1":                             {},
		"\x7fredis://user:hunter@h":                   {},
	})
	heard, err := Driver().Subscribe("redis://:right@"+server.Addr(), sink.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if state := heard.State(); state.Up || state.Err != nil {
		t.Errorf("before Run: got %+v", state)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- heard.Run(ctx) }()
	eventually(t, func() bool { return heard.State().Up })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// startParrot runs a server that answers every command with an error that repeats it, as proxies do
// with what they do not know.
func startParrot(t *testing.T) string {
	return sinktest.Serve(t, func(conn net.Conn) {
		commands := bufio.NewScanner(conn)
		var words []string
		for commands.Scan() {
			words = append(words, commands.Text())
			if word := commands.Text(); word == "hunter" || word == "lib-name" {
				_, _ = conn.Write([]byte("-ERR unknown command, with args beginning with: " + strings.Join(words, " ") + "\r\n"))
			}
		}
	})
}

func TestConfigProblemsAllAtOnce(t *testing.T) {
	_, err := Open(t.Context(), "nonsense", Config{Window: time.Microsecond, Prefix: "a{b}"})
	if err == nil || !strings.Contains(err.Error(), "Window") || !strings.Contains(err.Error(), "Prefix") ||
		!strings.Contains(err.Error(), "URL") {
		t.Errorf("Open: %v", err)
	}
	if _, err = Open(t.Context(), "redis://h", Config{TLS: &tls.Config{}}); err == nil ||
		!strings.Contains(err.Error(), "rediss://") {
		t.Errorf("Open with TLS that the URL does not ask for: %v", err)
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

func TestUnixSocket(t *testing.T) {
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	do(t, admin, "ACL", "SETUSER", "me", "on", ">p/@ss", "~*", "&*", "+@all")
	sink := openURL(t, "unix://me:p%2F%40ss@"+server.Socket(), Config{Envelope: idEnvelope})
	sub := subscribe(t, admin, "c")
	d := event(t, "c", 1)
	deliver(t, sink, d)
	sub.want("c", ids(d)...)
}

func TestTLS(t *testing.T) {
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	ca, cert, key := sinktest.Certificate(t, server.Dir()) // the server's user can read there
	url := "rediss://127.0.0.1:" + redistest.EnableTLS(t, admin, cert, key)
	_, err := Open(t.Context(), url, Config{})
	sinktest.WantClass(t, err, outbox.ClassPermanent, "certificate")
	sink := openURL(t, url, Config{TLS: &tls.Config{RootCAs: ca}, Envelope: idEnvelope})
	sub := subscribe(t, admin, "c")
	d := event(t, "c", 1)
	deliver(t, sink, d)
	sub.want("c", ids(d)...)
}

// What Redis 6.2, 7.0 and 7.2 say when a script may not publish.
func TestRefusal(t *testing.T) {
	for text, want := range map[string]outbox.Class{
		"ERR The user executing the script can't publish to the channel mentioned in the command":  outbox.ClassRetryable,
		"NOPERM ACL failure in script: User relay has no permissions to access the 'c' channel":    outbox.ClassRetryable,
		"ERR The user executing the script can't run this command or subcommand":                   outbox.ClassUnavailable,
		"NOPERM ACL failure in script: User relay has no permissions to run the 'publish' command": outbox.ClassUnavailable,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":         outbox.ClassUnavailable,
	} {
		if class, _ := outbox.Classify(refusal("c", text)); class != want {
			t.Errorf("%s: class %v, want %v", text, class, want)
		}
	}
}

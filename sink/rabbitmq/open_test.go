package rabbitmq

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]struct {
		hosts                 []string
		user, password, vhost string
		binary, declare       bool
	}{
		"amqp://h":                    {[]string{"h:5672"}, "guest", "guest", "/", false, false},
		"amqps://h/":                  {[]string{"h:5671"}, "guest", "guest", "/", false, false},
		"amqp://u:p%2F%40@h:1/shop":   {[]string{"h:1"}, "u", "p/@", "shop", false, false},
		"amqp://u:p@h/%2Fa%2Fb":       {[]string{"h:5672"}, "u", "p", "/a/b", false, false},
		"amqp://u:p@a,b:2,[::1]/v":    {[]string{"a:5672", "b:2", "[::1]:5672"}, "u", "p", "v", false, false},
		"amqp://h?cloudevents=binary": {[]string{"h:5672"}, "guest", "guest", "/", true, false},
		"amqp://h/v?cloudevents=structured&declare=quorum&heartbeat=5": {[]string{"h:5672"}, "guest", "guest", "v",
			false, true},
	} {
		var cfg Config
		got, err := parse(url, &cfg)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if !slices.Equal(got.Hosts, want.hosts) || got.uri.Username != want.user || got.uri.Password != want.password ||
			got.uri.Vhost != want.vhost || cfg.Binary != want.binary || cfg.Declare != want.declare {
			t.Errorf("%s: got %+v", url, got)
		}
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	sinktest.URLs{
		Check: map[string]string{
			"amqp://h": "", "amqps://u:p@h:5671/v": "", "amqp://a,b:2/": "", "amqp://[::1]:5672": "",
			"amqp://u:hunter2@h:0": "none of 1 to 65535", "amqp://u:hunter2@h:99999": "none of 1 to 65535",
			"amqp://u:hunter2@h/v?declare=classic": "quorum", "amqp://u:hunter2@h/v?cloudevents=both": "structured",
			"amqp://u:hunter2@h/v?hunter2=1": "an option that is none of", "amqp://u:hunt/er2@h": "%2F",
			"amqp://u:hunter2@h,": "not of the form",
		},
		Plaintext: map[string]string{
			"amqp://mq:5672/v": "mq", "amqp://u:p@10.0.0.7": "10.0.0.7", "amqp://[2001:db8::1]:5672": "2001:db8::1",
			"amqp://a:1,localhost:2,b:3/": "a b", "amqp://127.0.0.1": "", "amqp://localhost": "",
			"amqp://[::1]:5672/v": "", "amqps://mq": "",
		},
		Encrypted: map[string]string{"amqps://a/v": "a:5671", "amqp://a": ""},
		Mask:      map[string]string{"amqp://u:hunter2@h:5672/v?declare=quorum": "amqp://h:5672/v"},
	}.Test(t, Driver())
}

// What comes of a URL, and that no error has a piece of its password, whatever the mistake.
func TestDriver(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	user := "limited_" + b.vhost
	b.Eval(t, fmt.Sprintf(`rabbit_auth_backend_internal:add_user(<<%q>>, <<"pw">>, <<"test">>).`, user))
	running := "is RabbitMQ running there?"
	sinktest.Opens(t, Driver(), map[string]sinktest.Opening{
		b.url():                           {Opens: true},
		"amqp://guest:hunter@" + b.Addr(): {Hint: "password"}, // wrong
		"amqp://user:hunter@" + b.Addr():  {Hint: "password"}, // unknown user
		b.URL("no-such-vhost"):            {Hint: "virtual host"},
		"amqp://" + user + ":pw@" + b.Addr() + "/" + b.vhost: {Hint: "rights"},
		"amqp://user:hunter@127.0.0.1:1":                     {Waits: true, Hint: running},
		"amqp://user:hunter@127.0.0.1:1,127.0.0.1:2":         {Waits: true, Hint: running},
		"amqps://user:hunter@" + b.Addr():                    {Waits: true, Hint: running}, // no TLS there
		"amqp://user:hunter@" + startParrot(t):               {Waits: true},
		"amqp://user:hunter/65432@" + b.Addr():               {},
		"amqp://user:65432/hunter@" + b.Addr():               {},
		"amqp://user:65432#hunter@" + b.Addr():               {},
		"amqp://user:65432?hunter@" + b.Addr():               {},
		"amqp://user:hunter%zz@" + b.Addr():                  {},
		"amqp://user:hunter 2@" + b.Addr():                   {},
		"amqp://user:hunter@@h:port":                         {},
		"amqp://user:hunter@h:1,h:port":                      {},
		"amqp://user:hunter@h:1?hunter=1":                    {},
		"amqp://user:hunter@h:1?declare=hunter":              {},
		"amqp://user:hunter@h:1?cloudevents=hunter":          {},
		"amqp://user:hunter@h:1?heartbeat=hunter":            {},
		"amqp://user:hunter@h:70000":                         {},
		"amqp://user:hunter@h/v#hunter":                      {},
		"http://user:hunter@h:1":                             {},
		"user:hunter@h:1":                                    {},
		"\x7famqp://user:hunter@h":                           {},
	})
}

// startParrot runs a server that accepts connections and says in its first frame, which closes the
// connection, what it would have been told: the password.
func startParrot(t *testing.T) string {
	return sinktest.Serve(t, func(conn net.Conn) {
		_, _ = bufio.NewReader(conn).ReadString(1)
		text := "no: hunter"
		payload := append([]byte{0, 10, 0, 50, 1, 147, byte(len(text))}, text...) // connection.close, 403
		payload = append(payload, 0, 0, 0, 0)
		frame := append([]byte{1, 0, 0, 0, 0, 0, byte(len(payload))}, payload...)
		_, _ = conn.Write(append(frame, 206))
	})
}

// FuzzParseURL: whatever the URL, an error says nothing of it.
func FuzzParseURL(f *testing.F) {
	for _, url := range []string{"amqp://u:p@h:1,h2/v?declare=quorum", "://", "amqps://[::1", "amqp://a:1:2",
		"amqp://@,@,", "amqp:///v", "amqp://h?cloudevents=x"} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		got, err := parse(url, &Config{})
		if err == nil {
			if len(got.Hosts) == 0 || slices.Contains(got.Hosts, "") {
				t.Errorf("hosts %q", got.Hosts)
			}
			return
		}
		if url != "" && len(url) > 5 && strings.Contains(err.Error(), url) {
			t.Errorf("the error is %q", err)
		}
	})
}

// One host of several that answers is enough.
func TestSeveralHosts(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.queue(t, "q", nil)
	s := open(t, "amqp://127.0.0.1:1,"+b.Addr()+"/"+b.vhost, Config{})
	deliver(t, s, newEvent(t, "q", 1))
}

func TestTLS(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.queue(t, "q", nil)
	dir, err := os.MkdirTemp("", "outbox-rabbit-") // the server's user can read there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ca, cert, key := sinktest.Certificate(t, dir)
	port := sinktest.FreePort(t)
	b.Eval(t, fmt.Sprintf(`application:ensure_all_started(ssl), rabbit_networking:start_ssl_listener({"127.0.0.1", %s},
		[{certfile, %q}, {keyfile, %q}], 1).`, port, cert, key))
	url := "amqps://guest:guest@127.0.0.1:" + port + "/" + b.vhost

	_, err = Open(t.Context(), url, Config{})
	wantClass(t, err, outbox.ClassPermanent, "certificate")
	deliver(t, open(t, url, Config{TLS: &tls.Config{RootCAs: ca}}), newEvent(t, "q", 1))
	deliver(t, open(t, url+"?cacertfile="+cert, Config{}), newEvent(t, "q", 1))
	if got := len(b.stored(t, "q")); got != 2 {
		t.Errorf("%d messages arrived, want 2", got)
	}
}

// A client of somebody's own, and what New refuses.
func TestNew(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.queue(t, "q", nil)
	connections := 0
	s, err := New(func(context.Context) (*amqp.Connection, error) {
		connections++
		return amqp.Dial(b.url())
	}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	deliver(t, s, newEvent(t, "q", 1))
	if err := s.Abilities().Ping(t.Context()); err != nil || connections != 1 {
		t.Errorf("ping: %v after %d connections", err, connections)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	wantClass(t, s.Abilities().Ping(t.Context()), outbox.ClassUnavailable)
	wantClass(t, s.Publish(t.Context(), []outbox.Delivery{newEvent(t, "q", 1)})[0].Err, outbox.ClassUnavailable)

	_, err = New(nil, Config{TLS: &tls.Config{}})
	if err == nil || !strings.Contains(err.Error(), "connect") || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("New: %v", err)
	}
	_, err = Open(t.Context(), "amqp://h", Config{TLS: &tls.Config{}})
	if err == nil || !strings.Contains(err.Error(), "amqps://") {
		t.Errorf("Open with TLS that the URL does not ask for: %v", err)
	}
}

// A server that accepts connections and says nothing: Open returns with its context.
func TestOpenReturns(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	p := sinktest.NewProxy(t, b.Addr())
	defer p.Stall()()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := Open(ctx, behind(p, b.vhost), Config{})
	wantClass(t, err, outbox.ClassUnavailable)
}

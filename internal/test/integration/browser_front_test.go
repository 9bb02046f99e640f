package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox/server/gateway"
	"github.com/outboxrelay/outbox/server/stream"
	"github.com/outboxrelay/outbox/server/token"
	"github.com/outboxrelay/outbox/sink/redispubsub"
)

// gatewayAt is one gateway after the other, all at the same address.
type gatewayAt struct {
	*streams
	auth    *token.Authenticator
	address string // host:port
	stop    func()
}

// start starts a gateway. stop, or the end of the test, ends it as internal/app does: the listener
// first, then the streams.
func (g *gatewayAt) start(t *testing.T) {
	t.Helper()
	listener := g.listen(t)
	live := must(redispubsub.OpenListener(g.redis.URL(), redispubsub.ListenerConfig{Logger: quiet}))(t)
	hub := stream.New(gateway.Log(g.store, 6), live, stream.Config{Logger: quiet})
	gate := must(gateway.New(gateway.Config{
		Runs: g.runs, Hub: hub, Auth: g.auth, Logger: quiet,
		Streams: gateway.StreamConfig{DrainWindow: 100 * time.Millisecond},
	}))(t)
	server := &http.Server{Handler: gate.Handler(), ReadHeaderTimeout: 5 * time.Second}
	endServer := inBackground(t, func(ctx context.Context) error {
		var serving errgroup.Group
		serving.Go(func() error { return server.Serve(listener) })
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		serving.Go(func() error { return server.Shutdown(ctx) })
		gate.DrainStreams(ctx)
		if err := serving.Wait(); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	endHub, endLive := inBackground(t, hub.Run), inBackground(t, live.Run)
	g.stop = sync.OnceFunc(func() {
		endServer()
		endHub()
		endLive()
	})
	t.Cleanup(g.stop)
}

// listen takes a port of its own at the first start. It is below those that the kernel gives to
// outgoing connections, so that nobody takes it while the gateway is away.
func (g *gatewayAt) listen(t *testing.T) net.Listener {
	t.Helper()
	if g.address != "" {
		return must(net.Listen("tcp", g.address))(t)
	}
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 23000+rand.IntN(9000))
		if listener, err := net.Listen("tcp", address); err == nil {
			g.address = address
			return listener
		}
	}
}

// example builds examples/browser once.
var example = sync.OnceValues(func() (string, error) {
	program, err := binary()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(program), "browser")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, "../../../examples/browser")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the example: %w\n%s", err, out)
	}
	return path, nil
})

// startExample starts examples/browser and returns the address that it prints.
func startExample(t *testing.T, gatewayAddress, secret, run string) *url.URL {
	t.Helper()
	path, err := example()
	noError(t, err)
	cmd := exec.Command(path, "-gateway", "http://"+gatewayAddress, "-listen", "127.0.0.1:0", "-run", run)
	cmd.Env = append(os.Environ(), "OUTBOX_TOKEN="+secret)
	var said bytes.Buffer // lines of the proxy about connections that were cut, which is what the test does
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	noError(t, err)
	noError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the example said:\n%s", said.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = cmd.Wait()
		t.Fatalf("the example ended: %s", said.String())
	}
	address, err := url.Parse(strings.TrimSpace(line))
	noError(t, err)
	return address
}

// report is what the page shows.
type report struct {
	Loads  int // of the page, so far
	State  string
	Count  int
	Heap   int
	Markup int          // elements that a payload has made
	Events []shownEvent // at the end
}

type shownEvent struct {
	Seq  int64
	Text string
}

func (r report) ended() bool { return r.State == "ended" && len(r.Events) > 0 }

// reporter is appended to the page: it tells what the page shows, as a reader would see it, until
// it has told the end.
const reporter = `<script>
const loads = Number(sessionStorage.getItem("loads") ?? 0) + 1
sessionStorage.setItem("loads", loads)
async function tell() {
  const items = [...document.querySelectorAll("#events li")], state = document.getElementById("state").textContent
  const events = state === "ended" ? items.map(i => ({ seq: i.value, text: i.textContent })) : []
  const markup = document.querySelectorAll("#events li *").length
  const heap = performance.memory.usedJSHeapSize
  try {
    const answer = await fetch("/test/report", { method: "POST", body: JSON.stringify({ loads, state, count: items.length, heap, markup, events }) })
    if (await answer.text() === "reload") location.reload()
  } catch {} // cut off, like everything else
  setTimeout(tell, 50)
}
tell()
</script>`

// front is between the browser and the example's server: it cuts connections, counts streams, and
// hears from the page what it shows.
type front struct {
	*httptest.Server
	streams, resumed, refused, tickets atomic.Int64
	page                               atomic.Pointer[[]byte]
	reload                             atomic.Bool // to be told to the page
	cutting                            chan struct{}

	mu     sync.Mutex
	latest report
}

func newFront(t *testing.T, to *url.URL) *front {
	t.Helper()
	f := &front{cutting: make(chan struct{})}
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: to.Scheme, Host: to.Host}) },
		FlushInterval:  -1,
		ModifyResponse: f.look,
		ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		ErrorLog:       slog.NewLogLogger(quiet.Handler(), slog.LevelError), // of cuts
	}
	mux := http.NewServeMux()
	mux.Handle("/", proxy)
	mux.HandleFunc("POST /test/report", func(w http.ResponseWriter, r *http.Request) {
		var told report
		if err := json.NewDecoder(r.Body).Decode(&told); err != nil {
			w.WriteHeader(http.StatusBadRequest) // cut off in the middle
			return
		}
		f.mu.Lock()
		if told.Loads >= f.latest.Loads {
			f.latest = told
		}
		f.mu.Unlock()
		if f.reload.CompareAndSwap(true, false) {
			_, _ = io.WriteString(w, "reload") // fails if the browser has gone
		}
	})
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	return f
}

func (f *front) last() report {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.latest
}

// look sees what the example's server answers.
func (f *front) look(answer *http.Response) error {
	switch path, ok := answer.Request.URL.Path, answer.StatusCode < 300; {
	case path == "/":
		page, err := io.ReadAll(answer.Body)
		if err != nil {
			return err
		}
		f.page.Store(&page)
		page = append(page[:len(page):len(page)], reporter...)
		answer.Body = io.NopCloser(bytes.NewReader(page))
		answer.ContentLength = int64(len(page))
		answer.Header.Set("Content-Length", fmt.Sprint(len(page)))
	case path == "/v1/stream-tickets" && ok:
		f.tickets.Add(1)
	case strings.HasSuffix(path, "/stream") && ok:
		f.streams.Add(1)
		if answer.Request.Header.Get("Last-Event-ID") != "" {
			f.resumed.Add(1)
		}
		answer.Body = &cutBody{ReadCloser: answer.Body, cutting: f.cutting}
	case strings.HasSuffix(path, "/stream") && answer.StatusCode == http.StatusUnauthorized:
		f.refused.Add(1)
	}
	return nil
}

// cutStream has the stream broken off within an event: all of its lines have arrived, and not the
// empty one that ends it.
func (f *front) cutStream() {
	select {
	case f.cutting <- struct{}{}:
	case <-time.After(10 * time.Second): // nothing arrives, which the test notices
	}
}

type cutBody struct {
	io.ReadCloser
	cutting <-chan struct{}
	cut     bool
}

var errCut = errors.New("cut by the test")

func (b *cutBody) Read(p []byte) (int, error) {
	if b.cut {
		return 0, errCut
	}
	n, err := b.ReadCloser.Read(p)
	if n < 100 { // not the greeting, nor a heartbeat
		return n, err
	}
	select {
	case <-b.cutting:
		b.cut = true
		return n - 1, err
	default:
		return n, err
	}
}

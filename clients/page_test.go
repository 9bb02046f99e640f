package clients

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// The hook in a browser, which has no token: its page's server adds that to the request for a
// ticket. The gateway is killed on the way, and each event is shown once, in order.
func TestHook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	script := filepath.Join(t.TempDir(), "page.js")
	tool(t, "typescript", "npx", "esbuild", "test/page/page.jsx", "--bundle", "--jsx=automatic", "--outfile="+script)
	run := w.run1(t)

	type view struct {
		State, Last string
		IDs         []int
	}
	shown := make(chan view, 1000)
	gateway := &url.URL{Scheme: "http", Host: w.address}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(gateway)
		if r.In.Method == http.MethodPost {
			r.Out.Header.Set("Authorization", "Bearer "+w.token)
		}
	}}
	mux := http.NewServeMux()
	mux.Handle("POST /v1/stream-tickets", proxy)
	mux.Handle("GET /v1/runs/{id}/stream", proxy)
	mux.HandleFunc("GET /page.js", func(rw http.ResponseWriter, r *http.Request) { http.ServeFile(rw, r, script) })
	mux.HandleFunc("GET /{$}", func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(rw, `<!doctype html><meta charset="utf-8"><body><script src="page.js"></script>`)
	})
	mux.HandleFunc("POST /shown", func(_ http.ResponseWriter, r *http.Request) {
		var v view
		if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
			t.Error(err)
		}
		shown <- v
	})
	page := httptest.NewServer(mux)
	t.Cleanup(page.Close)
	if err := testenv.ChromiumBrowser(t).Open(t.Context(), page.URL+"/?run="+run); err != nil {
		t.Fatal(err)
	}
	until := func(what string, holds func(view) bool) view {
		t.Helper()
		for deadline := time.After(tier.Patience()); ; {
			select {
			case v := <-shown:
				if holds(v) {
					return v
				}
			case <-deadline:
				t.Fatalf("never: %s", what)
			}
		}
	}
	until("two events", func(v view) bool { return len(v.IDs) == 2 })
	w.kill()
	until("a page that waits", func(v view) bool { return v.State == "waiting" })
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	w.post(t, "/v1/runs/"+run+"/events", `{"events":[`+strings.Repeat(event+",", 99)+event+`]}`)
	w.post(t, "/v1/runs/"+run+"/complete", "{}")
	v := until("the end", func(v view) bool { return v.State == "ended" })
	for i, id := range v.IDs {
		if id != i+1 {
			t.Fatalf("the events are %v", v.IDs)
		}
	}
	if len(v.IDs) != 103 || v.Last != "RUN_COMPLETED" {
		t.Errorf("%d events, the last is %s", len(v.IDs), v.Last)
	}
}

const event = `{"type":"ACTION_EXECUTED","payload":{"tap":true}}`

// run1 makes a run with one event after its start.
func (w *world) run1(t *testing.T) (id string) {
	t.Helper()
	var made struct{ RunID string }
	if err := json.Unmarshal(w.post(t, "/v1/runs", `{"appPackage":"com.example.shop"}`), &made); err != nil {
		t.Fatal(err)
	}
	w.post(t, "/v1/runs/"+made.RunID+"/start", "{}")
	w.post(t, "/v1/runs/"+made.RunID+"/events", `{"events":[`+event+`]}`)
	return made.RunID
}

// post sends a request to the gateway, which must take it.
func (w *world) post(t *testing.T, path, body string) []byte {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+w.address+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+w.token)
	request.Header.Set("Content-Type", "application/json")
	return do(t, request)
}

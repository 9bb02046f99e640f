// Command browser shows a run in a browser while it runs. It needs an `outbox serve`, and a token
// with the scopes read and write in OUTBOX_TOKEN if that wants one. It makes a run of the built-in
// demonstration crawler, and prints the address of a page that shows it. index.html is the part to
// read: a native EventSource, without a library.
//
// It guarantees that the token stays here. The page gets tickets, each good for one stream, and
// only a page of its own address gets any. Another site's page cannot ask for one, not even under a
// name that it has given this address (DNS rebinding). It does not ask who looks at the page, as an
// application would before it gives out a ticket.
package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"
)

//go:embed index.html
var page []byte

func main() {
	gateway := flag.String("gateway", cmp.Or(os.Getenv("OUTBOX_SERVER"), "http://127.0.0.1:8080"),
		"where outbox serve answers")
	listen := flag.String("listen", "127.0.0.1:8090", "where this program answers")
	run := flag.String("run", "", "the run to show (default: a new one)")
	flag.Parse()
	if err := serve(*gateway, *listen, *run, os.Getenv("OUTBOX_TOKEN")); err != nil {
		log.Fatal(err)
	}
}

func serve(gateway, listen, run, token string) error {
	target, err := url.Parse(gateway)
	if err != nil {
		return fmt.Errorf("parse the gateway's address: %w", err)
	}
	if run == "" {
		if run, err = newRun(target, token); err != nil {
			return err
		}
	}
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1, // each event at once
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target) // and with it the Host: guarded has looked at the one that came
			if r.In.Method == http.MethodPost {
				authorize(r.Out, token) // for a ticket; a stream has one
			}
		},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", policy)
		_, _ = w.Write(page) // fails if the browser has gone
	})
	mux.Handle("POST /v1/stream-tickets", proxy)
	mux.Handle("GET /v1/runs/{id}/stream", proxy)
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	fmt.Printf("http://%s/?run=%s\n", listener.Addr(), run)
	// No WriteTimeout: a stream may last.
	server := http.Server{Handler: guarded(mux, listen), ReadHeaderTimeout: 5 * time.Second}
	return server.Serve(listener)
}

// policy lets the page run its own script, and speak to nobody but this program.
const policy = "default-src 'none'; script-src 'unsafe-inline'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guarded lets requests through that name this program as their Host, and of those that change
// something only its own page's.
func guarded(next http.Handler, listen string) http.Handler {
	own, _, _ := net.SplitHostPort(listen) // "" where it listens on all addresses
	next = http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "no-referrer") // a stream's URL has a ticket
		name := (&url.URL{Host: r.Host}).Hostname()
		if name != "localhost" && net.ParseIP(name) == nil && (own == "" || name != own) {
			http.Error(w, "this program answers to localhost and IP addresses only", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// newRun makes a run that the gateway's worker crawls.
func newRun(gateway *url.URL, token string) (string, error) {
	body := []byte(`{"appPackage": "com.example.shop", "crawler": "demo"}`)
	request, err := http.NewRequest(http.MethodPost, gateway.JoinPath("v1/runs").String(), bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	authorize(request, token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("make a run: %w (is outbox serve running?)", err)
	}
	defer func() { _ = answer.Body.Close() }()
	var made struct{ RunID, Detail string }
	if err := json.NewDecoder(answer.Body).Decode(&made); err != nil || answer.StatusCode != http.StatusCreated {
		return "", errors.Join(fmt.Errorf("make a run: status %s: %s", answer.Status, made.Detail), err)
	}
	return made.RunID, nil
}

func authorize(r *http.Request, token string) {
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
}

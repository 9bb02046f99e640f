package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/metrics"
	"github.com/outboxrelay/outbox/server/gateway"
)

// neighbour tells whether a request comes from this machine, and not through a proxy on it.
func neighbour(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return err == nil && net.ParseIP(host).IsLoopback() && r.Header.Get("X-Forwarded-For") == "" &&
		r.Header.Get("Forwarded") == ""
}

// watchServer serves /metrics, /healthz and /readyz to whoever watches the process.
type watchServer struct {
	http     *http.Server
	listener net.Listener
}

// listen binds the address. Port 0 takes a free one, which the log names.
func listen(
	ctx context.Context, address string, m *metrics.Metrics, health *Health, log *slog.Logger,
) (*watchServer, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w: choose another address with --listen", address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", scraped(m))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "alive"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		report := health.Report()
		if !neighbour(r) {
			report = report.forStrangers()
		}
		answer(w, readiness(report.Ready), report)
	})
	// For a balancer before several gateways: one whose relay waits for its sink serves streams all
	// the same.
	mux.HandleFunc("GET /readyz/{part}", func(w http.ResponseWriter, r *http.Request) {
		report, ok := health.Report().Parts[r.PathValue("part")]
		if !ok {
			answer(w, http.StatusNotFound, map[string]string{"reason": "this process has no such part"})
			return
		}
		if !neighbour(r) {
			report = report.forStrangers()
		}
		answer(w, readiness(report.Ready), report)
	})
	if config.Exposed(address) {
		log.Warn("other machines can reach /metrics, /healthz and /readyz, which ask nobody who he is: "+
			"listen on 127.0.0.1, or let only what watches this process through", "address", address)
	}
	var handler http.Handler = mux
	if !config.Exposed(address) {
		handler = private(mux) // other machines come by a name of this one, which the address then says
	}
	log.Info("listening", "address", listener.Addr().String(), "paths", []string{"/metrics", "/healthz", "/readyz"})
	return &watchServer{
		listener: listener,
		http: &http.Server{
			Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 15 * time.Second,
			IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
	}, nil
}

// scraped answers with the metrics.
func scraped(m *metrics.Metrics) http.Handler {
	return promhttp.HandlerFor(m, promhttp.HandlerOpts{MaxRequestsInFlight: 8, Timeout: 5 * time.Second})
}

// private refuses names that a page may have given to a loopback address (DNS rebinding), as the
// API does.
func private(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !gateway.Named(r.Host) {
			answer(w, http.StatusMisdirectedRequest,
				map[string]string{"reason": "on a loopback address this answers to localhost and IP addresses only"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

func readiness(ready bool) int {
	if ready {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails only if nobody waits for the answer any more
}

// serve returns when shutdown is called, or with the error that ended it.
func (s *watchServer) serve() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics and health: %w", err)
	}
	return nil
}

// shutdown lets requests finish. ctx may have ended.
func (s *watchServer) shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		return fmt.Errorf("stop serving metrics and health: %w", errors.Join(err, s.http.Close()))
	}
	return nil
}

package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/rs/cors"
)

type requestIDKey struct{}

// requestID returns the id under which a request is in the log.
func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string) // identified has set it
	return id
}

// identified gives each request an id, the client's if it sent a harmless one, and sends it back.
func (g *Gateway) identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Request-Id")
		if id == "" || len(id) > 128 || secrets.MatchString(id) ||
			strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' }) {
			id = uuid.NewString()
		}
		w.Header().Set("X-Request-Id", id)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id)))
	})
}

// limited bounds the time of a request, also of one that somebody without a token makes. It does so also when net/http
// does the waiting: before it answers it reads what the handler has left of the body. Of a stream's writes each has a
// limit of its own.
func (g *Gateway) limited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun, rc := time.Now(), http.NewResponseController(w)
		_ = rc.SetWriteDeadline(begun.Add(2 * g.cfg.Timeout)) // only a recorder of a test has none
		if r.ContentLength != 0 {
			_ = rc.SetReadDeadline(begun.Add(readTimeout(g.cfg.Timeout)))
			r = r.WithContext(r.Context()) // net/http looks at the body of its own request
			r.Body = &limitedBody{r.Body, rc}
		}
		next.ServeHTTP(w, r)
	})
}

// readTimeout is how long a body may take. It leaves time to answer, and is longer than a request may be worked on: see
// limitedBody.
func readTimeout(timeout time.Duration) time.Duration { return timeout + timeout/2 }

// limitedBody takes the limit away when all of the body is there. From then on net/http reads to learn whether the
// client is gone. If the time passed meanwhile, it would take it for gone, in all later requests of the connection too.
type limitedBody struct {
	io.ReadCloser
	rc *http.ResponseController
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}

// watched counts what is answered, and sees to it that a large answer is received. What it wraps stays reachable for
// http.ResponseController, which streams need.
type watched struct {
	http.ResponseWriter
	rc     *http.ResponseController
	until  time.Time     // when all must have been received
	stall  time.Duration // what a part of it may take
	status int
	bytes  int64

	// guard or streamer sets them.
	token   string // its id
	refused string // why
}

// answerPart is what of a large answer must be received within Config.WriteTimeout. The writes of streams are smaller,
// and have a limit of their own.
const answerPart = 64 << 10

func (w *watched) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *watched) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	written := 0
	for {
		part := b[written:]
		if len(b) > writeSize {
			part = part[:min(len(part), answerPart)]
			_ = w.rc.SetWriteDeadline(earlier(time.Now().Add(w.stall), w.until)) // only a recorder of a test has none
		}
		n, err := w.ResponseWriter.Write(part)
		w.bytes += int64(n)
		if written += n; err != nil || written >= len(b) {
			return written, err
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Unwrap is for http.ResponseController.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// logged writes a line a request, when it has ended.
func (g *Gateway) logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		seen := &watched{ResponseWriter: w, rc: http.NewResponseController(w), until: begun.Add(2 * g.cfg.Timeout),
			stall: g.cfg.WriteTimeout}
		defer func() { // also when a stream is cut off, which is a panic
			level := slog.LevelInfo
			if seen.status < 400 && (r.Method == http.MethodGet || r.Method == http.MethodHead ||
				r.Method == http.MethodOptions) {
				level = slog.LevelDebug
			}
			attrs := []any{
				"method", redacted(r.Method), "path", redacted(r.URL.Path), "query", harmless(r.URL.Query()), "status", seen.status,
				"bytes", seen.bytes,
				"duration_ms", float64(time.Since(begun).Microseconds()) / 1000, "remote", r.RemoteAddr, "token", seen.token,
				"request_id", requestID(r.Context()),
			}
			if seen.refused != "" {
				attrs = append(attrs, "refused", seen.refused)
			}
			g.log.Log(r.Context(), level, "request", attrs...)
		}()
		next.ServeHTTP(seen, r)
	})
}

// harmless prints a query without tickets, and without what looks like a token for whoever put one there by mistake.
func harmless(query url.Values) string {
	if query.Has(ticketScheme) {
		query[ticketScheme] = []string{"REDACTED"}
	}
	text := redacted(query.Encode()) // neither _ nor a letter is written in another way
	return text[:min(len(text), 500)]
}

// recovered turns a panic into an answer, if there is none yet, and a log entry. The server goes on.
func (g *Gateway) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v == http.ErrAbortHandler { //nolint:errorlint // thrown as a value; net/http does the same
				panic(v)
			}
			g.log.ErrorContext(r.Context(), "a request panicked", "panic", redacted(fmt.Sprint(v)), "stack",
				string(debug.Stack()), "request_id", requestID(r.Context()))
			if seen, ok := w.(*watched); ok && seen.status != 0 {
				panic(http.ErrAbortHandler) // half an answer must not look like a whole one
			}
			g.problem(w, r, http.StatusInternalServerError, "this is not your fault: the log has more under this X-Request-Id")
		}()
		next.ServeHTTP(w, r)
	})
}

// secured sets what keeps browsers from guessing, keeping and leaking. Without authentication it also refuses what
// other sites' pages send: a POST without a body needs nobody's permission, and here no token either. It answers to no
// name that such a site could have given this address (DNS rebinding), and to nobody before a proxy. That everybody on
// this machine may do everything was not meant for them.
func (g *Gateway) secured(next http.Handler) http.Handler {
	protected := next
	if g.cfg.Auth == nil {
		protected = origins(g.cfg.AllowedOrigins).guard(next, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			g.problem(w, r, http.StatusForbidden, "this origin may not change anything here: allow it on the server")
		}))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Referrer-Policy", "no-referrer") // a stream's URL may have a ticket
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		if g.cfg.Auth == nil && strings.HasPrefix(r.URL.Path, "/v1/") {
			if status, why := Foreign(r); why != "" {
				g.problem(w, r, status, why)
				return
			}
		}
		protected.ServeHTTP(w, r)
	})
}

// Foreign says why a server that asks nobody who he is does not answer a request, "" if it does.
func Foreign(r *http.Request) (status int, why string) {
	switch {
	case !Named(r.Host):
		return http.StatusMisdirectedRequest,
			"without authentication this server answers to localhost and IP addresses only"
	case proxied(r):
		return http.StatusForbidden,
			"without authentication this server answers nobody behind a proxy: serve with --auth token"
	}
	return 0, ""
}

// Named tells whether a Host header is one that only we or the user can have chosen.
func Named(host string) bool {
	u, err := url.Parse("http://" + host)
	if err != nil {
		return false
	}
	name := u.Hostname()
	_, notIP := netip.ParseAddr(name)
	return notIP == nil || name == "localhost"
}

// proxied tells whether a proxy says that it passes on somebody else's request. One that does not say so cannot be told
// from a client.
func proxied(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"} {
		if len(r.Header.Values(name)) > 0 {
			return true
		}
	}
	return false
}

// shared lets pages of the allowed origins call the API. No cookies: a page sends its token itself.
func (g *Gateway) shared(next http.Handler) http.Handler {
	if len(g.cfg.AllowedOrigins) == 0 {
		return next // to the library an empty list is every origin
	}
	return cors.New(cors.Options{
		AllowOriginFunc: origins(g.cfg.AllowedOrigins).allow,
		AllowedMethods:  []string{http.MethodGet, http.MethodHead, http.MethodPost},
		AllowedHeaders:  []string{"Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "X-Request-Id"},
		ExposedHeaders:  []string{"Location", "X-Request-Id", "Idempotency-Replayed", "Retry-After"},
		MaxAge:          600,
	}).Handler(next)
}

// origins are those of Config.AllowedOrigins.
type origins []string

// anyPort is what an entry ends with that means every port of its host.
const anyPort = ":*"

// isOrigin tells whether an entry is what a browser sends as Origin, or that with * for its port.
func isOrigin(entry string) bool {
	entry = strings.TrimSuffix(entry, anyPort)
	u, err := url.Parse(entry)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.Scheme+"://"+u.Host == entry &&
		!strings.Contains(entry, "*")
}

// allow tells whether pages of an origin may call the API.
func (o origins) allow(origin string) bool {
	return slices.ContainsFunc(o, func(entry string) bool {
		host, ports := strings.CutSuffix(entry, anyPort)
		if !ports {
			return entry == "*" || entry == origin
		}
		rest, ok := strings.CutPrefix(origin, host)
		port := strings.TrimPrefix(rest, ":")
		return ok && (rest == "" || rest != port && port != "" && strings.Trim(port, "0123456789") == "")
	})
}

// guard passes on what the allowed origins and no page at all ask for, and has denied answer the rest that would
// change something.
func (o origins) guard(next, denied http.Handler) http.Handler {
	if slices.Contains(o, "*") {
		return next
	}
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(denied)
	protected := protection.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if origin := r.Header.Get("Origin"); origin != "" && o.allow(origin) {
			next.ServeHTTP(w, r)
			return
		}
		protected.ServeHTTP(w, r)
	})
}

package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/rs/cors"
)

// identified gives each request an id, the client's if it sent a harmless one, and sends it back.
func (g gate) identified(next http.Handler) http.Handler {
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

// limited bounds the time of a request, also of one that somebody without a token makes. It does so
// also when net/http does the waiting: before it answers it reads what the handler has left of the
// body. Of a stream's writes each has a limit of its own.
func (g gate) limited(next http.Handler) http.Handler {
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

// readTimeout is how long a body may take. It leaves time to answer, and is longer than a request
// may be worked on: see limitedBody.
func readTimeout(timeout time.Duration) time.Duration { return timeout + timeout/2 }

// limitedBody takes the limit away when all of the body is there. From then on net/http reads to
// learn whether the client is gone. If the time passed meanwhile, it would take it for gone, in all
// later requests of the connection too.
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

// logged writes a line a request, when it has ended.
func (g gate) logged(next http.Handler) http.Handler {
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
				"method", redacted(r.Method), "path", redacted(r.URL.Path), "query", harmless(r.URL.Query()),
				"status", seen.status, "bytes", seen.bytes,
				"duration_ms", float64(time.Since(begun).Microseconds()) / 1000, "remote", r.RemoteAddr,
				"token", seen.token,
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

// harmless prints a query without tickets, and without what looks like a token for whoever put one
// there by mistake.
func harmless(query url.Values) string {
	if query.Has(ticketScheme) {
		query[ticketScheme] = []string{"REDACTED"}
	}
	text := redacted(query.Encode()) // neither _ nor a letter is written in another way
	return text[:min(len(text), 500)]
}

// recovered turns a panic into an answer, if there is none yet, and a log entry. The server goes
// on.
func (g gate) recovered(next http.Handler) http.Handler {
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
			g.write(w, r, unexpected())
		}()
		next.ServeHTTP(w, r)
	})
}

// secured sets what keeps browsers from guessing, keeping and leaking. Without authentication it
// also refuses what other sites' pages send: a POST without a body needs nobody's permission, and
// here no token either. It answers to no name that such a site could have given this address (DNS
// rebinding), and to nobody before a proxy. That everybody on this machine may do everything was
// not meant for them.
func (g gate) secured(next http.Handler) http.Handler {
	protected := next
	if g.cfg.Auth == nil {
		denied := func(w http.ResponseWriter, r *http.Request) {
			g.problem(w, r, http.StatusForbidden, "this origin may not change anything here: allow it on the server")
		}
		protected = origins(g.cfg.AllowedOrigins).guard(next, http.HandlerFunc(denied))
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

// legible refuses a path or query that contains text which no database takes, before any operation
// reads it: U+0000, or bytes that are not UTF-8.
func (g gate) legible(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query, err := url.ParseQuery(r.URL.RawQuery) // URL.Query leaves out what it cannot read
		switch {
		case !legible(r.URL.Path):
			g.problem(w, r, http.StatusBadRequest, "path: contains U+0000 or is not UTF-8")
			return
		case err != nil:
			g.problem(w, r, http.StatusBadRequest, "query: is not encoded as a query of a URL")
			return
		}
		for name, values := range query {
			if !legible(name + strings.Join(values, "")) {
				g.problem(w, r, http.StatusBadRequest, fmt.Sprintf("query.%.40s: contains U+0000 or is not UTF-8",
					redacted(strings.ToValidUTF8(name, "?"))))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func legible(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

// shared lets pages of the allowed origins call the API. No cookies: a page sends its token itself.
func (g gate) shared(next http.Handler) http.Handler {
	if len(g.cfg.AllowedOrigins) == 0 {
		return next // to the library an empty list is every origin
	}
	return cors.New(cors.Options{
		AllowOriginFunc: origins(g.cfg.AllowedOrigins).allow,
		AllowedMethods: []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut,
			http.MethodDelete},
		AllowedHeaders: []string{"Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "X-Request-Id"},
		ExposedHeaders: []string{"Location", "X-Request-Id", "Idempotency-Replayed", "Retry-After"},
		MaxAge:         600,
	}).Handler(next)
}

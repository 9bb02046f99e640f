package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/subscription"
	"github.com/outboxrelay/outbox/server/token"
)

// problem is an answer that refuses, in the form of RFC 9457.
type problem struct {
	huma.ErrorModel
	header http.Header
}

// GetHeaders fulfils huma.HeadersError.
func (p *problem) GetHeaders() http.Header { return p.header }

func newProblem(status int, detail string, errs ...*huma.ErrorDetail) *problem {
	return &problem{ErrorModel: huma.ErrorModel{Status: status, Title: http.StatusText(status), Detail: detail,
		Errors: errs}, header: http.Header{}}
}

// later is a refusal that may be none in so many seconds.
func later(status int, seconds, detail string) *problem {
	p := newProblem(status, detail)
	p.header.Set("Retry-After", seconds)
	return p
}

var errNoToken = fmt.Errorf("%w: none was sent", token.ErrUnauthorized)

func unauthorized(err error) *problem {
	p := newProblem(http.StatusUnauthorized,
		"the token or ticket is not valid: it may have expired, or been revoked or used")
	challenge := `Bearer realm="outbox", error="invalid_token"`
	if errors.Is(err, errNoToken) {
		p.Detail, challenge = "send a token: Authorization: Bearer TOKEN", `Bearer realm="outbox"`
	}
	p.header.Set("WWW-Authenticate", challenge)
	return p
}

func lacks(scope string) *problem {
	p := newProblem(http.StatusForbidden, fmt.Sprintf("the token lacks the scope %s", scope))
	p.header.Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="outbox", error="insufficient_scope", scope=%q`, scope))
	return p
}

type requestIDKey struct{}

// requestID returns the id under which a request is in the log.
func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string) // identified has set it
	return id
}

// refuser answers requests that are refused, and logs what is not their fault.
type refuser struct{ log *slog.Logger }

// refusal turns an error of the service into an answer. part is what of the request a field belongs
// to: body or query. What is not the request's fault is logged here, and its text stays here.
func (rf refuser) refusal(ctx context.Context, part string, err error) *problem {
	var state *crawl.StateError
	var own *problem
	var quota *crawl.QuotaError
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, token.ErrUnauthorized), errors.Is(context.Cause(ctx), errTokenOver):
		return unauthorized(err)
	case errors.Is(err, crawl.ErrNotFound):
		return newProblem(http.StatusNotFound, "there is no such run")
	case errors.Is(err, crawl.ErrNoTables), errors.Is(err, subscription.ErrUnknown):
		return newProblem(http.StatusNotFound, err.Error())
	case errors.Is(err, subscription.ErrExists), errors.Is(err, subscription.ErrState):
		return newProblem(http.StatusConflict, err.Error())
	case errors.Is(err, subscription.ErrTooMany):
		return newProblem(http.StatusTooManyRequests, err.Error())
	case errors.Is(err, subscription.ErrRefused):
		return newProblem(http.StatusBadRequest, err.Error())
	case errors.As(err, &state):
		return newProblem(http.StatusConflict, state.Error())
	case errors.As(err, &quota):
		return later(http.StatusTooManyRequests, "10", quota.Error())
	case errors.Is(err, crawl.ErrKeyReused):
		return newProblem(http.StatusConflict, "the Idempotency-Key was used for a run with other content")
	case errors.Is(err, crawl.ErrEventReused):
		return newProblem(http.StatusConflict,
			"an event id is in the run's log with another type or payload: nothing was appended")
	case errors.Is(err, crawl.ErrInvalid):
		return invalid(part, err)
	case errors.Is(err, errTenantBusy):
		return later(http.StatusTooManyRequests, "5", err.Error())
	case errors.Is(err, errBusy):
		return later(http.StatusServiceUnavailable, "5", err.Error())
	}
	return rf.failed(ctx, err)
}

// failed turns an error of a store into an answer: 503 while trying again may help, 400 for a value
// that the database refuses, 403 for a right that this server's role lacks, else 500. The error's
// text is in the log only.
func (rf refuser) failed(ctx context.Context, err error) *problem {
	state := stateOf(err)
	switch {
	case unavailable(err):
		if !errors.Is(err, context.Canceled) { // else it is the client who has gone
			rf.log.WarnContext(ctx, "the database does not answer", "error", err, "request_id", requestID(ctx))
		}
		return later(http.StatusServiceUnavailable, "1", "the database does not answer: try again")
	case strings.HasPrefix(state, "22"):
		rf.log.WarnContext(ctx, "the database refuses a value", "error", err, "request_id", requestID(ctx))
		return newProblem(http.StatusBadRequest, "the database refuses a value of this request, such as a time or "+
			"number out of range, or a character that it does not have")
	case state == "42501":
		rf.log.WarnContext(ctx, "the database role lacks a right", "error", err, "request_id", requestID(ctx))
		return newProblem(http.StatusForbidden, "the database role of this server lacks a right for this: "+
			"the server's log and outbox doctor name it")
	}
	rf.log.ErrorContext(ctx, "a request failed", "error", err, "request_id", requestID(ctx))
	return unexpected()
}

// Failed answers a request of [Config.Routes] with an error of a store, as the gateway does.
func Failed(ctx context.Context, log *slog.Logger, err error) huma.StatusError {
	return refuser{log}.failed(ctx, err)
}

// stateOf returns the code of an error of PostgreSQL, "" of any other.
func stateOf(err error) string {
	var server interface{ SQLState() string }
	if errors.As(err, &server) {
		return server.SQLState()
	}
	return ""
}

// unexpected is the answer to what only the log can explain.
func unexpected() *problem {
	return newProblem(http.StatusInternalServerError,
		"this is not your fault: the log has more under this X-Request-Id")
}

// maxListed is how many fields an answer names: a batch of events can have a thousand problems.
const maxListed = 20

// invalid lists the fields that a service refused.
func invalid(part string, err error) *problem {
	p := newProblem(http.StatusBadRequest, "")
	var texts []string
	more := 0
	add := func(err error) {
		field, ok := errors.AsType[*crawl.FieldError](err)
		if !ok {
			return
		}
		if len(texts) == maxListed {
			more++
			return
		}
		location := part + "." + field.Field
		if field.Field == "idempotencyKey" {
			location = "header.Idempotency-Key"
		}
		p.Add(&huma.ErrorDetail{Message: field.Problem, Location: location})
		texts = append(texts, field.Error())
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			add(e)
		}
	} else {
		add(err)
	}
	p.Detail = strings.Join(texts, "; ")
	if more > 0 {
		p.Detail += fmt.Sprintf("; and %d more", more)
	}
	return p
}

// unavailable tells whether trying again may help: no connection, no answer in time, or a server
// that starts or stops, is full or read-only, or lets nobody in. The database's client is
// asked through what its errors can do: to name its types would be to import it.
func unavailable(err error) bool {
	var network net.Error
	var file interface{ Code() int }
	var client interface{ SafeToRetry() bool }
	state := stateOf(err)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF):
		return true
	case state != "":
		return slices.ContainsFunc([]string{"08", "25006", "28", "40", "53", "55P03", "57P", "58"},
			func(class string) bool { return strings.HasPrefix(state, class) })
	case errors.As(err, &file): // SQLite: busy, locked, read-only, I/O error, full, cannot open
		return slices.Contains([]int{5, 6, 8, 10, 13, 14}, file.Code()&0xff)
	case errors.As(err, &client) && client.SafeToRetry():
		return true
	}
	return errors.As(err, &network)
}

// problem answers a request that huma does not serve.
func (rf refuser) problem(w http.ResponseWriter, r *http.Request, status int, detail string) {
	rf.write(w, r, newProblem(status, detail))
}

// fail answers it with an error of the service or of authentication.
func (rf refuser) fail(w http.ResponseWriter, r *http.Request, err error) {
	rf.write(w, r, rf.refusal(r.Context(), "query", err))
}

func (rf refuser) write(w http.ResponseWriter, r *http.Request, p *problem) {
	for name, values := range p.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	redactProblem(&p.ErrorModel)
	if err := json.NewEncoder(w).Encode(&p.ErrorModel); err != nil {
		rf.gone(r, err)
	}
}

// gone logs that an answer could not be written.
func (rf refuser) gone(r *http.Request, err error) {
	ctx := r.Context()
	rf.log.DebugContext(ctx, "the client has gone", "error", err, "request_id", requestID(ctx))
}

// secrets are tokens and tickets by their beginnings, and the secret of one without it: 52
// characters of base32, which no id of ours has in a row.
var secrets = regexp.MustCompile(`(?i)ob[xt]_[a-z0-9_]*|[a-z2-7]{40,}`)

// redacted returns text without the tokens and tickets that somebody put where they do not belong:
// in a path, the name of a parameter, the id of a request.
func redacted(text string) string { return secrets.ReplaceAllString(text, "REDACTED") }

// redactProblem does that to what of a request an answer repeats.
func redactProblem(m *huma.ErrorModel) {
	m.Detail = redacted(m.Detail)
	for _, e := range m.Errors {
		e.Message, e.Location = redacted(e.Message), redacted(e.Location)
	}
}

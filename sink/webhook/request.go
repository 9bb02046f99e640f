package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/cloudevent"
	"github.com/outboxrelay/outbox/internal/version"
)

var userAgent = "outbox-webhook/" + version.Of().Version + " (+https://github.com/outboxrelay/outbox)"

const (
	// An answer's body is read so far and so long, for the connection to be used again. Nothing of
	// it is kept.
	maxBody   = 64 << 10
	drainTime = 250 * time.Millisecond
	maxReason = 300 // characters of an error of the network
)

// request makes a signed request.
func (s *Sink) request(ctx context.Context, t *target, d *outbox.Delivery, now time.Time) (*http.Request, error) {
	header := http.Header{}
	for name, value := range t.Headers {
		header.Set(name, string(value))
	}
	header.Set("User-Agent", userAgent)
	var body []byte
	if s.cfg.Binary {
		body = d.Payload
		for name, value := range d.Attributes() {
			if name == "datacontenttype" {
				header.Set("Content-Type", value)
			} else {
				header.Set("ce-"+name, cloudevent.HeaderValue(value))
			}
		}
	} else {
		body = d.AppendMessage(nil, s.cfg.Envelope)
		header.Set("Content-Type", outbox.ContentType(body))
	}
	parent, state := d.TraceContext()
	setPlain(header, "traceparent", parent)
	setPlain(header, "tracestate", state)

	id, stamp := messageID(d), strconv.FormatInt(now.Unix(), 10)
	header.Set("webhook-id", id)
	header.Set("webhook-timestamp", stamp)
	start := []byte(id + "." + stamp + ".")
	signatures := make([]string, len(t.signers))
	for i, sign := range t.signers {
		signatures[i] = sign(start, body)
	}
	header.Set("webhook-signature", strings.Join(signatures, " "))

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	// net/http repeats the request on a new connection if the server closed a kept one without an
	// answer. The empty value marks the request as safe to repeat and is not sent.
	if req.Header.Get("Idempotency-Key") == "" {
		req.Header["Idempotency-Key"] = nil
	}
	return req, nil
}

// messageID has no full stop, which the signed content has between its parts.
func messageID(d *outbox.Delivery) string {
	if d.Generation == 0 {
		return d.ID.String()
	}
	return d.ID.String() + "_" + strconv.Itoa(d.Generation)
}

// setPlain sets a header unless its value has what no such header has (W3C Trace Context is
// printable ASCII).
func setPlain(header http.Header, name, value string) {
	if value != "" && !strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' }) {
		header.Set(name, value)
	}
}

// answer is what came of a request.
type answer struct {
	verdict
	err       error // nil: delivered
	after     time.Duration
	permanent bool
	unseen    bool // it was refused for the rate of requests, whatever the event
}

// post makes a request and returns what came of it: once the status is there, that is the answer.
func (s *Sink) post(ctx context.Context, w window, t *target, d *outbox.Delivery) answer {
	now := time.Now()
	limit := t.Timeout
	if w.total > 0 {
		limit = min(limit, w.cut.Sub(now))
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := s.request(limited, t, d, now)
	if err != nil {
		return answer{verdict: works, permanent: true, err: fmt.Errorf("make request to endpoint %q: %w", t.Name, err)}
	}
	resp, err := s.transport.RoundTrip(req)
	if err != nil {
		return failure(ctx, limited, t, limit, err)
	}
	stop := time.AfterFunc(drainTime, cancel)
	defer stop.Stop()
	_, _ = io.CopyN(io.Discard, resp.Body, maxBody) // what becomes of the body changes nothing
	_ = resp.Body.Close()
	return judge(t.Name, resp, now)
}

// judge reads the status as Standard Webhooks 1.0.0 has it ("Delivery success and failure"). 2xx is
// success, 410 the end, 429 and gateways that fail (502, 504) ask for less. All others are failures
// that are tried again. 503 is as 504 here. A payload that is too large (413) will not become
// smaller.
func judge(name string, resp *http.Response, now time.Time) answer {
	status := strings.TrimSpace(strconv.Itoa(resp.StatusCode) + " " + http.StatusText(resp.StatusCode))
	a := answer{verdict: works, after: retryAfter(resp.Header.Get("Retry-After"), now)}
	a.err = fmt.Errorf("endpoint %q answered %s", name, status)
	switch code := resp.StatusCode; {
	case code >= 200 && code <= 299:
		return answer{verdict: works}
	case code >= 300 && code <= 399:
		a.err = fmt.Errorf("%w: redirects are not followed, give the endpoint its new url", a.err)
	case code == http.StatusGone:
		a.verdict = leaves
	case code == http.StatusTooManyRequests:
		a.verdict, a.unseen = full, true
	case code == http.StatusServiceUnavailable && a.after > 0:
		a.verdict = full
	case code == http.StatusRequestTimeout, code == http.StatusBadGateway, code == http.StatusServiceUnavailable,
		code == http.StatusGatewayTimeout:
		a.verdict = fails
	case code == http.StatusRequestEntityTooLarge:
		a.permanent = a.after == 0
	}
	return a
}

// retryAfter reads seconds or a date (RFC 9110, section 10.2.3); 0 is none.
func retryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	if value != "" && !strings.ContainsFunc(value, func(c rune) bool { return c < '0' || c > '9' }) {
		return maxRetryAfter // more than fits
	}
	return 0
}

// failure classes a request without an answer.
func failure(ctx, limited context.Context, t *target, limit time.Duration, err error) answer {
	a := answer{verdict: fails}
	switch {
	case ctx.Err() != nil:
		return answer{verdict: unknown, err: fmt.Errorf("post to endpoint %q: %w", t.Name, ctx.Err())}
	case blocked(err):
		a.verdict, a.permanent = works, true
		a.err = fmt.Errorf("endpoint %q is blocked by policy (allow=… in the sink's URL allows inner networks): %s",
			t.Name, reason(err))
	case limited.Err() != nil && limit < t.Timeout:
		a.err = fmt.Errorf("endpoint %q gave no answer within %s, which is what its batch had left: raise the relay's "+
			"PublishTimeout for its timeout of %s", t.Name, limit.Round(time.Millisecond), t.Timeout)
	case limited.Err() != nil:
		a.err = fmt.Errorf("endpoint %q gave no answer within %s", t.Name, limit)
	default:
		a.err = fmt.Errorf("post to endpoint %q: %s", t.Name, reason(err))
	}
	return a
}

// reason is the text of an error of the network, without what the other side has sent: net/http
// quotes an answer that it does not understand.
func reason(err error) string {
	var op *net.OpError
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var alert tls.AlertError
	var record tls.RecordHeaderError
	var slow net.Error
	switch {
	case errors.As(err, &op), errors.As(err, &dns), errors.As(err, &certificate), errors.As(err, &alert):
	case errors.As(err, &record):
		return "the server does not speak TLS"
	case errors.As(err, &slow) && slow.Timeout():
		return fmt.Sprintf("the TLS handshake was not over within %s", dialTimeout)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), strings.Contains(err.Error(), "closed"):
		return "the connection was closed before an answer"
	default:
		return "the answer cannot be understood as HTTP"
	}
	text := strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return ' '
	}, err.Error())
	if runes := []rune(text); len(runes) > maxReason {
		text = string(runes[:maxReason]) + "…"
	}
	return text
}

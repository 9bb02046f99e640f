// Package webhook receives Standard Webhooks for package source: it is an http.Handler, and the
// source of what is posted.
//
//	from, err := webhook.New(webhook.Config{Secrets: []string{secret}})
//	go http.ListenAndServe(":8080", from)
//	err = source.Run(ctx, from, …)
//
// Guaranteed: a request is answered with 204 after the row of its event. What is answered with 503
// comes again, and is no second row. Nothing is written whose signature does not fit, or is older
// than five minutes. Id, type, tenant and all other attributes come from the body and webhook-id,
// which the signature covers.
//
// Not guaranteed: the order of what a sender posts without waiting for the answer. Our sink waits,
// for each key.
package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/outboxrelay/outbox/source"
)

// Config says who may post. Zero means the default in parentheses.
type Config struct {
	Secrets []string      // whsec_…, of which one must fit: more than one while they change; required
	MaxBody int64         // bytes (2 MiB)
	Wait    time.Duration // how long a request waits for its row, then it is answered with 503 (10 s)
	Batch   int           // most events of a batch (100)
	// TrustHeaders also reads attributes from the ce-* and trace headers, which the signature does
	// not cover (false). A sender that posts CloudEvents in binary mode needs it. Set it only if no
	// other party can change a request on the way: such a party would choose the type and tenant.
	TrustHeaders bool
}

// Source is a source.Source and an http.Handler.
type Source struct {
	cfg       Config
	verifiers []*standardwebhooks.Webhook
	posted    chan *post
}

// post is a request that waits for its row.
type post struct {
	source.Message
	written chan struct{}
}

// New returns a source. Errors say which secret is wrong, and do not show it.
func New(cfg Config) (*Source, error) {
	if cfg.MaxBody <= 0 {
		cfg.MaxBody = 2 << 20
	}
	if cfg.Wait <= 0 {
		cfg.Wait = 10 * time.Second
	}
	if cfg.Batch <= 0 {
		cfg.Batch = 100
	}
	s := &Source{cfg: cfg, posted: make(chan *post)}
	for i, secret := range cfg.Secrets {
		v, err := standardwebhooks.NewWebhook(secret)
		if err != nil || strings.TrimPrefix(secret, "whsec_") == "" { // an empty one verifies what anybody signs
			return nil, fmt.Errorf("configure source: Secrets[%d] is not of the form whsec_ and base64", i)
		}
		s.verifiers = append(s.verifiers, v)
	}
	if len(s.verifiers) == 0 {
		return nil, errors.New("configure source: Secrets are required")
	}
	return s, nil
}

// ServeHTTP answers 204 once the event is written. It answers 405 to anything but a POST, 413 to a
// body that is too large, 400 to one that breaks off, 401 to a signature that does not fit, and 503
// where the database is away.
func (s *Source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "post events here", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.cfg.MaxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		http.Error(w, fmt.Sprintf("the body has more than %d bytes", s.cfg.MaxBody), http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		http.Error(w, "the body breaks off", http.StatusBadRequest)
		return
	case !s.verified(body, r.Header):
		http.Error(w, "the signature does not fit", http.StatusUnauthorized)
		return
	}
	p := &post{s.message(body, r.Header), make(chan struct{})}
	ctx, cancel := context.WithTimeout(r.Context(), s.cfg.Wait)
	defer cancel()
	select {
	case s.posted <- p:
	case <-ctx.Done():
	}
	select {
	case <-p.written:
		w.WriteHeader(http.StatusNoContent)
		return
	case <-ctx.Done():
	}
	w.Header().Set("Retry-After", "5")
	http.Error(w, "not written yet: post it again", http.StatusServiceUnavailable)
}

func (s *Source) verified(body []byte, header http.Header) bool {
	for _, v := range s.verifiers {
		if v.Verify(body, header) == nil {
			return true
		}
	}
	return false
}

// message reads what the signature covers: the body and webhook-id. In requests of our sink,
// webhook-id is the event's id, followed by the generation of a replay.
func (s *Source) message(body []byte, header http.Header) source.Message {
	id := header.Get(standardwebhooks.HeaderWebhookID)
	m := source.Message{Place: "webhook/" + id, Channel: "webhook", Body: body}
	for name := range header {
		if s.cfg.TrustHeaders {
			m.Header(strings.ToLower(name), header.Get(name), true)
		}
	}
	id, _, _ = strings.Cut(id, "_")
	m.Header("ce-id", id, false)
	return m
}

// Receive implements source.Source: a batch is what is posted at the time.
func (s *Source) Receive(ctx context.Context) (source.Batch, error) {
	posts := source.Gather(ctx, s.posted, s.cfg.Batch)
	if ctx.Err() != nil {
		return source.Batch{}, ctx.Err()
	}
	batch := source.Batch{Messages: make([]source.Message, len(posts)), Ack: func(context.Context) error {
		for _, p := range posts {
			close(p.written)
		}
		return nil
	}}
	for i, p := range posts {
		batch.Messages[i] = p.Message
	}
	return batch, nil
}

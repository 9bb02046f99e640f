package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/outboxrelay/outbox/internal/config"
)

const (
	apiTimeout = 30 * time.Second
	// silentAfter is the time after which a gateway counts as silent.
	silentAfter = 8 * time.Second
	// maxAnswer bounds an answer. The largest is a page of events.
	maxAnswer = 64 << 20
)

// api speaks to a gateway.
type api struct {
	base  string
	token string
	http  *http.Client
}

func newAPI(c config.Config) *api {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		ResponseHeaderTimeout: silentAfter, TLSHandshakeTimeout: silentAfter}
	return &api{base: strings.TrimRight(c.Server, "/"), token: c.Token, http: &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// apiError is the gateway's refusal, in the form of RFC 9457.
type apiError struct {
	Status int
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Errors []struct {
		Message  string `json:"message"`
		Location string `json:"location"`
	} `json:"errors"`
}

func (e *apiError) Error() string {
	text := e.Detail
	if text == "" {
		text = strings.TrimSpace(fmt.Sprintf("%d %s", e.Status, e.Title))
	}
	for _, p := range e.Errors { // the gateway's own detail usually names them already
		_, field, _ := strings.Cut(p.Location, ".")
		if m := strings.TrimSpace(field + " " + p.Message); !strings.Contains(text, m) {
			text += "; " + m
		}
	}
	return "the gateway refuses: " + oneLine(text)
}

// passing tells whether asking again can help.
func (e *apiError) passing() bool {
	return e.Status == http.StatusTooManyRequests || e.Status == http.StatusRequestTimeout || e.Status >= 500
}

// unreachableError says that no gateway answered.
type unreachableError struct {
	base string
	err  error
}

func (e *unreachableError) Error() string { return fmt.Sprintf("ask %s: %v", e.base, e.err) }
func (e *unreachableError) Unwrap() error { return e.err }

// send makes a request and returns an answer that is no refusal. The caller closes its body.
func (s *api) send(ctx context.Context, method, path string, header http.Header, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // the address is said already
		}
		return nil, &unreachableError{s.base, err}
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	refusal := &apiError{}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") {
		_ = json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(refusal) // what cannot be read leaves the status
	}
	if refusal.Title == "" {
		refusal.Title = http.StatusText(resp.StatusCode)
	}
	refusal.Status = resp.StatusCode
	return nil, refusal
}

// ask sends body, if there is one, as JSON, decodes the answer and returns it as it came.
func (s *api) ask(
	ctx context.Context, method, path string, header http.Header, body, answer any,
) (came json.RawMessage, err error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("make request: %w", err)
		}
	}
	resp, err := s.send(ctx, method, path, header, text)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	err = json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&came)
	if err == nil {
		err = json.Unmarshal(came, answer)
	}
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w: is it outbox serve?", s.base, err)
	}
	return came, nil
}

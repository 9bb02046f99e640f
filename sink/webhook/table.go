package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/endpoint"
)

// inTable is the path of a URL whose endpoints are in a table.
const inTable = "table"

const (
	answeredGone = "answered 410 Gone"
	enableIt     = "outbox endpoints enable asks it again; then replay its dead letters"
	useSecret    = "secret"
	useHeader    = "header "
	// readEvery is how often all rows are read, though no row has changed: former secrets end.
	readEvery = time.Minute
	tableTime = 2 * time.Second
	// defectWait is how long events wait for an endpoint whose secrets this process cannot read.
	defectWait = 30 * time.Second
)

// endpointTable is Endpoints in a table of a database. While it is in use it asks once a second whether a row has
// changed. If the database does not answer, the endpoints that were read last stay in use. The events of an endpoint
// whose secrets cannot be read wait, and Ping says why.
type endpointTable struct {
	store endpoint.Table
	ring  keyring
	log   *slog.Logger

	mu      sync.Mutex
	checked time.Time
	read    time.Time
	version string
	known   List
	away    error // why the table could not be read again
	defects error // of single endpoints
}

// openTable opens the table that the configuration names, and returns a Sink for it.
func openTable(ctx context.Context, cfg Config) (*Sink, error) {
	t, err := newTable(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if _, err := t.Lookup(ctx); err != nil {
		return nil, outbox.Unavailable(err)
	}
	return New(t, cfg)
}

func newTable(ctx context.Context, cfg Config) (*endpointTable, error) {
	if cfg.Table == nil {
		return nil, outbox.Permanent(errors.New("webhook:table has no database here: set one, or name a file of endpoints"))
	}
	ring, err := readKeyring(cfg.key)
	if err != nil {
		return nil, outbox.Permanent(err)
	}
	store, err := cfg.Table(ctx)
	if err != nil {
		return nil, err
	}
	log := cfg.Logger
	if log == nil {
		log = slog.Default()
	}
	return &endpointTable{store: store, ring: ring, log: log}, nil
}

// Lookup implements Endpoints. A name that is not known makes it ask the database at once.
func (t *endpointTable) Lookup(ctx context.Context, names ...string) (map[string]Endpoint, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Sub(t.checked) >= checkEvery {
		t.refresh(ctx, now)
	}
	found, err := t.known.Lookup(ctx, names...)
	if len(found) < len(names) && t.checked != now {
		t.refresh(ctx, now)
		found, err = t.known.Lookup(ctx, names...)
	}
	// Without an answer nobody can say that there is no such endpoint.
	if t.away != nil && (t.read.IsZero() || len(found) < len(names)) {
		return nil, t.away
	}
	return found, err
}

// failure is why the table, or a secret in it, could not be read; nil if all is well.
func (t *endpointTable) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.away != nil:
		return fmt.Errorf("the former webhook endpoints are still in use: %w", t.away)
	case t.defects != nil:
		return fmt.Errorf("the events of some webhook endpoints wait: %w", t.defects)
	}
	return nil
}

// subscriptions are those of all rows, as the table is now.
func (t *endpointTable) subscriptions(ctx context.Context) ([]outbox.Subscription, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refresh(ctx, time.Now()); t.away != nil {
		return nil, t.away
	}
	return t.known.subscriptions(ctx)
}

// longest is the longest timeout of the endpoints that are in use.
func (t *endpointTable) longest() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known.longest()
}

// refresh reads the table again if it has changed.
func (t *endpointTable) refresh(ctx context.Context, now time.Time) {
	t.checked = now
	known := t.version
	if now.Sub(t.read) >= readEvery {
		known = ""
	}
	ctx, cancel := context.WithTimeout(ctx, tableTime)
	defer cancel()
	rows, version, err := t.store.Read(ctx, known)
	if err != nil {
		if t.away == nil && !t.read.IsZero() {
			t.log.Error("cannot read webhook endpoints, the former ones stay in use", "error", err)
		}
		t.away = err
		return
	}
	t.away = nil
	if version == known {
		return
	}
	t.version, t.read = version, now
	t.known = make(List, len(rows))
	var defects []error
	for i, row := range rows {
		e := t.endpoint(row, now)
		if t.known[i] = e; e.stored.defect != "" && !e.Disabled {
			defects = append(defects, fmt.Errorf("endpoint %q: %s", e.Name, e.stored.defect))
		}
	}
	if err := errors.Join(defects...); err != nil && (t.defects == nil || t.defects.Error() != err.Error()) {
		t.log.Error("cannot use webhook endpoints, their events wait", "error", err)
	}
	t.defects = errors.Join(defects...)
}

// endpoint is a row with its secrets. What cannot be read is its defect.
func (t *endpointTable) endpoint(row endpoint.Stored, now time.Time) Endpoint {
	e := Endpoint{Name: row.Name, Tenant: row.Tenant, Topics: row.Topics, Types: row.Types, URL: row.URL,
		Timeout: row.Timeout, Concurrency: row.Concurrency, Rate: row.Rate, Disabled: !row.Disabled.IsZero(),
		stored: stored{revision: row.Revision, why: row.Reason}}
	var problems []string
	for _, s := range row.Secrets {
		if !s.Until.IsZero() && !now.Before(s.Until) {
			continue
		}
		text, err := t.ring.open(s.Value, useOf(row, useSecret))
		if err != nil {
			problems = append(problems, "a secret: "+err.Error())
		}
		e.Secrets = append(e.Secrets, Secret(text))
	}
	for name, value := range row.Headers {
		text, err := t.ring.open(value, useOf(row, useHeader+name))
		if err != nil {
			problems = append(problems, "header "+name+": "+err.Error())
		}
		if e.Headers == nil {
			e.Headers = map[string]Secret{}
		}
		e.Headers[name] = Secret(text)
	}
	e.stored.defect = strings.Join(problems, "; ")
	return e
}

// disable makes it known to all processes that an endpoint wants no more.
func (t *endpointTable) disable(ctx context.Context, e Endpoint) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tableTime)
	defer cancel()
	if err := t.store.Disable(ctx, e.Name, e.stored.revision, answeredGone); err != nil {
		t.log.Error("cannot disable webhook endpoint in its table", "endpoint", e.Name, "error", err)
	}
}

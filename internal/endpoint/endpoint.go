// Package endpoint keeps the endpoints of webhooks in a table of the program's database
// (webhook:table), for its relays to read and its operators to change. The sink knows no database
// by it, and the database no sink.
//
// Guaranteed: a secret is sealed for its endpoint's name and tenant, and for the scheme, host and
// port of its URL. A relay reads no variable and no file for a row. A change that somebody else has
// overtaken changes nothing. Each change is on the record, but for that of an endpoint that
// answered 410 Gone.
//
// Not guaranteed: that a relay knows of a change at once. It asks once a second while it delivers.
package endpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/sink"
	"github.com/outboxrelay/outbox/sink/webhook"
)

// What an endpoint is, is the sink's.
type (
	Endpoint = webhook.Endpoint
	Secret   = webhook.Secret
)

// ReadSecret is webhook.ReadSecret, for operators: where somebody sits who may read what a text
// refers to.
func ReadSecret(text string) (Secret, error) { return webhook.ReadSecret(text) }

// Opened opens the program's database.
type Opened func(ctx context.Context) (cold.Database, error)

// Has tells whether the sinks of a URL know their destinations by name.
func Has(url string) bool {
	scheme, _, _ := strings.Cut(url, ":")
	return strings.EqualFold(scheme, "webhook")
}

// OpenSink opens a sink by its driver. One of webhooks may have its endpoints in the database.
func OpenSink(ctx context.Context, d sink.Driver, url string, o sink.Options, db Opened) (sink.Sink, error) {
	if !Has(url) || db == nil {
		return d.Open(ctx, url, o)
	}
	e, err := Open(ctx, url, o.Logger, db)
	if err != nil {
		return nil, err // and no *webhook.Sink that is nil
	}
	return e.Sink, nil
}

// table is a webhook.Table.
type table struct {
	rows rows
	ring keyring

	read    time.Time
	version string
	known   map[string]row
}

const (
	// readEvery is how often all rows are read, though no row has changed: former secrets end.
	readEvery = time.Minute
	tableTime = 2 * time.Second
	// defectWait is how long events wait for an endpoint whose secrets this process cannot read.
	defectWait = 30 * time.Second
)

// openTable answers with a *outbox.SchemaError where the database has no table of endpoints yet,
// and with outbox.ErrRowsHidden where a policy hides them.
func openTable(ctx context.Context, key string, db Opened) (*table, error) {
	ring, err := readKeyring(key)
	if err != nil {
		return nil, outbox.Permanent(err)
	}
	of, err := db(ctx)
	if err == nil {
		err = of.Check(ctx, "outbox_endpoints", nil)
	}
	if err == nil {
		err = of.Visible(ctx, "outbox_endpoints") // the events of hidden ones would be dead letters
	}
	return &table{rows: rows{of}, ring: ring}, err
}

// Read implements webhook.Table.
func (t *table) Read(ctx context.Context) (webhook.List, error) {
	now, known := time.Now(), t.version
	if now.Sub(t.read) >= readEvery {
		known = ""
	}
	ctx, cancel := context.WithTimeout(ctx, tableTime)
	defer cancel()
	all, version, err := t.rows.read(ctx, known)
	if err != nil {
		return nil, outbox.Unavailable(err)
	}
	if version == known {
		return nil, nil
	}
	t.version, t.read, t.known = version, now, map[string]row{}
	list := webhook.List{}
	var defects []error
	for _, r := range all {
		r.Endpoint = t.unsealed(r, now)
		if list, t.known[r.Name] = append(list, r.Endpoint), r; r.Err != nil && !r.Disabled {
			defects = append(defects, r.Err)
		}
	}
	return list, errors.Join(defects...)
}

// unsealed is the endpoint of a row, with its secrets. What keeps it from being used is its Err.
func (t *table) unsealed(r row, now time.Time) Endpoint {
	e := r.Endpoint
	e.Headers = map[string]webhook.Secret{}
	var problems []string
	for _, s := range r.Sealed {
		if !s.Until.IsZero() && !now.Before(s.Until) {
			continue
		}
		text, err := t.ring.open(s.Value, r.use(aSecret))
		if err != nil {
			problems = append(problems, "a secret: "+err.Error())
		}
		e.Secrets = append(e.Secrets, text)
	}
	for name, value := range r.Values {
		text, err := t.ring.open(value, r.use(aHeader+name))
		if err != nil {
			problems = append(problems, "header "+name+": "+err.Error())
		}
		e.Headers[name] = text
	}
	switch e.Disabled = !r.Since.IsZero(); {
	case e.Disabled:
		e.Err = outbox.Permanent(fmt.Errorf("endpoint %q is disabled (%s): outbox endpoints enable asks it again; "+
			"then replay its dead letters", r.Name, r.Reason))
	case len(problems) > 0:
		e.Err = outbox.Postponed(fmt.Errorf("endpoint %q: %s", r.Name, strings.Join(problems, "; ")), defectWait)
	}
	return e
}

// Gone implements webhook.Table.
func (t *table) Gone(ctx context.Context, e Endpoint) error {
	r, ok := t.known[e.Name]
	if !ok || !reflect.DeepEqual(r.Endpoint, e) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tableTime)
	defer cancel()
	r.Reason = "answered 410 Gone"
	_, err := t.rows.change(ctx, "endpoint_disable", r, Change{})
	return err
}

// Endpoints are those of a sink of webhooks, for who lists or changes them.
type Endpoints struct {
	Sink  *webhook.Sink
	table *table // nil: a file, which somebody edits
}

// Open opens the sink of a URL of webhooks. It connects to none of its endpoints, and asks for the
// database if they are in its table.
func Open(ctx context.Context, url string, log *slog.Logger, db Opened) (*Endpoints, error) {
	var e Endpoints
	var err error
	e.Sink, err = webhook.Open(ctx, url, webhook.Config{Logger: log,
		Table: func(ctx context.Context, key string) (_ webhook.Table, err error) {
			e.table, err = openTable(ctx, key, db)
			return e.table, err
		}})
	if err != nil {
		return nil, err
	}
	return &e, nil
}

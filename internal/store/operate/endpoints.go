package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/endpoint"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// Endpoints is the table of endpoints. Reading and Disable need the rights of outbox_relay, the rest those of
// outbox_operator. It is safe for concurrent use.
type Endpoints struct{ db cold.Database }

var _ endpoint.Table = (*Endpoints)(nil)

// Endpoints answers with a *outbox.SchemaError where the database has no table of endpoints yet, and with
// outbox.ErrRowsHidden where a policy hides them: their events would be dead letters.
func (d Database) Endpoints(ctx context.Context) (endpoint.Table, error) {
	if err := d.db.Check(ctx, "outbox_endpoints", nil); err != nil {
		return nil, err
	}
	return &Endpoints{d.db}, d.db.Visible(ctx, "outbox_endpoints")
}

// endpointQuery is what the files endpoint_*.sql are given.
type endpointQuery struct {
	endpoint.Stored
	SecretsJSON, HeadersJSON, TopicsJSON, TypesJSON string

	Milliseconds int64
	Off          bool
	Fresh        int64 // the next revision
	Now          time.Time
}

func newEndpointQuery(e endpoint.Stored) (*endpointQuery, error) {
	if e.Headers == nil {
		e.Headers = map[string]string{}
	}
	// A revision is so large that the sum over all endpoints is another one after each change, and so small that it fits.
	q := &endpointQuery{Stored: e, Milliseconds: e.Timeout.Milliseconds(), Off: !e.Disabled.IsZero(),
		Fresh: 1 + rand.Int64N(1<<44), Now: time.Now()}
	for dst, v := range map[*string]any{&q.SecretsJSON: e.Secrets, &q.HeadersJSON: e.Headers,
		&q.TopicsJSON: append([]string{}, e.Topics...), &q.TypesJSON: append([]string{}, e.Types...)} {
		text, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("encode endpoint %q: %w", e.Name, err)
		}
		*dst = string(text)
	}
	return q, nil
}

// Read implements endpoint.Table.
func (p *Endpoints) Read(ctx context.Context, known string) (all []endpoint.Stored, version string, err error) {
	err = cold.Read(ctx, p.db, func(tx *cold.Tx) error {
		if err := tx.One(ctx, "endpoint_version", nil, &version); err != nil || version == known {
			return err
		}
		return tx.Each(ctx, "endpoint_list", nil, func(rows cold.Rows) error {
			one, err := scanEndpoint(rows)
			all = append(all, one)
			return err
		})
	})
	if err != nil {
		return nil, "", fmt.Errorf("read endpoints: %w", err)
	}
	return all, version, nil
}

func scanEndpoint(rows cold.Rows) (e endpoint.Stored, err error) {
	var secrets, headers, created, topics, types, disabled sqltable.Text
	var milliseconds int64
	if err := rows.Scan(&e.Name, &e.Tenant, &e.URL, &secrets, &headers, &milliseconds, &e.Concurrency, &e.Rate,
		&disabled, &e.Reason, &e.Revision, &created, &topics, &types); err != nil {
		return e, err
	}
	e.Timeout = time.Duration(milliseconds) * time.Millisecond
	for dst, at := range map[*time.Time]sqltable.Text{&e.Created: created, &e.Disabled: disabled} {
		if moment := at.Moment(); moment != nil {
			*dst = *moment
		}
	}
	err = errors.Join(json.Unmarshal([]byte(secrets.S), &e.Secrets), json.Unmarshal([]byte(headers.S), &e.Headers),
		json.Unmarshal([]byte(topics.S), &e.Topics), json.Unmarshal([]byte(types.S), &e.Types))
	if err != nil {
		return e, fmt.Errorf("decode endpoint %q: %w", e.Name, err)
	}
	return e, nil
}

// Put implements endpoint.Table.
func (p *Endpoints) Put(ctx context.Context, e endpoint.Stored, c endpoint.Change) (bool, error) {
	statement := "endpoint_add"
	if e.Revision != 0 {
		statement = "endpoint_change"
	}
	return p.change(ctx, statement, e, c)
}

// Remove implements endpoint.Table.
func (p *Endpoints) Remove(ctx context.Context, name string, c endpoint.Change) (bool, error) {
	return p.change(ctx, "endpoint_remove", endpoint.Stored{Name: name}, c)
}

// Disable implements endpoint.Table.
func (p *Endpoints) Disable(ctx context.Context, name string, revision int64, reason string) error {
	q := endpointQuery{Fresh: 1 + rand.Int64N(1<<44), Now: time.Now()}
	q.Name, q.Revision, q.Reason = name, revision, reason
	err := cold.Write(ctx, p.db, func(tx *cold.Tx) error {
		_, err := tx.Change(ctx, "endpoint_disable", q)
		return err
	})
	if err != nil {
		return fmt.Errorf("disable endpoint %q: %w", name, err)
	}
	return nil
}

// change runs a statement, and records it if it changed something.
func (p *Endpoints) change(
	ctx context.Context, statement string, e endpoint.Stored, c endpoint.Change,
) (changed bool, err error) {
	q, err := newEndpointQuery(e)
	if err != nil {
		return false, err
	}
	err = cold.Write(ctx, p.db, func(tx *cold.Tx) error {
		n, err := tx.Change(ctx, statement, q)
		if changed = n > 0; err != nil || !changed {
			return err
		}
		return tx.Record(ctx, cold.Action{Actor: c.Actor, Action: c.Action, Reason: c.Reason,
			Filter: map[string]string{"endpoint": e.Name}})
	})
	if err != nil {
		return false, fmt.Errorf("change endpoint %q: %w", e.Name, err)
	}
	return changed, nil
}

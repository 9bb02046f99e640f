package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// row is an endpoint as a database keeps it. Its Endpoint has neither secrets nor headers.
type row struct {
	Endpoint

	Sealed   []sealed          // its secrets
	Values   map[string]string // of headers, sealed as well
	Since    time.Time         // it is disabled; zero: enabled
	Reason   string            // why
	Revision int64             // another one after each change; 0: not stored yet
}

// sealed is a secret that no database knows as such, nor where one is.
type sealed struct {
	Value string    `json:"value"`
	Until time.Time `json:"until,omitzero"` // zero: for as long as it is there
}

// Change says who changes an endpoint, and why, for the record of what operators did.
type Change struct{ Action, Actor, Reason string }

// rows are the table of endpoints. Reading and disable need the rights of outbox_relay, the rest
// those of outbox_operator. It is safe for concurrent use.
type rows struct{ db cold.Database }

// statement is what the files endpoint_*.sql are given.
type statement struct {
	row
	SecretsJSON, HeadersJSON, TopicsJSON, TypesJSON string

	Milliseconds int64
	Off          bool
	Fresh        int64 // the next revision
	Now          time.Time
}

func (r row) statement() (*statement, error) {
	// A revision is so large that the sum over all endpoints is another one after each change, and
	// the sum fits.
	q := &statement{row: r, Milliseconds: r.Timeout.Milliseconds(), Off: !r.Since.IsZero(),
		Fresh: 1 + rand.Int64N(1<<44), Now: time.Now()}
	if r.Values == nil {
		r.Values = map[string]string{}
	}
	for dst, v := range map[*string]any{&q.SecretsJSON: r.Sealed, &q.HeadersJSON: r.Values,
		&q.TopicsJSON: append([]string{}, r.Topics...), &q.TypesJSON: append([]string{}, r.Types...)} {
		text, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("encode endpoint %q: %w", r.Name, err)
		}
		*dst = string(text)
	}
	return q, nil
}

// read returns all endpoints by their names and the version of the table, or no endpoints if that
// is the known one.
func (t rows) read(ctx context.Context, known string) (all []row, version string, err error) {
	err = cold.Read(ctx, t.db, func(tx *cold.Tx) error {
		if err := tx.One(ctx, "endpoint_version", nil, &version); err != nil || version == known {
			return err
		}
		return tx.Each(ctx, "endpoint_list", nil, func(of cold.Rows) error {
			one, err := scan(of)
			all = append(all, one)
			return err
		})
	})
	if err != nil {
		return nil, "", fmt.Errorf("read endpoints: %w", err)
	}
	return all, version, nil
}

func scan(of cold.Rows) (r row, err error) {
	var secrets, headers, topics, types, disabled sqltable.Text
	var milliseconds int64
	if err := of.Scan(&r.Name, &r.Tenant, &r.URL, &secrets, &headers, &milliseconds, &r.Concurrency, &r.Rate, &disabled,
		&r.Reason, &r.Revision, &topics, &types); err != nil {
		return r, err
	}
	r.Timeout = time.Duration(milliseconds) * time.Millisecond
	if since := disabled.Moment(); since != nil {
		r.Since = *since
	}
	err = errors.Join(json.Unmarshal([]byte(secrets.S), &r.Sealed), json.Unmarshal([]byte(headers.S), &r.Values),
		json.Unmarshal([]byte(topics.S), &r.Topics), json.Unmarshal([]byte(types.S), &r.Types))
	if err != nil {
		return r, fmt.Errorf("decode endpoint %q: %w", r.Name, err)
	}
	return r, nil
}

// change runs a statement and tells whether it changed something: nothing that somebody else has
// changed meanwhile. It is recorded if somebody has done it.
func (t rows) change(ctx context.Context, name string, r row, by Change) (changed bool, err error) {
	q, err := r.statement()
	if err != nil {
		return false, err
	}
	err = cold.Write(ctx, t.db, func(tx *cold.Tx) error {
		n, err := tx.Change(ctx, name, q)
		if changed = n > 0; err != nil || !changed || by.Action == "" {
			return err
		}
		return tx.Record(ctx, cold.Action{Actor: by.Actor, Action: by.Action, Reason: by.Reason,
			Filter: map[string]string{"endpoint": r.Name}})
	})
	if err != nil {
		return false, fmt.Errorf("change endpoint %q: %w", r.Name, err)
	}
	return changed, nil
}

package sqliteoperate

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/endpoint"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
	"github.com/outboxrelay/outbox/store/sqlite"
)

// Endpoints is the table of endpoints. It is safe for concurrent use.
type Endpoints struct{ db *sqlite.DB }

var _ endpoint.Table = (*Endpoints)(nil)

// OpenEndpoints answers with a *outbox.SchemaError where the file has no table of endpoints yet.
func OpenEndpoints(ctx context.Context, db *sqlite.DB) (*Endpoints, error) {
	if _, err := file(db).CheckTable(ctx, "outbox_endpoints", nil); err != nil {
		return nil, err
	}
	return &Endpoints{db}, nil
}

// Read implements endpoint.Table.
func (p *Endpoints) Read(ctx context.Context, known string) (all []endpoint.Stored, version string, err error) {
	ask, err := plain("endpoint_version")
	if err != nil {
		return nil, "", err
	}
	list, err := plain("endpoint_list")
	if err != nil {
		return nil, "", err
	}
	err = file(p.db).Snapshot(ctx, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, ask).Scan(&version); err != nil || version == known {
			return err
		}
		rows, err := tx.QueryContext(ctx, list)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			one, err := scanEndpoint(rows)
			if err != nil {
				return err
			}
			all = append(all, one)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, "", fmt.Errorf("read endpoints: %w", sqlitefile.Explain(err))
	}
	return all, version, nil
}

func scanEndpoint(rows *sql.Rows) (e endpoint.Stored, err error) {
	var secrets, headers, created, topics, types string
	var disabled sql.NullString
	var milliseconds int64
	if err := rows.Scan(&e.Name, &e.Tenant, &e.URL, &secrets, &headers, &milliseconds, &e.Concurrency, &e.Rate,
		&disabled, &e.Reason, &e.Revision, &created, &topics, &types); err != nil {
		return e, err
	}
	e.Timeout = time.Duration(milliseconds) * time.Millisecond
	if err := json.Unmarshal([]byte(secrets), &e.Secrets); err != nil {
		return e, fmt.Errorf("decode the secrets of endpoint %q: %w", e.Name, err)
	}
	if err := json.Unmarshal([]byte(headers), &e.Headers); err != nil {
		return e, fmt.Errorf("decode the headers of endpoint %q: %w", e.Name, err)
	}
	if err := errors.Join(json.Unmarshal([]byte(topics), &e.Topics), json.Unmarshal([]byte(types), &e.Types)); err != nil {
		return e, fmt.Errorf("decode the subscription of endpoint %q: %w", e.Name, err)
	}
	if e.Created, err = sqlitetime.Parse(created); err != nil {
		return e, err
	}
	at, err := sqlitetime.ParseNull(disabled)
	if at != nil {
		e.Disabled = *at
	}
	return e, err
}

// Put implements endpoint.Table.
func (p *Endpoints) Put(ctx context.Context, e endpoint.Stored, c endpoint.Change) (bool, error) {
	secrets, headers, err := operate.EncodeEndpoint(e.Name, e.Secrets, e.Headers)
	if err != nil {
		return false, err
	}
	topics, types, err := operate.EncodeSubscription(e.Topics, e.Types)
	if err != nil {
		return false, err
	}
	args := []any{e.Name, e.Tenant, e.URL, secrets, headers, e.Timeout.Milliseconds(), e.Concurrency, e.Rate,
		!e.Disabled.IsZero(), e.Reason, operate.NewRevision(), sqlitetime.Stamp(time.Now()), topics, types}
	statement := "endpoint_add"
	if e.Revision != 0 {
		statement, args = "endpoint_change", append(args, e.Revision)
	}
	return p.change(ctx, statement, e.Name, c, args...)
}

// Remove implements endpoint.Table.
func (p *Endpoints) Remove(ctx context.Context, name string, c endpoint.Change) (bool, error) {
	return p.change(ctx, "endpoint_remove", name, c, name)
}

// Disable implements endpoint.Table.
func (p *Endpoints) Disable(ctx context.Context, name string, revision int64, reason string) error {
	text, err := plain("endpoint_disable")
	if err != nil {
		return err
	}
	err = sqlitefile.InTx(ctx, p.db, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, text, name, revision, reason, operate.NewRevision(), sqlitetime.Stamp(time.Now()))
		return err
	})
	if err != nil {
		return fmt.Errorf("disable endpoint %q: %w", name, sqlitefile.Explain(err))
	}
	return nil
}

// change runs a statement, and records it if it changed something.
func (p *Endpoints) change(
	ctx context.Context, statement, name string, c endpoint.Change, args ...any,
) (changed bool, err error) {
	text, err := plain(statement)
	if err != nil {
		return false, err
	}
	err = sqlitefile.InTx(ctx, p.db, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, text, args...)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if changed = n > 0; err != nil || !changed {
			return err
		}
		by := deadletter.Operator{Actor: c.Actor, Reason: c.Reason}
		return sqlitetable.Audit(ctx, tx, by, c.Action, 0, operate.EndpointNamed(name), nil)
	})
	if err != nil {
		return false, fmt.Errorf("change endpoint %q: %w", name, sqlitefile.Explain(err))
	}
	return changed, nil
}

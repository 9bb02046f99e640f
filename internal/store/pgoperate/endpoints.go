package pgoperate

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/endpoint"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pgschema"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// Endpoints is the table of endpoints. Reading and Disable need the rights of outbox_relay, the rest those of
// outbox_operator. It is safe for concurrent use.
type Endpoints struct{ pool *pgxpool.Pool }

var _ endpoint.Table = (*Endpoints)(nil)

// OpenEndpoints answers with a *outbox.SchemaError where the database has no table of endpoints yet, and with
// outbox.ErrRowsHidden where a policy hides them: their events would be dead letters.
func OpenEndpoints(ctx context.Context, pool *pgxpool.Pool) (*Endpoints, error) {
	if err := pgschema.CheckTable(ctx, pool, "outbox_endpoints", nil); err != nil {
		return nil, err
	}
	return &Endpoints{pool}, pgschema.CheckVisible(ctx, pool, "outbox_endpoints")
}

// Read implements endpoint.Table.
func (p *Endpoints) Read(ctx context.Context, known string) (all []endpoint.Stored, version string, err error) {
	sql, err := plain("endpoint_version")
	if err != nil {
		return nil, "", err
	}
	if err := p.pool.QueryRow(ctx, sql).Scan(&version); err != nil {
		return nil, "", fmt.Errorf("read version of endpoints: %w", err)
	}
	if version == known {
		return nil, version, nil
	}
	if sql, err = plain("endpoint_list"); err != nil {
		return nil, "", err
	}
	rows, err := p.pool.Query(ctx, sql)
	if err != nil {
		return nil, "", fmt.Errorf("read endpoints: %w", err)
	}
	all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e endpoint.Stored, err error) {
		var milliseconds int64
		var disabled *time.Time
		err = row.Scan(&e.Name, &e.Tenant, &e.URL, &e.Secrets, &e.Headers, &milliseconds, &e.Concurrency, &e.Rate,
			&disabled, &e.Reason, &e.Revision, &e.Created, &e.Topics, &e.Types)
		if disabled != nil {
			e.Disabled = *disabled
		}
		e.Timeout = time.Duration(milliseconds) * time.Millisecond
		return e, err
	})
	if err != nil {
		return nil, "", fmt.Errorf("read endpoints: %w", err)
	}
	return all, version, nil
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
		!e.Disabled.IsZero(), e.Reason, operate.NewRevision(), topics, types}
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
	sql, err := plain("endpoint_disable")
	if err != nil {
		return err
	}
	if _, err := p.pool.Exec(ctx, sql, name, revision, reason, operate.NewRevision()); err != nil {
		return fmt.Errorf("disable endpoint %q: %w", name, err)
	}
	return nil
}

// change runs a statement, and records it if it changed something.
func (p *Endpoints) change(
	ctx context.Context, statement, name string, c endpoint.Change, args ...any,
) (changed bool, err error) {
	sql, err := plain(statement)
	if err != nil {
		return false, err
	}
	err = pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sql, args...)
		if changed = tag.RowsAffected() > 0; err != nil || !changed {
			return err
		}
		by := deadletter.Operator{Actor: c.Actor, Reason: c.Reason}
		return pgtable.Audit(ctx, tx, by, c.Action, 0, operate.EndpointNamed(name), nil)
	})
	if err != nil {
		return false, fmt.Errorf("change endpoint %q: %w", name, err)
	}
	return changed, nil
}

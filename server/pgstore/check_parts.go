package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgschema"
	"github.com/outboxrelay/outbox/server/store"
)

const runsTable = "crawl_runs"

// part is what roles.sql gives one of the parts of outbox serve, as far as that part cannot do
// without.
type part struct {
	name  string
	needs []needed
}

// needed are privileges on one table: those on all of it, and the columns that are set.
type needed struct {
	table   string
	whole   []string
	columns []string
}

// CheckGateway finds out whether the pool's role may do what a gateway does with runs:
// outbox.ErrNotAllowed, or outbox.ErrRowsHidden. Else it would say that it is ready and answer
// every request with 500.
func (r *Runs) CheckGateway(ctx context.Context) error {
	sets := []string{"status", "started_at", "completed_at", "cancelled_at", "error_message", "lease_owner",
		"lease_expires_at"}
	if err := checkPart(ctx, r.pool,
		part{"gateway", append(appending(), needed{runsTable, []string{"SELECT", "INSERT"}, sets})}); err != nil {
		return err
	}
	table := struct{ Table string }{pgx.Identifier{runsTable}.Sanitize()}
	var hidden bool
	if err := newDatabase(r.pool).Read(ctx, "", store.Ask{Name: "check_policy", Data: table,
		Row: func(row store.Row) error { return row.Scan(&hidden) }}); err != nil {
		return fmt.Errorf("check row-level security of %s: %w", runsTable, err)
	}
	return runsVisible("gateway", hidden)
}

// CheckWorker does the same for a worker, which crawls the runs of all tenants and makes none.
func (r *Runs) CheckWorker(ctx context.Context) error {
	sets := []string{"status", "started_at", "completed_at", "cancelled_at", "error_message", "lease_owner",
		"lease_expires_at", "lease_epoch",
		"next_node", "node_state", "steps_done", "node_attempts"}
	if err := checkPart(ctx, r.pool,
		part{"worker", append(appending(), needed{runsTable, []string{"SELECT"}, sets})}); err != nil {
		return err
	}
	hidden, err := pgschema.RowsHidden(ctx, r.pool, runsTable)
	if err != nil {
		return err
	}
	return runsVisible("worker", hidden)
}

// CheckGateway finds out whether the pool's role may do what a gateway does with tokens and
// tickets: else outbox.ErrNotAllowed.
func (s *Tokens) CheckGateway(ctx context.Context) error {
	return checkPart(ctx, s.pool, part{"gateway", []needed{
		{"outbox_tokens", []string{"SELECT"}, nil},
		{"outbox_tickets", []string{"SELECT", "INSERT", "DELETE"}, []string{"sha256"}}, // it locks those that it sweeps
	}})
}

// appending is what whoever appends events to runs needs beside the run's row.
func appending() []needed {
	return []needed{
		{"crawl_events", []string{"SELECT", "INSERT"}, nil}, {"crawl_events_id_seq", []string{"USAGE"}, nil},
		{"crawl_outbox", []string{"INSERT"}, nil}, {"crawl_outbox_id_seq", []string{"USAGE"}, nil},
	}
}

// checkPart reports everything that the role lacks at once: whoever grants table by table would
// else start the process six times.
func checkPart(ctx context.Context, pool *pgxpool.Pool, p part) error {
	var problems []string
	for _, n := range p.needs {
		lacks, err := pgschema.Lacking(ctx, pool, n.table, n.whole, n.columns)
		if err != nil {
			return err
		}
		if len(lacks) > 0 {
			problems = append(problems, strings.Join(lacks, ", ")+" on "+n.table)
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("serve as %s: %w: %s: %s", p.name, outbox.ErrNotAllowed, strings.Join(problems, "; "),
		grantPart(p.name))
}

// runsVisible: with privileges of its own and none of the roles, a login sees no run once roles.sql
// has been run, and can make none. A policy that is for one tenant at a time is good enough for a
// gateway.
func runsVisible(name string, hidden bool) error {
	if hidden {
		return fmt.Errorf("serve as %s: table %s: %w: %s", name, runsTable, outbox.ErrRowsHidden, grantPart(name))
	}
	return nil
}

func grantPart(name string) string {
	return fmt.Sprintf("run: outbox migrate roles, then GRANT outbox_%s TO the %s's login", name, name)
}

package cold

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// remembered is a Database whose catalog is asked again only after a time.
type remembered struct {
	Database
	lasting time.Duration

	mu    sync.Mutex
	known map[string]known
}

// known is an answer of the catalog, and until when it is believed.
type known struct {
	answer any
	until  time.Time
}

// mostKnown bounds the memory, against names that operators make up.
const mostKnown = 1000

// Remember returns the same database for whoever opens its tables again and again: what the catalog
// has said of a table is believed for a time. A refusal is not remembered, so a table that has come
// is there at once.
func Remember(db Database, lasting time.Duration) Database {
	return &remembered{Database: db, lasting: lasting, known: map[string]known{}}
}

// recall returns an answer that is still believed, or asks.
func recall[A any](r *remembered, question string, ask func() (A, error)) (A, error) {
	r.mu.Lock()
	k, ok := r.known[question]
	r.mu.Unlock()
	if answer, is := k.answer.(A); ok && is && time.Now().Before(k.until) {
		return answer, nil
	}
	answer, err := ask()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && len(r.known) < mostKnown {
		r.known[question] = known{answer, time.Now().Add(r.lasting)}
	}
	return answer, err
}

// Leased implements Database.
func (r *remembered) Leased(ctx context.Context, table string) (string, error) {
	return recall(r, "leased "+table, func() (string, error) { return r.Database.Leased(ctx, table) })
}

// Check implements Database.
func (r *remembered) Check(ctx context.Context, table string, columns []string) error {
	asked := "check " + table + " " + strings.Join(slices.Sorted(slices.Values(columns)), " ")
	_, err := recall(r, asked, func() (struct{}, error) {
		return struct{}{}, r.Database.Check(ctx, table, columns)
	})
	return err
}

// Columns implements Database.
func (r *remembered) Columns(ctx context.Context, l outbox.Layout) ([]sqltable.Column, error) {
	return recall(r, "columns "+l.Table, func() ([]sqltable.Column, error) { return r.Database.Columns(ctx, l) })
}

// Ordered implements Database.
func (r *remembered) Ordered(ctx context.Context, table, column string) (bool, error) {
	return recall(r, "ordered "+table+" "+column, func() (bool, error) { return r.Database.Ordered(ctx, table, column) })
}

// Visible implements Database.
func (r *remembered) Visible(ctx context.Context, table string) error {
	_, err := recall(r, "visible "+table, func() (struct{}, error) {
		return struct{}{}, r.Database.Visible(ctx, table)
	})
	return err
}

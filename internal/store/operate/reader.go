package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// MoveReader gives the table to another reader, "sinks" or "group:NAME", and returns the former
// one, or "" if none was recorded. It is an error if a process that serves the table is alive. The
// change waits for all leases that are being renewed, so that a process that starts meanwhile is
// either alive or refused. It is recorded in outbox_audit. The role needs the rights of
// outbox_operator.
func (b *Browser) MoveReader(ctx context.Context, to, actor, reason string) (from string, err error) {
	if !b.layout.KeepsState() {
		return "", fmt.Errorf("change the reader of %s: a log has any number of readers; start the new one", b.layout.Table)
	}
	q := struct {
		*query
		Reader string
	}{b.query(), to}
	err = cold.Write(ctx, b.db, func(tx *cold.Tx) error {
		if _, err := tx.Change(ctx, "reader_lock", q); err != nil {
			return err
		}
		if from, err = b.reader(ctx, tx); err != nil || from == to {
			return err
		}
		var alive []string
		if err := tx.Each(ctx, "reader_alive", q, addText(&alive)); err != nil {
			return err
		}
		if len(alive) > 0 {
			return fmt.Errorf("%s still serve it for %s; stop all of them and try again (a process that was killed counts "+
				"until its lease ends)", strings.Join(alive, "; "), from)
		}
		if _, err := tx.Change(ctx, "reader_move", q); err != nil {
			return err
		}
		return tx.Record(ctx, cold.Action{Actor: actor, Action: "reader", Reason: reason,
			Filter: map[string]any{"table": b.leased}, Detail: map[string]any{"from": from, "to": to}})
	})
	if err != nil {
		return "", fmt.Errorf("change the reader of %s to %s: %w", b.layout.Table, to, err)
	}
	return from, nil
}

// reader returns LaneReport.Reader.
func (b *Browser) reader(ctx context.Context, tx *cold.Tx) (reader string, err error) {
	if !b.layout.KeepsState() {
		var groups []string
		err := tx.Each(ctx, "log_groups", b.query(), addText(&groups))
		return strings.Join(groups, ", "), err
	}
	if err = tx.One(ctx, "reader", b.query(), &reader); errors.Is(err, cold.ErrNoRow) {
		err = nil
	}
	return reader, err
}

// addText collects the rows of a statement that has one column.
func addText(all *[]string) func(cold.Rows) error {
	return func(rows cold.Rows) error {
		var one sqltable.Text
		err := rows.Scan(&one)
		*all = append(*all, one.S)
		return err
	}
}

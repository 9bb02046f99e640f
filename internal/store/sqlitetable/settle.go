package sqlitetable

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/errortext"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
)

// Wholly does all of something or, if the file refuses a part, nothing.
func Wholly(ctx context.Context, tx *sql.Tx, do func() (changed bool, err error)) (changed bool, err error) {
	if _, err := tx.ExecContext(ctx, "SAVEPOINT settle_one"); err != nil {
		return false, err
	}
	defer func() {
		end := "RELEASE settle_one"
		if err != nil {
			end = "ROLLBACK TO settle_one; RELEASE settle_one"
		}
		if _, ending := tx.ExecContext(ctx, end); ending != nil {
			changed, err = false, errors.Join(err, ending)
		}
	}()
	return do()
}

// Die writes one letter a failed destination and marks or removes the row of a dead outcome; all of
// it or, if the file refuses a part, nothing. now is a stamp. run runs settle_apps, settle_letter
// or settle_dead, given a Layout with the table's KeptColumns as Columns, and tells whether it
// changed anything.
func Die(
	ctx context.Context, tx *sql.Tx, o *outbox.Outcome, table, now string,
	run func(statement string, args ...any) (changed bool, err error),
) (changed bool, err error) {
	return Wholly(ctx, tx, func() (bool, error) { return die(o, table, now, run) })
}

func die(
	o *outbox.Outcome, table, now string, run func(statement string, args ...any) (changed bool, err error),
) (changed bool, err error) {
	if _, err := run("settle_apps", cmp.Or(o.Record.TenantID, eventrow.DefaultTenant)); err != nil {
		return false, err
	}
	texts := make([]string, len(o.Failures))
	for i, f := range o.Failures {
		texts[i] = errortext.Fit(f.Error)
	}
	row := []any{o.Record.Position, o.Record.ID.String(), o.Record.Generation, now}
	of := func(args ...any) []any { return append(row[:len(row):len(row)], args...) }
	all, attempts, written := strings.Join(texts, "; "), max(o.Attempts, 1), false
	for i, f := range o.Failures {
		id, err := outbox.NewID()
		if err != nil {
			return false, err
		}
		written, err = run("settle_letter", of(id.String(), attempts, texts[i], string(f.Reason), f.Destination, all,
			eventrow.DefaultTenant, table)...)
		if err != nil || !written {
			return false, err
		}
	}
	if !written {
		return false, nil
	}
	return run("settle_dead", of(attempts, all)...)
}

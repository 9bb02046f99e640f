package sqlite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	driver "modernc.org/sqlite"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/replayplace"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
)

// replayEvents puts the events of one table's letters back, and says of the others why it did not.
func (r *replaying) replayEvents(ctx context.Context, table string, letters []letterPlace) error {
	t, known := r.tables[table]
	if table == "" {
		r.skip("a consumer recorded it: it has no row to put back, so hand its payload to the consumer again", letters...)
		return nil
	}
	if !known {
		r.skip(fmt.Sprintf("there is no table %s that this program knows: name it in DeadLettersConfig.Layouts, or map it "+
			"with --layouts", table), letters...)
		return nil
	}
	revived, err := r.attempt(ctx, t, letters)
	if err != nil {
		return fmt.Errorf("put rows back into %s: %w", table, err)
	}
	var left []letterPlace
	for _, l := range letters {
		if revived[l.id] {
			r.done = append(r.done, l.id)
		} else if !slices.ContainsFunc(r.page.Skipped, func(s deadletter.Skipped) bool { return s.ID == l.id }) {
			left = append(left, l)
		}
	}
	if len(left) == 0 {
		return nil
	}
	if err := r.why(ctx, t, left); err != nil {
		return fmt.Errorf("find out about rows of %s: %w", table, err)
	}
	return nil
}

// attempt puts the events of letters back and returns the ids of the letters for which it could. If the file refuses
// what one of them contains (a run that was deleted meanwhile, a payload that a constraint forbids) it goes on in
// halves. Once that letter is alone, it is skipped.
func (r *replaying) attempt(
	ctx context.Context, t deadTable, letters []letterPlace,
) (revived map[uuid.UUID]bool, err error) {
	refused, err := r.savepoint(ctx, func() (err error) {
		revived, err = r.revive(ctx, t, letters)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !ofTheData(refused) {
		return revived, refused
	}
	half := len(letters) / 2
	for half > 0 && half < len(letters) && letters[half].Event == letters[half-1].Event { // an event is not parted
		half++
	}
	if half == 0 || half == len(letters) {
		half = slices.IndexFunc(letters, func(l letterPlace) bool { return l.Event != letters[0].Event })
	}
	if half < 0 {
		var refusal *driver.Error
		errors.As(refused, &refusal)
		r.skip("its row cannot be put back: "+refusal.Error(), letters...)
		return nil, nil
	}
	if revived, err = r.attempt(ctx, t, letters[:half]); err != nil {
		return nil, err
	}
	more, err := r.attempt(ctx, t, letters[half:])
	if err != nil {
		return nil, err
	}
	all := map[uuid.UUID]bool{}
	maps.Copy(all, revived)
	maps.Copy(all, more)
	return all, nil
}

func (r *replaying) revive(ctx context.Context, t deadTable, letters []letterPlace) (map[uuid.UUID]bool, error) {
	revived := map[uuid.UUID]bool{}
	q := t.query(letterQuery{Replace: r.request.Payload != nil})
	parts := [][]letterPlace{letters}
	if q.Owed { // each has a row of its own
		parts = replayplace.Apart(letters, func(l letterPlace) uuid.UUID { return l.Event })
	}
	for _, some := range parts {
		events, err := r.reviveEvents(ctx, q, some)
		if err != nil {
			return nil, err
		}
		for _, l := range some {
			if events[l.Event] {
				revived[l.id] = true
			}
		}
	}
	return revived, nil
}

// reviveEvents returns the events that it has put back.
func (r *replaying) reviveEvents(
	ctx context.Context, q *letterQuery, letters []letterPlace,
) (map[uuid.UUID]bool, error) {
	revived := map[uuid.UUID]bool{}
	var payload any
	if q.Replace {
		payload = string(r.request.Payload)
	}
	var statements []string
	if !q.DeleteDead || q.Destinations != "" { // else there is no row to be found
		statements = append(statements, "dlq_revive")
	}
	if q.DeleteDead {
		statements = append(statements, "dlq_insert")
	}
	for _, name := range statements {
		left := slices.DeleteFunc(slices.Clone(letters), func(l letterPlace) bool { return revived[l.Event] })
		text, args, err := q.given(name, left, payload)
		if err != nil {
			return nil, err
		}
		events, err := sqlitetable.QueryIDs(ctx, r.tx, text, args...)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			revived[e] = true
		}
	}
	return revived, nil
}

// given returns a statement about letters, and its arguments: their ids and what else it takes.
func (q *letterQuery) given(name string, letters []letterPlace, more ...any) (statement string, args []any, err error) {
	if statement, err = q.render(name); err != nil {
		return "", nil, err
	}
	var ids sqlitetable.Arguments
	if _, err := ids.Add(idsOf(letters)); err != nil {
		return "", nil, err
	}
	return statement, append(ids.Args, more...), nil
}

// why says of letters why their events were not put back.
func (r *replaying) why(ctx context.Context, t deadTable, letters []letterPlace) error {
	statement, args, err := t.query(letterQuery{}).given("dlq_why", letters)
	if err != nil {
		return err
	}
	rows, err := r.tx.QueryContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var s deadletter.Skipped
		if err := rows.Scan(&s.ID, &s.Why); err != nil {
			return err
		}
		r.page.Skipped = append(r.page.Skipped, s)
	}
	return rows.Err()
}

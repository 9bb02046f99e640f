package sqlitetable

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
)

// Audit writes the record of an operator's action into its transaction.
func Audit(
	ctx context.Context, tx *sql.Tx, by deadletter.Operator, action string, letters int, filter, detail any,
) error {
	statement, err := plain("audit")
	if err != nil {
		return err
	}
	id, err := outbox.NewID()
	if err != nil {
		return err
	}
	chosen, err := json.Marshal(filter)
	if err != nil {
		return fmt.Errorf("encode filter: %w", err)
	}
	var more any
	if detail != nil {
		text, err := json.Marshal(detail)
		if err != nil {
			return fmt.Errorf("encode details: %w", err)
		}
		more = string(text)
	}
	if _, err := tx.ExecContext(ctx, statement, id.String(), sqlitetime.Stamp(time.Now()), by.Actor, action, letters,
		string(chosen), by.Reason, more); err != nil {
		return fmt.Errorf("record action %s: %w", action, err)
	}
	return nil
}

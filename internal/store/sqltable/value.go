package sqltable

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/errortext"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
	"github.com/outboxrelay/outbox/internal/store/uuid7"
)

// Text takes a column's value of whatever type, as text. Bytes says that it was a BLOB.
type Text struct {
	S           string
	Null, Bytes bool
}

// Scan implements sql.Scanner.
func (t *Text) Scan(v any) error {
	*t = Text{}
	switch v := v.(type) {
	case nil:
		t.Null = true
	case string:
		t.S = v
	case []byte:
		t.S, t.Bytes = string(v), true
	case int64:
		t.S = strconv.FormatInt(v, 10)
	case float64:
		t.S = strconv.FormatFloat(v, 'g', -1, 64)
	case time.Time: // the driver's own idea of a column declared as one
		t.S = sqlitetime.Stamp(v)
	default:
		t.S = fmt.Sprint(v)
	}
	return nil
}

// Number takes a column's value of whatever type; Bad says that it is no integer.
type Number struct {
	N   int64
	Bad bool
}

// Scan implements sql.Scanner.
func (n *Number) Scan(v any) error {
	*n = Number{}
	switch v := v.(type) {
	case nil:
	case int64:
		n.N = v
	default:
		n.Bad = true
	}
	return nil
}

// ParseID reads an id in any of its forms, 16 bytes included. Of what is no UUID it makes one,
// always the same, so that the row can become a dead letter.
func ParseID(t Text) (id uuid.UUID, known bool) {
	if t.Bytes && len(t.S) == 16 {
		copy(id[:], t.S)
		return id, true
	}
	id, err := uuid.Parse(t.S)
	if err != nil {
		return uuid.NewSHA1(uuid.NameSpaceOID, []byte(t.S)), false
	}
	return id, true
}

// TimeOfID returns the time in a UUIDv7 as it would be stored, nothing for another UUID, and what
// is no UUID as it is. A table says when its rows were written by one or the other.
func (t Text) TimeOfID() Text {
	id, ok := ParseID(t)
	switch at := uuid7.Time(id); {
	case t.Null || !ok:
		return t
	case at.IsZero():
		return Text{Null: true}
	default:
		return Text{S: sqlitetime.Stamp(at)}
	}
}

// Pointer is nil where there is no text.
func (t Text) Pointer() *string {
	if t.Null {
		return nil
	}
	return &t.S
}

// Moment is nil where there is no time.
func (t Text) Moment() *time.Time {
	at, err := sqlitetime.Parse(t.S)
	if err != nil {
		return nil
	}
	return &at
}

// Integer is nil where there is no integer.
func Integer[T int | int64](t Text) *T {
	var n T
	if t.Null || json.Unmarshal([]byte(t.S), &n) != nil {
		return nil
	}
	return &n
}

// JSON is the text itself where it is JSON, and else the text as a JSON string. A mapped table may
// hold anything, and people look at it to find out what.
func (t Text) JSON() json.RawMessage {
	if t.Null {
		return nil
	}
	if json.Valid([]byte(t.S)) {
		return json.RawMessage(t.S)
	}
	quoted, err := json.Marshal(t.S)
	if err != nil {
		return nil // no string fails
	}
	return quoted
}

// QuoteText makes a literal of a text.
func QuoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// Retry is what an event that is tried again leaves in its row: what was wrong, and the
// destinations it was delivered to as a JSON array, "" for none.
func Retry(o *outbox.Outcome) (problem, deliveredTo string, err error) {
	texts := make([]string, len(o.Failures))
	for i, f := range o.Failures {
		texts[i] = f.Error
		if len(o.Failures) > 1 {
			texts[i] = f.Destination + ": " + f.Error
		}
	}
	if len(o.DeliveredTo) > 0 {
		b, err := json.Marshal(o.DeliveredTo)
		if err != nil {
			return "", "", fmt.Errorf("encode destinations served: %w", err)
		}
		deliveredTo = string(b)
	}
	return errortext.Fit(strings.Join(texts, "; ")), deliveredTo, nil
}

package outboxtest

import (
	"cmp"
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/sqltx"
)

var (
	//go:embed sql/written.sql
	writtenSQL string
	//go:embed sql/written_log.sql
	writtenLogSQL string
	//go:embed sql/has_log.sql
	hasLogSQL string
)

// pgxRows are pgx.Rows, or *sql.Rows.
type pgxRows interface {
	Next() bool
	Scan(dst ...any) error
	Err() error
}

// pgxTx is a pgx.Tx. R is pgx.Rows: a type parameter, so that this package need not import pgx.
type pgxTx[R pgxRows] interface {
	Query(ctx context.Context, sql string, args ...any) (R, error)
}

// RequireWritten ends the test unless tx, a pgx.Tx, has written exactly these events into
// outbox_events so far, in this order; without any, none. Those that it has written into
// outbox_log, where that table is there, follow them. What was rolled back to a savepoint is not
// written. It returns the events as they are in the tables.
//
// Only the fields that are set are compared: Topic, AggregateType, AggregateID, TenantID, Source,
// SchemaID, SchemaVersion, ID, Destinations and Metadata. Of Payload, which may be left out, an
// object needs to have the members that are given, and any others; so do objects within it. Numbers
// are compared by their value: the table has 1e2 as 100.
//
//	outboxtest.RequireWritten(t, tx, outbox.Event{Topic: "order.placed", AggregateID: "42",
//		Payload: json.RawMessage(`{"total": 7}`)})
//
// PostgreSQL only.
func RequireWritten[R pgxRows](t testing.TB, tx pgxTx[R], want ...outbox.Event) []outbox.Event {
	t.Helper()
	return requireWritten(t, func(text string) (pgxRows, error) { return tx.Query(t.Context(), text) }, want)
}

// RequireWrittenSQL is RequireWritten for transactions of database/sql, of PostgreSQL.
func RequireWrittenSQL(t testing.TB, tx outbox.SQLTx, want ...outbox.Event) []outbox.Event {
	t.Helper()
	open, err := sqltx.Open(tx)
	if err != nil {
		t.Fatalf("read the events of the transaction: %v", err)
	}
	var rows *sql.Rows // those before it were read to their end
	defer func() {
		if rows != nil {
			_ = rows.Close()
		}
	}()
	return requireWritten(t, func(text string) (_ pgxRows, err error) {
		rows, err = open.QueryContext(t.Context(), text) //nolint:rowserrcheck,sqlclosecheck // readRows asks; closed above
		return rows, err
	}, want)
}

func requireWritten(t testing.TB, query func(text string) (pgxRows, error), want []outbox.Event) []outbox.Event {
	t.Helper()
	got, err := readWritten(query)
	if err != nil {
		t.Fatalf("read the events of the transaction: %v", err)
	}
	if problem := compareWritten(got, want); problem != "" {
		t.Fatal(problem)
	}
	for i := range got {
		if got[i].Metadata, err = asDecoded(got[i].Metadata); err != nil {
			t.Fatalf("read the events of the transaction: event %s: %v", got[i].ID, err)
		}
	}
	return got
}

// readWritten reads the events of outbox_events, and of outbox_log where the role can.
func readWritten(query func(text string) (pgxRows, error)) (got []outbox.Event, err error) {
	var log bool
	if err := readRows(query, hasLogSQL, func(r pgxRows) error { return r.Scan(&log) }); err != nil {
		return nil, err
	}
	add := func(r pgxRows) error {
		e, err := scanWritten(r)
		got = append(got, e)
		return err
	}
	if err := readRows(query, writtenSQL, add); err != nil || !log {
		return got, err
	}
	return got, readRows(query, writtenLogSQL, add)
}

func readRows(query func(text string) (pgxRows, error), text string, row func(pgxRows) error) error {
	rows, err := query(text)
	if err != nil {
		return err
	}
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func scanWritten(rows pgxRows) (e outbox.Event, err error) {
	var id, destinations, payload, metadata string
	if err := rows.Scan(&id, &e.Topic, &e.AggregateType, &e.AggregateID, &e.TenantID,
		&e.Source, &e.SchemaID, &e.SchemaVersion, &destinations, &payload, &metadata); err != nil {
		return e, err
	}
	e.ID, e.Payload = uuid.MustParse(id), json.RawMessage(payload)
	for text, dst := range map[string]any{destinations: &e.Destinations, metadata: &e.Metadata} {
		if text == "" {
			continue
		}
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber() // no digit of the metadata is lost before they are compared
		if err := d.Decode(dst); err != nil {
			return e, fmt.Errorf("event %s: %w", id, err)
		}
	}
	return e, nil
}

// asDecoded returns metadata with numbers as encoding/json gives them to everybody.
func asDecoded(metadata map[string]any) (out map[string]any, err error) {
	text, err := json.Marshal(metadata)
	if err != nil {
		return nil, err
	}
	return out, json.Unmarshal(text, &out)
}

// compareWritten says what differs, or nothing.
func compareWritten(got, want []outbox.Event) string {
	var b strings.Builder
	differ := len(got) != len(want)
	fmt.Fprintf(&b, "the transaction has written %d events, want %d:", len(got), len(want))
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(want):
			fmt.Fprintf(&b, "\n  %d. too many: %s", i+1, brief(got[i]))
		case i >= len(got):
			fmt.Fprintf(&b, "\n  %d. missing: %s", i+1, brief(want[i]))
		default:
			problems := differences(got[i], want[i])
			differ = differ || len(problems) > 0
			if len(problems) == 0 {
				fmt.Fprintf(&b, "\n  %d. as wanted: %s", i+1, brief(got[i]))
				continue
			}
			fmt.Fprintf(&b, "\n  %d. %s\n     %s", i+1, brief(got[i]), strings.Join(problems, "\n     "))
		}
	}
	if !differ {
		return ""
	}
	return b.String()
}

// brief is an event in one line.
func brief(e outbox.Event) string {
	s := e.Topic
	if e.AggregateID != "" {
		s += fmt.Sprintf(" of %s %s", e.AggregateType, e.AggregateID)
	}
	if len(e.Payload) > 0 {
		s += fmt.Sprintf(" %.200s", e.Payload)
	}
	return strings.TrimSpace(s)
}

// differences are those of the fields that want has set.
func differences(got, want outbox.Event) (problems []string) {
	wanted, is := reflect.ValueOf(want), reflect.ValueOf(got)
	for _, name := range []string{"ID", "Topic", "AggregateType", "AggregateID", "TenantID",
		"Source", "SchemaID", "SchemaVersion", "Destinations"} {
		w, g := wanted.FieldByName(name), is.FieldByName(name)
		if !w.IsZero() && (w.Kind() != reflect.Slice || w.Len() > 0) && !reflect.DeepEqual(w.Interface(), g.Interface()) {
			problems = append(problems, fmt.Sprintf("%s is %v, want %v", name, g, w))
		}
	}
	for _, part := range []struct {
		name      string
		got, want any
	}{{"Payload", got.Payload, want.Payload}, {"Metadata", got.Metadata, want.Metadata}} {
		if reflect.ValueOf(part.want).Len() == 0 {
			continue
		}
		w, err := plain(part.want)
		if err != nil {
			problems = append(problems, fmt.Sprintf("the %s that is wanted is no JSON: %v", part.name, err))
			continue
		}
		g, err := plain(part.got)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s is no JSON: %v", part.name, err))
			continue
		}
		problems = append(problems, within(part.name, g, w)...)
	}
	return problems
}

// plain is v as encoding/json reads it back, numbers as they are written.
func plain(v any) (out any, err error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	return out, d.Decode(&out)
}

// within compares the members of objects that want has, and anything else as it is.
func within(path string, got, want any) (problems []string) {
	members, isObject := want.(map[string]any)
	have, hasObject := got.(map[string]any)
	if !isObject || !hasObject {
		if !equal(got, want) {
			problems = append(problems, fmt.Sprintf("%s is %s, want %s", path, compact(got), compact(want)))
		}
		return problems
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if v, there := have[name]; !there {
			problems = append(problems, fmt.Sprintf("%s.%s is missing, want %s", path, name, compact(members[name])))
		} else {
			problems = append(problems, within(path+"."+name, v, members[name])...)
		}
	}
	return problems
}

// equal compares what plain returns, numbers by their value: jsonb has 1e2 as 100.
func equal(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		return ok && maps.EqualFunc(got, want, equal)
	case []any:
		got, ok := got.([]any)
		return ok && slices.EqualFunc(got, want, equal)
	case json.Number:
		got, ok := got.(json.Number)
		return ok && (got == want || valueOf(got) == valueOf(want))
	}
	return reflect.DeepEqual(got, want)
}

// decimal is the value of a number: its digits, without zeros at either end, times a power of ten.
type decimal struct {
	negative bool
	digits   string // "" is 0
	exponent int64
}

// valueOf computes with texts: math/big would have to write 1e999999999 out.
func valueOf(n json.Number) (d decimal) {
	text, negative := strings.CutPrefix(n.String(), "-")
	mantissa, power := text, ""
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		mantissa, power = text[:at], text[at+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	d.digits = strings.TrimRight(digits, "0")
	if d.digits == "" {
		return d
	}
	d.negative = negative
	// One too large is the largest there is, which no column holds.
	d.exponent, _ = strconv.ParseInt(cmp.Or(power, "0"), 10, 64)
	d.exponent += int64(len(digits) - len(d.digits) - len(fraction))
	return d
}

func compact(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

package sqlite

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
)

// A row that left its table when it died comes back with the values that it had and of the classes
// that they had, whatever its columns are declared as.
func TestRowsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	const names = `(n INTEGER PRIMARY KEY, uid UUID NOT NULL, kind TEXT, body BLOB, k ANY, done TEXT, tries INT, due TEXT, extra ANY, raw BLOB, price REAL, "it's ""q"" \" TEXT, "a.b" TEXT)`
	db := filled(t, `CREATE TABLE mine `+names, `CREATE TABLE tight `+strings.Replace(names, "UUID", "ANY", 1)+` STRICT`)
	columns := []string{"n", "uid", "kind", "body", "k", "tries", "extra", "raw", "price", `"it's ""q"" \"`, `"a.b"`}
	id := func() string { return "'" + uuid.NewString() + "'" }
	bytesID := "x'" + strings.ReplaceAll(uuid.NewString(), "-", "") + "'"
	type relay struct {
		*store
		owner uuid.UUID
		lanes []outbox.Lane
	}
	relays := map[string]relay{}
	var layouts []outbox.Layout
	for _, table := range []string{"mine", "tight"} {
		l := outbox.Layout{Table: table, ID: "uid", Position: "n", Topic: "kind", Payload: "body", Key: "k",
			DeliveredAt: "done", Attempts: "tries", NextRetryAt: "due"}
		s, owner, lanes := serving(t, db, l)
		layouts, relays[table] = append(layouts, l), relay{s, owner, lanes}
	}
	d, err := OpenDeadLetters(t.Context(), db, DeadLettersConfig{Layouts: layouts})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		table  string
		values []string
	}{
		{"mine", []string{"9007199254740993", bytesID, "'a.b'", `'{"a": 1.50}'`, "'k'", "0", "x'00ff'", "'beef'", "0.1 + 0.2",
			"'Q'", "'a' || char(0) || 'b'"}},
		{"mine", []string{"-3", id(), "NULL", `x'7b7d'`, "x'6b'", "0", `'{"blob":"00"}'`, "CAST(x'ff41' AS TEXT)", "9e999",
			"x'beef'", "''"}},
		{"mine", []string{"4", "'no id'", "'a'", "NULL", "5", "0", "-9e999", "1.0", "NULL", "'true'", "x''"}},
		{"mine", []string{"5", "x'01'", "'a'", "'no JSON'", "5.5", "0", "9223372036854775807", "1e-300", "1", "'[1]'",
			"NULL"}},
		{"mine", []string{"6", strings.ToUpper(id()), "'a'", "7", "NULL", "0", "1.0", "'12'", "123456789.123456789", "'\"'",
			"'\\u0041'"}},
		{"tight", []string{"1", bytesID, "'a'", "x'31'", "'12'", "0", "1.0", "x'aa'", "2", "'ü€😀'",
			"char(10, 31, 127, 8232)"}},
	} {
		exec(t, db, "INSERT INTO "+tt.table+" ("+strings.Join(columns, ", ")+") VALUES ("+strings.Join(tt.values, ", ")+")")
		// Not by sqlitetable.Quote(), which cuts a text at its first NUL.
		var parts []string
		for _, c := range columns {
			parts = append(parts, "typeof("+c+") || ':' || CASE typeof("+c+") WHEN 'real' THEN printf('%!.17g', "+c+
				") ELSE coalesce(hex("+c+"), '') END")
		}
		row := "SELECT " + strings.Join(parts, " || ', ' || ") + " FROM " + tt.table
		before := value(t, db, row)
		s := relays[tt.table]
		records, err := s.Claim(t.Context(), s.lanes, everything)
		if err != nil || len(records) != 1 {
			t.Fatalf("%v: %d records, error %v", tt.values, len(records), err)
		}
		dead := outbox.Outcome{Record: records[0], State: outbox.Dead, Attempts: 1,
			Failures: []outbox.Failure{{Error: "no", Reason: outbox.ReasonDeliveryFailed}}}
		if settled, err := s.Settle(t.Context(), s.owner, s.lanes, []outbox.Outcome{dead}); err != nil || settled.Dead != 1 ||
			value(t, db, "SELECT count(*) FROM "+tt.table) != "0" {
			t.Fatalf("%v: settled %+v, error %v", tt.values, settled, err)
		}
		page, err := d.ReplayPage(t.Context(), deadletter.ReplayRequest{Limit: 100})
		if err != nil || page.Replayed[tt.table] != 1 {
			t.Fatalf("%v: replayed %+v, error %v", tt.values, page, err)
		}
		if after := value(t, db, row); after != before {
			was, is := strings.Split(before, ", "), strings.Split(after, ", ")
			for i := range was {
				if is[i] != was[i] {
					t.Errorf("%s = %s: was %s, came back as %s", columns[i], tt.values[i], was[i], is[i])
				}
			}
		}
		exec(t, db, "DELETE FROM "+tt.table)
	}
}

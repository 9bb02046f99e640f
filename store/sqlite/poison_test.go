package sqlite

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// anything makes a table as somebody might have it: SQLite keeps any value in any column of it.
func anything(t *testing.T, db *DB) outbox.Layout {
	t.Helper()
	exec(t, db, `CREATE TABLE anything (n INTEGER PRIMARY KEY, id NOT NULL, kind VARCHAR(20), body JSON, customer TEXT, gen INT, version INT, number BIGINT, goes JSON, meta JSON,
		made DATETIME, happened TIMESTAMP, at_last DATETIME, tries INT, due DATETIME, problem VARCHAR(20) CHECK (length(problem) <= 20), served JSON, past JSON)`)
	return outbox.Layout{Table: "anything", ID: "id", Position: "n", Topic: "kind", Payload: "body", Key: "customer",
		Generation: "gen", SchemaVersion: "version", Sequence: "number",
		Destinations: "goes", Metadata: "meta", WrittenAt: "made", OccurredAt: "happened", DeliveredAt: "at_last",
		Attempts: "tries", NextRetryAt: "due", LastError: "problem",
		DeliveredTo: "served", ErrorHistory: "past"}
}

const goodID = "'00000000-0000-4000-8000-000000000001'"

// What a row cannot be costs its own key a dead letter, and the others nothing.
func TestValueThatCannotBeUsedIsADeadLetter(t *testing.T) {
	t.Parallel()
	db := filled(t)
	s, owner, lanes := serving(t, db, anything(t, db))
	for _, tt := range []struct{ column, value, defect, payload string }{
		{"body", "x'0102ff'", "BLOB", `"0102FF"`},
		{"body", "'{'", "no JSON", `"{"`},
		{"body", "CAST(x'22ff22' AS TEXT)", "UTF-8", ""},
		{"body", "'{a: 1}'", "no JSON", `"{a: 1}"`},
		{"id", "'no id'", "no UUID", "1"},
		{"id", "''", "no UUID", "1"},
		{"id", "42", "no UUID", "1"},
		{"id", "x'00'", "no UUID", "1"},
		{"gen", "'x'", "generation", "1"},
		{"version", "'three'", "schema version", "1"},
		{"version", "3000000000", "schema version", "1"},
		{"number", "1e30", "sequence", "1"},
		{"tries", "x'01'", "attempts", "1"},
		{"tries", "-1", "attempts", "1"},
		{"made", "'long ago'", "time of writing", "1"},
		{"made", "1234567890", "time of writing", "1"},
		{"happened", "'tomorrow or so'", "time of the event", "1"},
		{"goes", "'nowhere'", "destinations", "1"},
		{"meta", "'{'", "metadata", "1"},
		{"meta", "CAST(x'22ff22' AS TEXT)", "metadata is not valid UTF-8", "1"},
		{"kind", "CAST(x'6fe9' AS TEXT)", "topic is not valid UTF-8", "1"},
		{"customer", "CAST(x'6fe9' AS TEXT)", "key is not valid UTF-8", "1"},
	} {
		values := map[string]string{"id": goodID, "body": "'1'", tt.column: tt.value}
		var columns, texts []string
		for c, v := range values {
			columns, texts = append(columns, c), append(texts, v)
		}
		exec(t, db, "INSERT INTO anything ("+strings.Join(columns, ", ")+") VALUES ("+strings.Join(texts, ", ")+")")
		exec(t, db, "INSERT INTO anything (id, kind, body) VALUES (?1, 'good', '1')", uuid.NewString())
		records, err := s.Claim(t.Context(), lanes, everything)
		if err != nil || len(records) != 2 || !strings.Contains(records[0].Defect, tt.defect) || records[1].Defect != "" {
			t.Fatalf("%s %s: %d records, error %v, the first's defect %q", tt.column, tt.value, len(records), err,
				records[0].Defect)
		}
		settled, err := s.Settle(t.Context(), owner, lanes,
			[]outbox.Outcome{{Record: records[1]}, {Record: records[0], State: outbox.Dead, Attempts: 1,
				Failures: []outbox.Failure{{Error: "no good", Reason: outbox.ReasonDeserializationFailed}}}})
		if err != nil || settled != (outbox.Settled{Delivered: 1, Dead: 1}) {
			t.Errorf("%s %s: settled %+v, error %v", tt.column, tt.value, settled, err)
		}
		if got := value(t, db, "SELECT payload FROM job_dlq ORDER BY id DESC LIMIT 1"); tt.payload != "" &&
			got != tt.payload {
			t.Errorf("%s %s: the letter's payload is %s", tt.column, tt.value, got)
		}
	}
	if left := value(t, db, "SELECT count(*) FROM anything WHERE at_last IS NULL"); left != "0" {
		t.Errorf("%s rows are left", left)
	}
}

// Ids of other spellings are ids, and times of all of SQLite's forms are times.
func TestOtherSpellings(t *testing.T) {
	t.Parallel()
	db := filled(t)
	s, owner, lanes := serving(t, db, anything(t, db))
	id := uuid.MustParse("a1b2c3d4-0000-7000-8000-0123456789ab")
	want := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, spelling := range []any{id.String(), strings.ToUpper(id.String()), strings.ReplaceAll(id.String(), "-", ""),
		id[:]} {
		for _, at := range []string{"2026-01-02 03:04:05", "2026-01-02T03:04:05", "2026-01-02T03:04:05Z",
			"2026-01-02 03:04:05.000", "2026-01-02T04:04:05+01:00"} {
			exec(t, db, "INSERT INTO anything (id, body, made) VALUES (?1, '1', ?2)", spelling, at)
			records, err := s.Claim(t.Context(), lanes, everything)
			if err != nil || len(records) != 1 {
				t.Fatalf("%v: %d records, error %v", spelling, len(records), err)
			}
			if r := records[0]; r.ID != id || r.Defect != "" || !r.WrittenAt.Equal(want) {
				t.Errorf("%v, %s: got %s, %s, defect %q", spelling, at, r.ID, r.WrittenAt, r.Defect)
			}
			if settled, err := s.Settle(t.Context(), owner, lanes, []outbox.Outcome{{Record: records[0]}}); err != nil ||
				settled.Delivered != 1 {
				t.Errorf("%v: settled %+v, error %v", spelling, settled, err)
			}
		}
	}
}

// An error text that a mapped column does not take holds back its own key and nothing else.
func TestSettleIsolatesWhatTheFileRefuses(t *testing.T) {
	t.Parallel()
	db := filled(t)
	layout := anything(t, db)
	exec(t, db,
		`CREATE TRIGGER picky BEFORE UPDATE OF at_last ON anything WHEN NEW.at_last IS NOT NULL AND NEW.kind = 'never' BEGIN SELECT raise(ABORT, 'it may not'); END`)
	s, owner, lanes := serving(t, db, layout)
	for _, kind := range []string{"good", "never", "long", "good"} {
		exec(t, db, "INSERT INTO anything (id, kind, body, customer) VALUES (?1, ?2, '1', ?1)", uuid.NewString(), kind)
	}
	records, err := s.Claim(t.Context(), lanes, everything)
	if err != nil || len(records) != 4 {
		t.Fatalf("%d records, error %v", len(records), err)
	}
	outcomes := []outbox.Outcome{{Record: records[0]}, {Record: records[1]},
		{Record: records[2], State: outbox.Retry, Attempts: 1, RetryIn: time.Minute,
			Failures: []outbox.Failure{{Error: "longer than the twenty characters"}}}, {Record: records[3]}}
	settled, err := s.Settle(t.Context(), owner, lanes, outcomes)
	if err != nil || settled != (outbox.Settled{Delivered: 2, Retried: 2}) {
		t.Errorf("settled %+v, error %v", settled, err)
	}
	if n := value(t, db, "SELECT count(*) FROM anything WHERE at_last IS NULL AND due > ?1",
		stamp(time.Now().Add(59*time.Minute))); n != "2" {
		t.Errorf("%s rows wait an hour, want 2", n)
	}
}

// Columns that cannot play their part are found when the table is opened, not after its first
// events were published.
func TestOpenRefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	db := filled(t)
	const rest = ", kind, body, at_last, tries, due)"
	layout := outbox.Layout{Table: "t", ID: "id", Position: "n", Topic: "kind", Payload: "body", DeliveredAt: "at_last",
		Attempts: "tries", NextRetryAt: "due"}
	for _, tt := range []struct{ create, want string }{
		{"", "does not exist"},
		{"CREATE TABLE t (n INTEGER PRIMARY KEY, id TEXT NOT NULL, kind)", "lacks at_last, body, due, tries"},
		{"CREATE TABLE t (n INTEGER PRIMARY KEY, id TEXT" + rest, "NOT NULL on id"},
		{"CREATE TABLE t (n INTEGER NOT NULL, id TEXT PRIMARY KEY NOT NULL" + rest, "INTEGER PRIMARY KEY on n"},
		// 'abc' fits there.
		{"CREATE TABLE t (n INTEGER NOT NULL UNIQUE, id TEXT PRIMARY KEY NOT NULL" + rest, "INTEGER PRIMARY KEY on n"},
		{"CREATE TABLE t (n INT PRIMARY KEY, id TEXT NOT NULL" + rest, "INTEGER PRIMARY KEY on n"}, // NULL fits there
		{"CREATE TABLE t (n INTEGER, id TEXT NOT NULL, kind, body, at_last, tries, due, PRIMARY KEY (n, id))",
			"INTEGER PRIMARY KEY on n"},
		{"CREATE VIEW t AS SELECT position AS n, id, event_topic AS kind, payload AS body, processed_at AS at_last, " +
			"retry_count AS tries, next_retry_at AS due FROM outbox_events", "NOT NULL on id"},
		{"CREATE TABLE t (n INTEGER PRIMARY KEY, ID TEXT NOT NULL" + rest, ""}, // names are the same in any case
		{"CREATE TABLE t (n INTEGER NOT NULL UNIQUE, id TEXT PRIMARY KEY NOT NULL, kind ANY, body ANY, at_last ANY, tries " +
			"ANY, due ANY) STRICT", ""},
	} {
		if tt.create != "" {
			exec(t, db, tt.create)
		}
		_, err := openTable(t.Context(), db, layout)
		var schema *outbox.SchemaError
		if tt.want == "" && err != nil || tt.want != "" &&
			(!errors.As(err, &schema) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got error %v, want %q in it", tt.create, err, tt.want)
		}
		if kind, name, _ := strings.Cut(strings.TrimPrefix(tt.create, "CREATE "), " "); name != "" {
			exec(t, db, "DROP "+kind+" t")
		}
	}
	layout.Settle = outbox.SettleDelete
	for position, want := range map[string]string{"": "AUTOINCREMENT on n", "AUTOINCREMENT": ""} {
		exec(t, db, "CREATE TABLE t (n INTEGER PRIMARY KEY "+position+", id TEXT NOT NULL"+rest)
		if _, err := openTable(t.Context(), db, layout); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("delivered rows are deleted, position %q: got error %v, want %q in it", position, err, want)
		}
		exec(t, db, "DROP TABLE t")
	}
	exec(t, db, "DROP TABLE outbox_relays")
	if _, err := openTable(t.Context(), db, outbox.OutboxEvents()); err == nil ||
		!strings.Contains(err.Error(), "outbox migrate up --set core") {
		t.Errorf("without relays: got error %v", err)
	}
	layout.Attempts = ""
	if _, err := openTable(t.Context(), db, layout); err == nil ||
		!strings.Contains(err.Error(), "attempts: is required") {
		t.Errorf("a layout that lacks something: got error %v", err)
	}
}

// Nobody is sent for a set of migrations that SQLite does not have.
func TestLogTablesAreRefused(t *testing.T) {
	t.Parallel()
	db := filled(t, "CREATE TABLE mine (position INTEGER PRIMARY KEY, id TEXT NOT NULL)")
	mine := outbox.OutboxLog()
	mine.Table = "mine"
	for table, layout := range map[string]outbox.Layout{"outbox_log": outbox.OutboxLog(), "mine": mine} {
		_, err := openTable(t.Context(), db, layout)
		var schema *outbox.SchemaError
		if !errors.As(err, &schema) || (table == "mine") != (len(schema.Missing) > 0) ||
			!strings.Contains(err.Error(), "log tables are PostgreSQL's") || strings.Contains(err.Error(), "migrate") {
			t.Errorf("open %s: %v", table, err)
		}
	}
	// As the command asks for a table that it only looks at.
	if _, err := db.file().CheckTable(t.Context(), "outbox_log", nil); err == nil ||
		!strings.Contains(err.Error(), "log tables are PostgreSQL's") {
		t.Errorf("look at outbox_log: %v", err)
	}
}

// A table of an attached file, and names that must be quoted.
func TestOddNames(t *testing.T) {
	t.Parallel()
	db := filled(t,
		`CREATE TABLE "the ""table""; '" ("n o" INTEGER PRIMARY KEY, "select" TEXT NOT NULL, "k'" TEXT, "b" JSON, "done at" DATETIME, "tries" INT, "due" DATETIME)`)
	layout := outbox.Layout{Table: `the "table"; '`, ID: "select", Position: "n o", Topic: "k'", Payload: "b",
		DeliveredAt: "done at", Attempts: "tries", NextRetryAt: "due"}
	s, owner, lanes := serving(t, db, layout)
	exec(t, db, `INSERT INTO "the ""table""; '" ("select", "k'", "b") VALUES (`+goodID+`, 'k', '1')`)
	records, err := s.Claim(t.Context(), lanes, everything)
	if err != nil || len(records) != 1 {
		t.Fatalf("%d records, error %v", len(records), err)
	}
	if settled, err := s.Settle(t.Context(), owner, lanes,
		[]outbox.Outcome{{Record: records[0], State: outbox.Dead, Attempts: 1,
			Failures: []outbox.Failure{{Error: "e", Reason: outbox.ReasonDeliveryFailed}}}}); err != nil || settled.Dead != 1 {
		t.Errorf("settled %+v, error %v", settled, err)
	}
	if got := value(t, db, "SELECT origin FROM job_dlq"); got != `{"n o":1,"select":`+strings.ReplaceAll(goodID, "'", `"`)+
		`,"k'":"k","done at":null,"tries":null,"due":null,"b":1}` {
		t.Errorf("the letter remembers %s", got)
	}
}

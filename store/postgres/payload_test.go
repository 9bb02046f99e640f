package postgres_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// jsonbState stores a payload as the writer does and reads it as the relay does. It returns the
// SQLSTATE of the refusal, or "".
func jsonbState(t testing.TB, conn *pgx.Conn, payload string) string {
	t.Helper()
	_, err := conn.Exec(t.Context(), "INSERT INTO payloads VALUES (($1::text)::jsonb)", payload)
	if err == nil {
		_, err = conn.Exec(t.Context(), "SELECT payload::text FROM payloads")
	}
	var refused *pgconn.PgError
	if err != nil && !errors.As(err, &refused) {
		t.Fatalf("payload %.40q: %v", payload, err)
	}
	if _, err := conn.Exec(t.Context(), "TRUNCATE payloads"); err != nil {
		t.Fatal(err)
	}
	if refused != nil {
		return refused.Code
	}
	return ""
}

func payloadTable(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), testenv.Database(t))
	ok(t, err)
	t.Cleanup(func() { _ = conn.PgConn().Conn().Close() })
	_, err = conn.Exec(t.Context(), "CREATE TEMP TABLE payloads (payload jsonb)")
	ok(t, err)
	return conn
}

// A payload that the database refuses aborts the business transaction, so Validate has to refuse it
// first; and what it refuses without need is lost to the user. Both lines are drawn here beside
// each other, at each limit.
func TestPayloadLimitsAreTheServers(t *testing.T) {
	conn := payloadTable(t)
	nines := func(n int) string { return strings.Repeat("9", n) }
	nested := func(open, close string, n int) string {
		return strings.Repeat(open, n) + "1" + strings.Repeat(close, n)
	}
	for _, c := range []struct {
		name, payload, state string // state "" means that both take it
	}{
		{"not JSON", `{"a":`, "22P02"},
		{"nothing", ``, "22P02"},
		{"line end in a string", "\"\n\"", "22P02"},
		{"form feed between tokens", "\f1", "22P02"},
		{"leading zero", "01", "22P02"},
		{"invalid UTF-8", "\"\xff\"", "22021"},
		{"surrogate in UTF-8", "\"\xed\xa0\x80\"", "22021"},
		{"character beyond Unicode", "\"\xf4\x90\x80\x80\"", "22021"},
		{"noncharacter", "\"\ufffe\"", ""},
		{"raw NUL", "\"\x00\"", "22021"},
		{"escaped NUL", `"\u0000"`, "22P05"},
		{"escaped NUL in a key", `{"\u0000":1}`, "22P05"},
		{"escaped backslash before u0000", `"\\u0000"`, ""},
		{"high surrogate alone", `"\ud800"`, "22P02"},
		{"high surrogate, then a letter", `"\ud800a"`, "22P02"},
		{"high surrogate, then an escape", `"\ud800\n"`, "22P02"},
		{"two high surrogates", `"\ud800\ud800"`, "22P02"},
		{"low surrogate alone", `"\udc00"`, "22P02"},
		{"pair", `"\ud83d\ude00"`, ""},
		{"131,072 digits", nines(131072), ""},
		{"131,073 digits", nines(131073), "22003"},
		{"16,383 decimals", "0." + nines(16383), ""},
		{"16,384 decimals", "0." + nines(16384), "22003"},
		{"exponent at the limit", "1e131071", ""},
		{"exponent over the limit", "1e131072", "22003"},
		{"small number over the limit", "0.01e131073", ""},
		{"zero with any exponent", "0e1073741822", ""},
		{"zero with an exponent too large to read", "0e1073741823", "22003"},
		{"zero with too many decimals", "0e-16384", "22003"},
		{"decimals cut by the exponent", "0." + strings.Repeat("0", 20000) + "1e5000", ""},
		{"1,000 arrays", nested("[", "]", 1000), ""},
		{"1,000 objects", nested(`{"a":`, "}", 1000), ""},
		// Validate is stricter here on purpose, see maxDepth: the server still takes 1,001.
		{"20,000 arrays", nested("[", "]", 20000), "54001"},
		{"20,000 objects", nested(`{"a":`, "}", 20000), "54001"},
		// And for numbers that jsonb spells out, see maxExpansion: 8,200 of them cannot be read
		// back (54000), but a test that makes the server build a gigabyte of digits first is no
		// good neighbour.
		{"900 KB of digits in 60 bytes", "[" + strings.Repeat("1e131071,", 6) + "1e131071]", ""},
	} {
		state := jsonbState(t, conn, c.payload)
		if state == "" && strings.HasPrefix(c.name, "zero with an exponent too large") {
			state = c.state // PostgreSQL 18 takes it; Validate refuses it for those before
		}
		if got := state; got != c.state {
			t.Errorf("%s: PostgreSQL says %q, want %q", c.name, got, c.state)
		}
		e := event("payload")
		e.Payload = json.RawMessage(c.payload)
		if err := e.Validate(outbox.DefaultMaxPayload); (err != nil) != (c.state != "") {
			t.Errorf("%s: Validate says %v, PostgreSQL %q", c.name, err, c.state)
		}
	}
}

// FuzzPayloadAgainstPostgres looks for a payload that Validate accepts and jsonb refuses.
func FuzzPayloadAgainstPostgres(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e+3,"\ud83d\ude00",true,null]}`, `"\u0001\u001f"`, `0e-16383`, `1e131071`,
		`[[],{}]`, "\"\u2028\ufffe\"",
		`{"a":1,"a":2}`, ` 0.10 `, `-0`, `"\/"`, `1E+5`, `"\ud83d\ude00\\"`} {
		f.Add([]byte(s))
	}
	conn := payloadTable(f)
	f.Fuzz(func(t *testing.T, payload []byte) {
		e := event("payload")
		e.Payload = payload
		if e.Validate(outbox.DefaultMaxPayload) != nil {
			return
		}
		if state := jsonbState(t, conn, string(payload)); state != "" {
			t.Fatalf("Validate accepts %q, jsonb refuses it with %s", payload, state)
		}
	})
}

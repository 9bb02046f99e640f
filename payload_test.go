package outbox

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// That PostgreSQL draws the same lines is proven against a server: store/postgres/payload_test.go.
func TestCheckJSON(t *testing.T) {
	digits := func(n int) string { return strings.Repeat("9", n) }
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct {
		json    string
		problem string // "" if it is fine
	}{
		{`{"a":[1,-2.5e+3,"x",true,null]}`, ""},
		{" \t\r\n1 ", ""},
		{`"\ud83d\ude00 \\u0000 \"\n"`, ""},
		{`{"\uD83D\uDE00":1}`, ""},
		{``, "not valid JSON"},
		{`{`, "not valid JSON"},
		{`1 2`, "not valid JSON"},
		{"\"a\nb\"", "not valid JSON"},
		{"\"\xff\"", "not valid UTF-8"},
		{"\"\xed\xa0\x80\"", "not valid UTF-8"},

		{`"a\u0000b"`, `\u0000`},
		{`{"\u0000":1}`, `\u0000`},
		{`"\\\u0000"`, `\u0000`},
		{`"\ud83d"`, "lone surrogate"},
		{`"\ud83dx\ude00"`, "lone surrogate"},
		{`"\ud83d\n"`, "lone surrogate"},
		{`"\ud83d\u0041"`, "lone surrogate"},
		{`"\ud83d\ud83d"`, "lone surrogate"},
		{`"\ude00"`, "lone surrogate"},
		{`"\ud83d\ude00\ude00"`, "lone surrogate"},

		{digits(131072), ""},
		{digits(131073), "numeric"},
		{"-" + digits(131072), ""},
		{"0." + digits(16383), ""},
		{"0." + digits(16384), "numeric"},
		{`1e131071`, ""},
		{`1e131072`, "numeric"},
		{`0.01e131073`, ""},
		{`10E131071`, "numeric"},
		{`1e-16383`, ""},
		{`1.0e-16383`, "numeric"},
		{`0e131072`, ""},
		{`0e1073741822`, ""},
		{`0e1073741823`, "numeric"},
		{`0e-16384`, "numeric"},
		{`1e99999999999999999999`, "numeric"},
		{`-0e00000000000000000000000001`, ""},
		{"0." + strings.Repeat("0", 20000) + "1e5000", ""},

		{`[` + strings.Repeat("1e131071,", 7) + `1]`, ""}, // 7 × 131,064 digits more than written
		{`[` + strings.Repeat("1e131071,", 8) + `1]`, "spells out"},
		{`[` + strings.Repeat("1e-16383,", 65) + `1]`, "spells out"},
		{`[` + strings.Repeat("123456789,", 100000) + `1]`, ""},

		{nested(1000), ""},
		{nested(1001), "nested"},
		{strings.Repeat(`{"a":`, 1001) + "1" + strings.Repeat("}", 1001), "nested"},
		{`[` + strings.Repeat("[[]],", 5000) + `1]`, ""},
		{`"` + strings.Repeat("[", 5000) + `"`, ""},
	} {
		err := checkJSON("Payload", []byte(c.json), DefaultMaxPayload)
		shown := c.json[:min(len(c.json), 40)]
		switch {
		case c.problem == "" && err != nil:
			t.Errorf("%s: %v", shown, err)
		case c.problem != "":
			wantFieldError(t, err, "Payload")
			if err != nil && !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%s: got %v, want %q", shown, err, c.problem)
			}
		}
	}
}

// FuzzCheckJSON looks for a panic of the scanner, which trusts json.Valid, and for an accepted text
// that is not JSON.
func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e+3,"\ud83d\ude00",true,null]}`, `"\ud83d"`, `"\\\u0000"`, `0e-16384`, `[[]]`,
		"\"\xff\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if checkJSON("Payload", b, math.MaxInt) != nil {
			return
		}
		var v any
		d := json.NewDecoder(strings.NewReader(string(b)))
		d.UseNumber() // a number may be too large for float64 and still fit numeric
		if err := d.Decode(&v); err != nil {
			t.Fatalf("accepted %q: %v", b, err)
		}
		again, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkJSON("Payload", again, math.MaxInt); err != nil {
			t.Fatalf("accepted %q but not the same value as %q: %v", b, again, err)
		}
	})
}

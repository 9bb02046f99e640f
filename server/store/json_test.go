package store

import "testing"

func TestSameJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":[2]}`, ` { "b" : [2.0] , "a" : 1e0 } `, true},
		{`100`, `1e2`, true},
		{`0.0010`, `1E-3`, true},
		{`-0`, `0.00`, true},
		{`1e131071`, `10e131070`, true},
		{`12345678901234567890.1`, `12345678901234567890.2`, false},
		{`-1`, `1`, false},
		{`1`, `"1"`, false},
		{`null`, ``, false},
		{`"\u00e9"`, `"é"`, true},
		{`{"a":1,"a":2}`, `{"a":2}`, true}, // the last of a name counts, as in jsonb
		{`[1,2]`, `[2,1]`, false},
		{`{"a":1}`, `{"a":1,"b":null}`, false},
		{`{"a":null}`, `{"b":null}`, false},
		{`[1]`, `{"0":1}`, false},
	} {
		if got := sameJSON([]byte(c.a), []byte(c.b)); got != c.same {
			t.Errorf("%s and %s: same %t", c.a, c.b, got)
		}
	}
}

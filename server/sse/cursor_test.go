package sse

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestCursor(t *testing.T) {
	t.Parallel()
	const wrong = -1
	for name, tt := range map[string]struct {
		headers []string
		query   string
		want    int64
		text    string // of the error
	}{
		"nothing":                      {nil, "", 0, ""},
		"header":                       {[]string{"7"}, "", 7, ""},
		"header, then query":           {[]string{"7"}, "lastEventId=5&fromSeq=3", 7, ""},
		"query":                        {nil, "lastEventId=5&fromSeq=3", 5, ""},
		"fromSeq begins with it":       {nil, "fromSeq=3", 2, ""},
		"fromSeq 1 is everything":      {nil, "fromSeq=1", 0, ""},
		"the greatest":                 {[]string{"9223372036854775807"}, "", 1<<63 - 1, ""},
		"zero":                         {[]string{"0"}, "lastEventId=5", 0, ""},
		"empty is not given":           {[]string{""}, "lastEventId=&fromSeq=3", 2, ""},
		"all empty":                    {[]string{""}, "lastEventId=&fromSeq=", 0, ""},
		"malformed header, good query": {[]string{"x"}, "lastEventId=5", wrong, "Last-Event-ID"},
		"malformed query, good last":   {nil, "lastEventId=x&fromSeq=3", wrong, "lastEventId"},
		"what comes after is not read": {[]string{"7"}, "lastEventId=x", 7, ""},
		"fromSeq 0":                    {nil, "fromSeq=0", wrong, "the first event is 1"},
		"fromSeq malformed":            {nil, "fromSeq=-1", wrong, "fromSeq"},
		"two headers":                  {[]string{"7", "8"}, "", wrong, "given 2 times"},
		"two parameters":               {nil, "lastEventId=7&lastEventId=8", wrong, "given 2 times"},
		"two fromSeq":                  {nil, "fromSeq=7&fromSeq=8", wrong, "given 2 times"},
	} {
		h := http.Header{}
		for _, value := range tt.headers {
			h.Add("last-event-id", value)
		}
		q, err := url.ParseQuery(tt.query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Cursor(h, q)
		if tt.want == wrong {
			if err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%s: %d, %v, want an error with %q", name, got, err, tt.text)
			}
		} else if err != nil || got != tt.want {
			t.Errorf("%s: %d, %v, want %d", name, got, err, tt.want)
		}
	}
}

func TestVectorCursor(t *testing.T) {
	t.Parallel()
	h, none := http.Header{"Last-Event-Id": {"12.7.0"}}, http.Header{}
	q := url.Values{"lastEventId": {"1.2.3"}, "fromSeq": {"9"}}
	if got, err := VectorCursor(h, q, 3); err != nil || !slices.Equal(got, []int64{12, 7, 0}) {
		t.Errorf("header: %v, %v", got, err)
	}
	if got, err := VectorCursor(none, q, 3); err != nil || !slices.Equal(got, []int64{1, 2, 3}) {
		t.Errorf("query: %v, %v", got, err)
	}
	if got, err := VectorCursor(none, url.Values{"fromSeq": {"9"}}, 3); err != nil || got != nil {
		t.Errorf("neither: %v, %v", got, err)
	}
	if _, err := VectorCursor(h, q, 2); err == nil || !strings.Contains(err.Error(), "Last-Event-ID") ||
		!strings.Contains(err.Error(), "3 places") {
		t.Errorf("another number of topics: %v", err)
	}
}

func TestParseLastEventIDRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                      "empty",
		"+1":                    "only the digits",
		"-1":                    "only the digits",
		" 1":                    "only the digits",
		"1 ":                    "only the digits",
		"1_0":                   "only the digits",
		"0x1":                   "only the digits",
		"1.0":                   "only the digits",
		"१":                     "only the digits",
		"01":                    "begins with 0",
		"00":                    "begins with 0",
		"9223372036854775808":   "above 2^63-1",
		"10000000000000000000":  "above 2^63-1",
		strings.Repeat("9", 50): strings.Repeat("9", 40) + `"… (50 bytes)`,
	} {
		if got, err := ParseLastEventID(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %d, %v, want an error with %q", text, got, err, want)
		}
	}
	long := strings.Repeat("9", 40) + "secret"
	if _, err := ParseLastEventID(long); strings.Contains(err.Error(), "secret") {
		t.Errorf("the error quotes more than 40 bytes: %v", err)
	}
	if _, err := ParseVector("1.2.x", 3); err == nil || !strings.Contains(err.Error(), "place 3") {
		t.Errorf("vector: %v", err)
	}
}

// FuzzCursor: accepted is exactly the spelling that a number is written in, so that there is one
// text for each position.
func FuzzCursor(f *testing.F) {
	for _, text := range []string{"0", "12.7.0", "9223372036854775807", "01", "+1", "1..2", ".", "",
		"9223372036854775808"} {
		f.Add(text, 1)
		f.Add(text, 3)
	}
	f.Fuzz(func(t *testing.T, text string, n int) {
		number, err := ParseLastEventID(text)
		want, parseErr := strconv.ParseInt(text, 10, 64)
		if canonical := parseErr == nil && want >= 0 && strconv.FormatInt(want, 10) == text; canonical != (err == nil) ||
			canonical && number != want {
			t.Errorf("%q: %d, %v", text, number, err)
		}
		vector, err := ParseVector(text, n)
		if err == nil && (len(vector) != n || string(AppendVector(nil, vector)) != text) {
			t.Errorf("%q of %d places is read as %v", text, n, vector)
		}
		if err == nil && n == 1 && vector[0] != number {
			t.Errorf("%q is %v as a vector and %d alone", text, vector, number)
		}
		if _, err := Cursor(http.Header{"Last-Event-Id": {text}}, nil); text != "" &&
			(err == nil) != (parseErr == nil && want >= 0 && strconv.FormatInt(want, 10) == text) {
			t.Errorf("header %q: %v", text, err)
		}
	})
}

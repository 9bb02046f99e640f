package webhook

import (
	"encoding/base64"
	"strings"
	"testing"
)

// aKey is a key of 32 times a letter.
func aKey(letter string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32)))
}

func ring(t *testing.T, keys ...string) keyring {
	t.Helper()
	t.Setenv("TEST_ENDPOINT_KEY", strings.Join(keys, ",\n "))
	r, err := readKeyring("env:TEST_ENDPOINT_KEY")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What is sealed is opened by its key and for its endpoint and use, and by nothing else.
func TestSeal(t *testing.T) {
	old := ring(t, aKey("a"))
	sealed, err := old.seal(string(key), "acme", useSecret)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := old.seal(string(key), "acme", useSecret); err != nil || again == sealed {
		t.Errorf("sealed twice it is the same: a nonce is used again (%v)", err)
	}
	if strings.Contains(sealed, string(key[len(symmetric):])) {
		t.Errorf("the secret is in %s", sealed)
	}
	both, other := ring(t, aKey("b"), aKey("a")), ring(t, aKey("b"))
	for name, tt := range map[string]struct {
		ring                  keyring
		sealed, endpoint, use string
		problem               string
	}{
		"its key":          {old, sealed, "acme", useSecret, ""},
		"a new key first":  {both, sealed, "acme", useSecret, ""},
		"another key":      {other, sealed, "acme", useSecret, "none of those given"},
		"no key":           {nil, sealed, "acme", useSecret, "OUTBOX_ENDPOINT_KEY"},
		"another endpoint": {old, sealed, "billing", useSecret, "belongs to another endpoint"},
		"another use":      {old, sealed, "acme", useHeader + "X", "belongs to another endpoint"},
		"cut off":          {old, sealed[:len(sealed)-8], "acme", useSecret, "was changed"},
		"empty":            {old, sealedPrefix + old[0].id + ":", "acme", useSecret, "was changed"},
	} {
		got, err := tt.ring.open(tt.sealed, tt.endpoint, tt.use)
		switch {
		case tt.problem == "" && (err != nil || got != string(key)):
			t.Errorf("%s: %q, error %v", name, got, err)
		case tt.problem != "" && (err == nil || !strings.Contains(err.Error(), tt.problem)):
			t.Errorf("%s: %q, error %v, want %q", name, got, err, tt.problem)
		}
	}
	if !old.current(sealed) || both.current(sealed) || !both.current("env:A") {
		t.Error("what has to be sealed again is not known")
	}
	for _, bad := range []string{"", "hunter2", base64.StdEncoding.EncodeToString([]byte("hunter2"))} {
		t.Setenv("TEST_ENDPOINT_KEY", bad)
		if _, err := readKeyring("env:TEST_ENDPOINT_KEY"); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("a key %q: %v", bad, err)
		}
	}
}

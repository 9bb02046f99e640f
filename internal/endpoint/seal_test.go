package endpoint

import (
	"encoding/base64"
	"strings"
	"testing"
)

// What is sealed is opened by its key and for its endpoint and use, and by nothing else.
func TestSeal(t *testing.T) {
	old := ring(t, aKey("a"))
	use := func(name, tenant, url, as string) []byte {
		return (&row{Endpoint: Endpoint{Name: name, Tenant: tenant, URL: url}}).use(as)
	}
	acme := use("acme", "t1", "https://acme.example/a", aSecret)
	sealed, err := old.seal(secret, acme)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := old.seal(secret, acme); err != nil || again == sealed {
		t.Errorf("sealed twice it is the same: a nonce is used again (%v)", err)
	}
	if strings.Contains(sealed, string(secret[len("whsec_"):])) {
		t.Errorf("the secret is in %s", sealed)
	}
	both, other := ring(t, aKey("b"), aKey("a")), ring(t, aKey("b"))
	for name, tt := range map[string]struct {
		ring    keyring
		sealed  string
		use     []byte
		problem string
	}{
		"its key":          {old, sealed, acme, ""},
		"another path":     {old, sealed, use("acme", "t1", "https://ACME.example:443/b", aSecret), ""},
		"a new key first":  {both, sealed, acme, ""},
		"another key":      {other, sealed, acme, "none of those given"},
		"no key":           {nil, sealed, acme, "OUTBOX_ENDPOINT_KEY"},
		"another endpoint": {old, sealed, use("billing", "t1", "https://acme.example", aSecret), "outbox endpoints rotate"},
		"another tenant":   {old, sealed, use("acme", "", "https://acme.example", aSecret), "outbox endpoints rotate"},
		"another server":   {old, sealed, use("acme", "t1", "https://spy.example", aSecret), "was changed"},
		"another use":      {old, sealed, use("acme", "t1", "https://acme.example", aHeader+"X"), "remove and add"},
		"cut off":          {old, sealed[:len(sealed)-8], acme, "was changed"},
		"empty":            {old, sealedPrefix + old[0].id + ":", acme, "was changed"},
		"a variable":       {old, "env:TEST_ENDPOINT_KEY", acme, "only a file of endpoints"},
		"a file":           {old, "file:/etc/hostname", acme, "only a file of endpoints"},
		"a plain text":     {old, string(secret), acme, "is not sealed"},
	} {
		got, err := tt.ring.open(tt.sealed, tt.use)
		switch {
		case tt.problem == "" && (err != nil || got != secret):
			t.Errorf("%s: %q, error %v", name, got, err)
		case tt.problem != "" && (err == nil || !strings.Contains(err.Error(), tt.problem)):
			t.Errorf("%s: %q, error %v, want %q", name, got, err, tt.problem)
		}
	}
	for _, bad := range []string{"", "hunter2", base64.StdEncoding.EncodeToString([]byte("hunter2"))} {
		t.Setenv("TEST_ENDPOINT_KEY", bad)
		if _, err := readKeyring("env:TEST_ENDPOINT_KEY"); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("a key %q: %v", bad, err)
		}
	}
}

// A URL may change its path and how it is written, and nothing else.
func TestOrigin(t *testing.T) {
	for text, want := range map[string]string{
		"https://acme.example/a?b=c": "https://acme.example:443", "https://ACME.example:443": "https://acme.example:443",
		"http://acme.example": "http://acme.example:80", "https://[::1]:8443/": "https://[::1]:8443",
		"https://acme.example@spy.example/": "https://spy.example:443", "mailto:a@b": "mailto:a@b", "": "",
	} {
		if got := origin(text); got != want {
			t.Errorf("origin of %q is %q, want %q", text, got, want)
		}
	}
}

package cli_test

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The endpoints of a sink are listed without a secret, and one is tested with an event that it can
// verify.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(receiver.Close)
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="
	path := filepath.Join(t.TempDir(), "endpoints.yaml")
	if err := os.WriteFile(path, []byte(`endpoints:
  - {name: acme, url: "`+receiver.URL+`/hook?token=hunter2", secrets: [`+secret+`, `+secret+`]}
  - {name: off, url: "https://off.example", secrets: [`+secret+`], disabled: true}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	e := env{t: t}
	url := "webhook:" + path + "?allow=private,http"
	list := e.ok("", "endpoints", "list", "--sink", url)
	contains(t, strings.Join(strings.Fields(list), " "), "acme "+receiver.URL+"/hook enabled 2",
		"off https://off.example disabled 1")
	list += e.ok("", "endpoints", "list", "--sink", url, "-o", "json")
	contains(t, list, `"name": "acme"`, `"secrets": 2`, `"nextCursor": null`)
	if strings.Contains(list, "hunter2") || strings.Contains(list, secret[6:]) {
		t.Errorf("a secret is printed: %s", list)
	}
	contains(t, e.ok("", "endpoints", "test", "acme", "--sink", url), "acme took event ")
	if signature := (<-got).Get("webhook-signature"); len(strings.Split(signature, " ")) != 2 {
		t.Errorf("the signature is %q", signature)
	}
	for name, texts := range map[string][]string{"off": {"is disabled"}, "nobody": {"no webhook endpoint"}} {
		r := e.run("", "endpoints", "test", name, "--sink", url)
		if contains(t, r.err, texts...); r.code != 1 {
			t.Errorf("exit code %d", r.code)
		}
	}
	for want, args := range map[string][]string{
		"edit it":           {"add", "b", "--url", "https://b.example", "--sink", url},
		"none of env:":      {"add", "b", "--url", "https://b.example", "--secret", secret, "--sink", "webhook:table"},
		"of which database": {"list", "--sink", "webhook:table"},
	} {
		r := (env{t: t}).run("", append([]string{"endpoints"}, args...)...)
		if contains(t, r.err, want); r.code == 0 || strings.Contains(r.err, secret[6:]) {
			t.Errorf("%q: exit code %d, %s", args, r.code, r.err)
		}
	}
	r := e.run("", "endpoints", "list", "--sink", "memory:")
	if contains(t, r.err, "has no endpoints"); r.code != 2 {
		t.Errorf("exit code %d, want 2", r.code)
	}
}

// What changes an endpoint of the table says so with -o json too.
func TestEndpointsChanged(t *testing.T) { onStores(t, testEndpointsChanged) }

func testEndpointsChanged(t *testing.T, e env) {
	e.redis = "webhook:table"
	e.extra = []string{"OUTBOX_ENDPOINT_KEY=" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))}
	e.ok("", "endpoints", "add", "acme", "--url", "https://hooks.acme.example")
	type change struct {
		Endpoint, State string
		Changed         bool
	}
	for _, step := range []struct {
		command string
		want    change
	}{
		{"disable", change{"acme", "disabled", true}},
		{"disable", change{"acme", "disabled", false}},
		{"enable", change{"acme", "enabled", true}},
		{"remove", change{"acme", "removed", true}},
	} {
		if got := decode[change](t, e.ok("", "endpoints", step.command, "acme", "-o", "json")); got != step.want {
			t.Errorf("outbox endpoints %s prints %+v, want %+v", step.command, got, step.want)
		}
	}
}

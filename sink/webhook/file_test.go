package webhook

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxrelay/outbox"
)

// write makes a file of a test.
func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Everything that an entry can say, with secrets from the environment and from files beside it.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TEST_OUTBOX_SECRET", string(key))
	t.Setenv("TEST_OUTBOX_TOKEN", "Bearer hunter2")
	write(t, filepath.Join(dir, "former"), string(key)+"\n")
	path := write(t, filepath.Join(dir, "endpoints.yaml"), `
endpoints:
  - name: acme
    url: https://hooks.acme.example/outbox
    secrets: [env:TEST_OUTBOX_SECRET, file:former, "file:`+filepath.Join(dir, "former")+`", `+string(key)+`]
    headers: {Authorization: env:TEST_OUTBOX_TOKEN, X-Kind: plain}
    timeout: 20s
    concurrency: 16
    rate: 50.5
  - {name: off, url: "https://off.example:8443", secrets: [`+string(key)+`], disabled: true}
`)
	f, err := newFile(path, Config{}).parse()
	if err != nil {
		t.Fatal(err)
	}
	found, err := f.Lookup(t.Context(), "acme", "nobody")
	if err != nil || len(found) != 1 {
		t.Fatalf("found %v, %v", found, err)
	}
	e := found["acme"]
	for i, secret := range e.Secrets {
		if secret != key {
			t.Errorf("secret %d is another", i+1)
		}
	}
	if len(e.Secrets) != 4 || e.Headers["Authorization"] != "Bearer hunter2" || e.Headers["X-Kind"] != "plain" ||
		e.Timeout != 20*time.Second || e.Concurrency != 16 || e.Rate != 50.5 || e.Disabled {
		t.Errorf("it is %+v", e)
	}
	if all := f; len(all) != 2 || !all[1].Disabled {
		t.Errorf("all are %+v", all)
	}
}

// What is wrong with a file is told at once, with its place and without what may be a secret.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	for text, wants := range map[string][]string{
		"endpoints: hunter2":             {"line 1", "cannot unmarshal"},
		"endpoint: []":                   {"line 1", "field endpoint not found"},
		"endpoints:\n\t- name: x":        {"line 2"},
		"endpoints: [{secret: hunter2}]": {"field secret not found"},
		"endpoints: [{name: a, url: https://a.example, secrets: [hunter2], timeout: hunter2}]": {"cannot unmarshal"},
		"endpoints: [{name: a, url: 'https://a.example', secrets: [hunter2]}, {name: b}]": {
			`endpoint "a": secret 1 begins neither`, `endpoint "b": the URL is not of the form`, `endpoint "b": it has no secret`},
		"endpoints: [{name: a, url: 'https://a.example', secrets: ['env:TEST_OUTBOX_MISSING', 'file:missing']}]": {
			"TEST_OUTBOX_MISSING is not set", "missing: no such file"},
	} {
		path := write(t, filepath.Join(t.TempDir(), "endpoints.yaml"), text)
		_, err := newFile(path, Config{}).parse()
		if err == nil {
			t.Errorf("%s: taken", text)
			continue
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s:\n%v\nwant %q", text, err, want)
			}
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("a secret is shown: %v", err)
		}
	}
	if _, err := newFile(filepath.Join(t.TempDir(), "nothing.yaml"), Config{}).parse(); err == nil ||
		!strings.Contains(err.Error(), "nothing.yaml") {
		t.Errorf("a file that is not there: %v", err)
	}
	empty := write(t, filepath.Join(t.TempDir(), "endpoints.yaml"), "")
	if _, err := newFile(empty, Config{}).parse(); err != nil {
		t.Errorf("an empty file, to which endpoints come later: %v", err)
	}
}

// The file is read again when it or a file of a secret has changed. A broken one leaves the former
// endpoints in use and is told of.
func TestFileIsReadAgain(t *testing.T) {
	t.Parallel()
	a, b := receive(t, nil), receive(t, nil)
	dir := t.TempDir()
	secret := write(t, filepath.Join(dir, "secret"), string(key))
	entry := func(name, url string) string {
		return "\n  - {name: " + name + ", url: '" + url + "', secrets: [file:secret]}"
	}
	path := write(t, filepath.Join(dir, "endpoints.yaml"), "endpoints:"+entry("acme", a.URL))
	cfg := local
	var log strings.Builder
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s, err := Open(t.Context(), "webhook:"+path+"?allow=private,http", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	deliver := func(name string) error { return one(t, s, event(t, name, 1)) }
	if err := deliver("acme"); err != nil || a.count() != 1 {
		t.Fatalf("%v, %d requests", err, a.count())
	}

	// A name that is not there is looked for at once.
	wantClass(t, deliver("new"), outbox.ClassPermanent, "no webhook endpoint")
	write(t, path, "endpoints:"+entry("acme", b.URL)+entry("new", a.URL))
	if err := deliver("new"); err != nil {
		t.Fatalf("a new entry: %v", err)
	}
	eventually(t, "the new URL is used", func() bool { return deliver("acme") == nil && b.count() > 0 })

	// Broken: the former ones stay, the sink says so.
	write(t, path, "endpoints: [hunter2")
	eventually(
		t,
		"the problem is told of",
		func() bool { return deliver("acme") == nil && s.Abilities().Ping(t.Context()) != nil },
	)
	wantClass(t, s.Abilities().Ping(t.Context()), outbox.ClassUnavailable, path, "former")
	wantClass(t, deliver("nobody"), outbox.ClassPermanent)
	lines := log.String()
	if n := strings.Count(lines, "cannot read webhook endpoints"); n != 1 || strings.Contains(lines, "hunter2") {
		t.Errorf("the log tells of it %d times: %s", n, lines)
	}
	write(t, path, "endpoints:"+entry("acme", b.URL))
	eventually(
		t,
		"all is well again",
		func() bool { return deliver("acme") == nil && s.Abilities().Ping(t.Context()) == nil },
	)

	// A secret that changes in its file signs, too.
	next := symmetric + "YW5vdGhlciBzZWNyZXQgb2YgMzIgYnl0ZXMuLi4uLi4="
	write(t, secret, next)
	eventually(t, "the new secret signs", func() bool {
		if err := deliver("acme"); err != nil {
			t.Fatal(err)
		}
		all := b.requests()
		got := all[len(all)-1]
		sign, err := newSigner(next)
		if err != nil {
			t.Fatal(err)
		}
		start := got.header.Get("webhook-id") + "." + got.header.Get("webhook-timestamp") + "."
		return got.header.Get("webhook-signature") == sign([]byte(start), got.body)
	})
}

// An endpoint of a file subscribes to each of its topics of each of its types; what the file says
// at the moment counts.
func TestSubscriptions(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "endpoints.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	end := `, url: "https://a.example", secrets: [` + string(key) + `]}` + "\n"
	write(`endpoints:
  - {name: named` + end + `  - {name: orders, topics: ["order.*", refund], types: [Order], tenant: t1` + end)
	s, err := Open(t.Context(), "webhook:"+path, Config{})
	if err != nil {
		t.Fatal(err)
	}
	says := func() string {
		t.Helper()
		all, err := s.Abilities().Subscriptions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var text []string
		for _, r := range all {
			text = append(text, strings.Join([]string{r.Destination, r.Topic, r.AggregateType, r.Tenant}, "/"))
		}
		return strings.Join(text, " ")
	}
	if got, want := says(), "orders/order.*/Order/t1 orders/refund/Order/t1"; got != want {
		t.Errorf("subscribed are %s, want %s", got, want)
	}
	write(`endpoints:
  - {name: types, types: [Invoice]` + end)
	if got, want := says(), "types//Invoice/"; got != want {
		t.Errorf("after a change of the file subscribed are %s, want %s", got, want)
	}
	for text, want := range map[string]string{`{name: "*"`: "all who subscribe", `{name: a, topics: [""]`: "is empty"} {
		write("endpoints:\n  - " + text + end)
		if _, err := Open(t.Context(), "webhook:"+path, Config{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

// The file is checked once a second, and at once for a name that is not known.
func TestFileIsCheckedOnceASecond(t *testing.T) {
	path := filepath.Join(t.TempDir(), "endpoints.yaml")
	entry := func(name string) string {
		return "\n  - {name: " + name + ", url: 'https://a.example', secrets: [" + string(key) + "]}"
	}
	synctest.Test(t, func(t *testing.T) {
		write(t, path, "endpoints:"+entry("acme"))
		f := newFile(path, Config{Logger: slog.New(slog.DiscardHandler)})
		f.refresh()
		finds := func(name string, want bool) {
			t.Helper()
			found, err := f.Lookup(t.Context(), name)
			if _, ok := found[name]; ok != want || err != nil {
				t.Errorf("%s: found %t, error %v, want %t", name, ok, err, want)
			}
		}
		write(t, path, "endpoints:"+entry("new"))
		finds("acme", true)
		time.Sleep(checkEvery)
		finds("acme", false)
		write(t, path, "endpoints:"+entry("newer"))
		finds("newer", true)
		write(t, path, "endpoints:")
		if all := f.all(); len(all) > 0 || f.failure() != nil || f.longest() != 0 {
			t.Errorf("of an empty file: %v, failure %v, timeout %s", all, f.failure(), f.longest())
		}
	})
}

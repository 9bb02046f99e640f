package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRouteTest(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "outbox.yaml")
	if err := os.WriteFile(file, []byte(`
sink: {default: redis://u:hunter2@h, audit: redis://a}
routes:
  - {table: outbox_events, name: orders, topic: "order.*", tenant: acme, to: [audit, "default:orders.{key}"]}
  - {topic: paid, to: [default]}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	e := env{t: t, extra: []string{"OUTBOX_CONFIG=" + file}}
	for args, want := range map[string]string{
		"--topic order.placed --tenant acme --key 42":      "audit order.placed default orders.42",
		"--topic x --tenant acme --key 42 --to orders":     "audit x default orders.42",
		"--topic x --to audit:mine":                        "audit mine",
		"--topic paid --of crawl_outbox --key 7":           "default run:7",
		"--topic paid --of crawl_outbox --key 7 -o json":   `{ "items": [ { "sink": "default", "destination": "run:7" } ], "nextCursor": null }`,
		"--topic order.placed":                             "!the event would become a dead letter: no route fits",
		"--topic x --to nowhere":                           `!destination "nowhere" of the event is neither sink:name (sinks: audit, default)`,
		"--topic order.placed --tenant acme":               "!the event has no key",
		"--topic paid --of nosuch":                         "!nosuch",
		"--topic paid --destination outbox_events=a.{key}": "!the event has no key",
		"--topic paid --sink redis://b":                    `!there is no sink "audit"`,
		"":                                                 "!--topic is missing",
	} {
		r := e.run("", append([]string{"route", "test"}, strings.Fields(args)...)...)
		if strings.Contains(r.out+r.err, "hunter2") {
			t.Errorf("%s shows a password", args)
		}
		text, refused := strings.CutPrefix(want, "!")
		if refused {
			if r.code == 0 || !strings.Contains(r.err, text) || r.out != "" {
				t.Errorf("%s: exit code %d, want %q:\n%s%s", args, r.code, text, r.out, r.err)
			}
			continue
		}
		got := strings.TrimPrefix(strings.Join(strings.Fields(r.out), " "), "SINK DESTINATION ")
		if r.code != 0 || got != text {
			t.Errorf("%s: exit code %d, got %q, want %q\n%s", args, r.code, got, text, r.err)
		}
	}
}

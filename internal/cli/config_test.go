package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestInit(t *testing.T) {
	t.Parallel()
	e := env{t: t}
	file := filepath.Join(t.TempDir(), "it's mine.yaml")
	r := e.run("", "init", "--file", file)
	if r.code != 0 || !strings.Contains(r.out, file) ||
		!strings.Contains(r.err, `--config '`+strings.ReplaceAll(file, "'", `'\''`)+`'`) {
		t.Fatalf("exit code %d:\n%s%s", r.code, r.out, r.err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, error %v: passwords may come to stand in it", info.Mode(), err)
	}
	// It can be used as it is, and what is written into it stays.
	e.extra = []string{"OUTBOX_CONFIG=" + file}
	contains(t, e.ok("", "config", "print"), file)
	if err := os.WriteFile(file, []byte("batch: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := e.run("", "init", "--file", file); r.code != 1 || !strings.Contains(r.err, "--file") {
		t.Errorf("exit code %d:\n%s", r.code, r.err)
	}
	contains(t, e.ok("", "config", "print"), file+":1")
	// The file of OUTBOX_CONFIG may be the one that is to be made.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if made := decode[struct{ File string }](t, e.ok("", "init", "--file", file, "-o", "json")); made.File != file {
		t.Errorf("got %+v", made)
	}
	if r := e.run("", "init", "--file", file, "-o", "yaml"); r.code != 2 ||
		!strings.Contains(r.err, "--output") {
		t.Errorf("exit code %d:\n%s", r.code, r.err)
	}
	if r := e.run("", "init", "--file", "/no/such/folder/outbox.yaml"); r.code != 1 ||
		!strings.Contains(r.err, "/no/such/folder") {
		t.Errorf("exit code %d:\n%s", r.code, r.err)
	}
}

func TestConfigPrint(t *testing.T) {
	t.Parallel()
	e := env{t: t, database: "postgres://u:hunter2@db:1/shop", redis: "redis://:hunter2@h/0?password=hunter2"}
	e.extra = []string{"OUTBOX_TOKEN=obx_hunter2", "OUTBOX_BATCH=7", "OUTBOX_OF_SOMEBODY=hunter2"}
	for _, form := range []string{"table", "json"} {
		r := e.run("", "config", "print", "--poll-max", "4s", "--destination", "crawl_outbox=x:{key}", "-o", form)
		if r.code != 0 || strings.Contains(r.out+r.err, "hunter2") {
			t.Errorf("exit code %d:\n%s%s", r.code, r.out, r.err)
		}
		contains(t, r.out, "shop at db:1", "redis://h/0", "(set, not shown)", "OUTBOX_BATCH", "--poll-max", "4s", "x:{key}",
			"168h", "OUTBOX_DATABASE_URL")
		contains(t, r.err, `"variable":"OUTBOX_OF_SOMEBODY"`)
	}
	contains(t, e.ok("", "config", "print"), "3 for crawl_outbox, 5 for others")
	type setting struct {
		Name, From string
		Value      any
	}
	out := decode[struct{ Settings []setting }](t, e.ok("", "config", "print", "-o", "json"))
	for _, s := range out.Settings {
		if s.Name == "batch" && (s.Value != 7.0 || s.From != "OUTBOX_BATCH") || s.Name == "lease_ttl" &&
			(s.Value != "10s" || s.From != "default") {
			t.Errorf("got %+v", s)
		}
	}
	// What is wrong does not keep it from showing what is.
	r := e.run("", "config", "print", "--log-level", "loud")
	if r.code != 2 || !strings.Contains(r.out, "OUTBOX_BATCH") || !strings.Contains(r.err, `log-level is "loud"`) {
		t.Errorf("exit code %d:\n%s%s", r.code, r.out, r.err)
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "outbox.yaml")
	if err := os.WriteFile(file,
		[]byte("bach_bytes: 5\nlayouts:\n  - {table: a, like: outbox_events, kee: x}\nretry:\n  - {destination: a, "+
			"max_atempts: 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := env{t: t, redis: "redis://h"}
	args := []string{"config", "validate", "--config", file, "--batch", "0"}
	e.extra = []string{"OUTBOX_DATABSE_URL=postgres://u:hunter2@h/d"}
	want := []string{
		file + `:1: unknown key "bach_bytes"`, `unknown key "kee"`,
		`unknown key "max_atempts"`, "batch is 0", "the database is not set"}
	r := e.run("", args...)
	if r.code != 2 || r.out != "" || strings.Contains(r.err, "hunter2") {
		t.Errorf("exit code %d:\n%s%s", r.code, r.out, r.err)
	}
	contains(t, r.err, append(want, "5 problems")...)
	r = e.run("", append(args, "-o", "json")...)
	report := decode[struct {
		For      string
		Problems []string
	}](t, r.out)
	if r.code != 2 || len(report.Problems) != len(want) || report.For != "serve" {
		t.Errorf("exit code %d: %+v", r.code, report)
	}
	// Another command needs other settings.
	good := env{t: t, database: "postgres://h/d"}
	for command, code := range map[string]int{"serve": 2, "relay": 2, "tail": 2, "database": 0, "purge": 0, "runs": 0,
		"nothing": 2} {
		if r := good.run("", "config", "validate", "--for", command); r.code != code || code == 0 &&
			strings.Count(r.out, "\n") != 1 {
			t.Errorf("--for %s: exit code %d:\n%s%s", command, r.code, r.out, r.err)
		}
	}
	contains(t, good.ok("", "config", "validate", "--for", "purge", "-o", "json"), `"problems": []`)
	// What only the parts know.
	good.redis = "http://u:hunter2@h"
	if r := good.run("", "config", "validate", "--crawlers", "dmo"); r.code != 2 ||
		!strings.Contains(r.err, `there is no "dmo"`) || !strings.Contains(r.err, "no sink for URLs of http") ||
		strings.Contains(r.err, "hunter2") {
		t.Errorf("exit code %d:\n%s", r.code, r.err)
	}
	for url, says := range map[string]string{"redis://u:hunter2@h/x": "not of the form redis://",
		"redis://u:hunter2@h:99999": "65535"} {
		if r := good.run("", "config", "validate", "--for", "tail", "--sink", url); r.code != 2 ||
			!strings.Contains(r.err, says) || strings.Contains(r.err, "hunter2") {
			t.Errorf("tail of %s: exit code %d:\n%s", url, r.code, r.err)
		}
	}
	// To say which version it is, it need not be right.
	if r := e.run("", "version", "--config", file); r.code != 0 || !strings.Contains(r.out, "VERSION") ||
		!strings.Contains(r.err, "Warning: config file "+want[0]) || !strings.Contains(r.err, want[1]) {
		t.Errorf("version: exit code %d:\n%s%s", r.code, r.out, r.err)
	}
	// A daemon is as strict.
	if r := e.run("", "relay", "--config", file); r.code != 2 || !strings.Contains(r.err, want[0]) {
		t.Errorf("exit code %d:\n%s", r.code, r.err)
	}
}

// Validate opens the files that the settings name, and reports each problem. A relay does not wait
// for the first event to report a file that it cannot read, and delivers to its other sinks.
func TestConfigValidateOpensFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const url, key = "https://hooks.example", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLdSw"
	broken := write("broken.yaml", "endpoints:\n  - {name: a, url: [1]}\n")
	secrets := write("secrets.yaml", "endpoints:\n  - {name: a, url: "+url+
		", secrets: ['env:OUTBOX_NO_SUCH', 'file:none']}\n")
	right := write("right.yaml", "endpoints:\n  - {name: a, url: "+url+", secrets: ["+key+"]}\n")
	e := env{t: t, database: "postgres://db/shop?passfile=" + folder + "/none", redis: "webhook:" + secrets}
	e.extra = []string{"SSL_CERT_FILE=" + right, "OTEL_EXPORTER_OTLP_CLIENT_KEY=" + right}
	r := e.run("", "config", "validate", "--for", "relay", "-o", "json", "--layouts", folder+"/none.yaml")
	if r.code != 2 || !strings.Contains(r.err, folder+"/none.yaml") {
		t.Errorf("exit code %d:\n%s%s", r.code, r.out, r.err)
	}
	r = e.run("", "config", "validate", "--for", "relay", "-o", "json")
	problems := decode[struct{ Problems []string }](t, r.out).Problems
	if r.code != 2 || len(problems) != 5 {
		t.Errorf("exit code %d: %d problems, want 5: %q", r.code, len(problems), problems)
	}
	contains(t, r.out, folder+"/none", "OUTBOX_NO_SUCH is not set", "secret 2: open", "no certificate in PEM",
		"must both be set")
	e.extra, e.database, e.redis = nil, "postgres://127.0.0.1:1/shop", "webhook:"+broken
	e.says(2, "config validate --for relay", "cannot unmarshal")
	e.says(0, "config validate --for database")
	e.redis = "webhook:" + right
	e.says(0, "config validate --for relay")
	e.says(2, "config validate --for relay --database sqlite:"+folder+"/none.db", "none.db")
	e.says(0, "config validate --for database --database sqlite:"+folder+"/none.db")

	serving := migrated(t)
	settings := write("outbox.yaml", "sink: {default: 'memory:', hooks: 'webhook:"+broken+"'}\nroutes:\n"+
		"  - {topic: a, to: [hooks]}\n  - {to: [default]}\ntable: outbox_events\n")
	relay := serving.start("serve", "--parts", "relay,gateway", "--http", "127.0.0.1:0", "--config", settings)
	if line := relay.await(relay.err, "cannot open sink hooks"); !strings.Contains(line, "ERROR") {
		t.Errorf("the relay reports the file as %s", line)
	}
}

// A duplicate window that is too short for the lease is said at start and by validate, and does not
// keep a relay from starting.
func TestShortWindow(t *testing.T) {
	t.Parallel()
	e := env{t: t, database: "postgres://db/shop", redis: "redis://h"}
	for _, command := range []string{"relay", "serve"} {
		r := e.run("", "config", "validate", "--for", command, "--dedup-window", "20s", "--lease-ttl", "30s")
		if r.code != 0 {
			t.Errorf("exit code %d:\n%s", r.code, r.err)
		}
		contains(t, r.err, "WARN", "dedup-window is 20s", "lease-ttl of 30s", "--dedup-window 55s or more")
	}
	if r := e.run("", "config", "validate", "--for", "database", "--dedup-window", "20s"); r.err != "" {
		t.Errorf("it was said for a command without a relay: %s", r.err)
	}
	contains(t, e.ok("", "config", "print"), "dedup_window", "2m")
}

// A log that goes to no sink is said at start and by validate, and does not keep a relay of other
// tables from starting.
func TestUnservedLog(t *testing.T) {
	t.Parallel()
	e := env{t: t, database: "postgres://db/shop"}
	args := []string{"config", "validate", "--sink", "a=redis://a", "--sink", "b=redis://b", "--routes",
		"outbox_events=a,event_outbox=a,crawl_outbox=b", "--for"}
	for _, command := range []string{"relay", "serve"} {
		r := e.run("", append(args, command)...)
		if r.code != 0 {
			t.Errorf("exit code %d:\n%s", r.code, r.err)
		}
		contains(t, r.err, "WARN", "no relay serves outbox_log", "--routes outbox_log=NAME")
	}
	for _, more := range [][]string{{"database"}, {"relay", "--table", "outbox_events"},
		{"relay", "--routes", "outbox_log=b"}, {"relay", "--sink", "default=redis://c"}} {
		if r := e.run("", append(args, more...)...); r.code != 0 || strings.Contains(r.err, "outbox_log") {
			t.Errorf("with %q: exit code %d, it says %s", more, r.code, r.err)
		}
	}
}

// Routes that cannot be meant are said at start and by validate, and keep nothing from starting.
func TestRouteWarnings(t *testing.T) {
	t.Parallel()
	e := env{t: t, database: "postgres://db/shop"}
	file := filepath.Join(t.TempDir(), "outbox.yaml")
	text := "sink: {a: redis://a, b: redis://b}\ntable: [outbox_events]\nroutes: [{topic: order.>, to: [a]}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"relay", "serve"} {
		r := e.run("", "config", "validate", "--config", file, "--for", command)
		if r.code != 0 {
			t.Errorf("exit code %d:\n%s", r.code, r.err)
		}
		contains(t, r.err, "WARN", "become dead letters", "order.*")
	}
}

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
		"--topic order.placed --tenant acme --key 42":       "audit order.placed default orders.42",
		"--topic x --tenant acme --key 42 --to orders":      "audit x default orders.42",
		"--topic x --to audit:mine":                         "audit mine",
		"--topic paid --table crawl_outbox --key 7":         "default run:7",
		"--topic paid --table crawl_outbox --key 7 -o json": `{ "items": [ { "sink": "default", "destination": "run:7" } ], "nextCursor": null }`,
		"--topic order.placed":                              "!the event would become a dead letter: no route fits",
		"--topic x --to nowhere":                            `!destination "nowhere" of the event is neither sink:name (sinks: audit, default)`,
		"--topic order.placed --tenant acme":                "!the event has no key",
		"--topic paid --table nosuch":                       "!nosuch",
		"--topic paid --destination outbox_events=a.{key}":  "!the event has no key",
		"--topic paid --sink redis://b":                     `!there is no sink "audit"`,
		"":                                                  "!--topic is missing",
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

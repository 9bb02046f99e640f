package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

type capsule struct {
	Format  int `json:"outboxCapsule"`
	Program struct{ Go string }
	Schemas []struct{ Set string }
	Table   string
	Event   struct {
		ID, Status, Topic string
		Payload           json.RawMessage
	}
	Says     []string
	Route    []string
	TraceIDs map[string]string
	Key      []struct {
		Topic, Status string
		Payload       json.RawMessage
	}
	Letters    []struct{ OriginalID, State string }
	Audit      []struct{ Action, Reason string }
	Conditions struct{ Asked int }
	Settings   []struct{ Name string }
	Unseen     []string
}

// What is known of a dead event is in one file, without a secret. What dev delivers of it is what
// the sink would have got.
func TestCapture(t *testing.T) {
	tier.Full(t)
	onStores(t, testCapture)
}

func testCapture(t *testing.T, e env) {
	const payload = `{"captured": "é\u2028<&>", "n": 12345678901234567890, "x": 1.50}`
	dir, redis := t.TempDir(), testenv.RedisServer(t)
	redisCommand(t, redis, "ACL SETUSER relay on >sinksecret ~* +@all resetchannels &open")
	e.database = strings.Replace(e.database, "postgres@", "postgres:hunter2@", 1)
	endpoints, settings := filepath.Join(dir, "endpoints.yaml"), filepath.Join(dir, "outbox.yaml")
	for path, text := range map[string]string{
		endpoints: `endpoints: [{name: acme, url: "https://acme.example/h?token=hooktoken",
  secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=]}]`,
		settings: `sink: {default: "redis://relay:sinksecret@` + redis.Addr() + `", hooks: "webhook:` + endpoints + `"}
routes: [{topic: order.hook, to: [hooks]}, {to: [default]}]`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	relaying := e
	relaying.redis = "redis://relay:sinksecret@" + redis.Addr()
	relaying.extra = []string{"OUTBOX_TOKEN=clienttoken"}
	relay, _ := relaying.relaying("--table", "outbox_events", "--max-attempts", "2", "--backoff-base", "10ms")
	write := func(topic string) string {
		return strings.TrimSpace(e.ok(payload, "write", "--topic", topic, "--key", "42", "--aggregate-type", "Order",
			"--tenant", "acme", "--schema-id", "order/v1", "--metadata", `{"user_id": 7,`+
				`"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`))
	}
	write("open")
	dead := write("order.placed")
	letter := ""
	e.eventually("the event is dead", func() bool {
		found := decode[listOf[struct{ ID string }]](t, e.ok("", "dlq", "list", "-o", "json")).Items
		if len(found) == 1 {
			letter = found[0].ID
		}
		return letter != ""
	})
	write("open")
	e.ok("", "dlq", "discard", letter, "--reason", "INC-4711")
	file := filepath.Join(dir, "capsule.json")
	capturing := relaying
	capturing.extra = append(capturing.extra, "OUTBOX_CONFIG="+settings, "OUTBOX_SINK=")
	contains(t, capturing.ok("", "capture", dead, "--out", file), "wrote "+file, "outbox dev --from "+file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"hunter2", "sinksecret", "hooktoken", "MfKQ9r8GKYq", "clienttoken"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("%s is in the capsule:\n%s", secret, text)
		}
	}
	c := decode[capsule](t, string(text))
	if c.Format != 1 || c.Table != "outbox_events" || c.Event.ID != dead || c.Event.Status != "DEAD" ||
		c.Program.Go == "" || len(c.Schemas) < 2 || len(c.Key) != 2 || len(c.Letters) != 1 ||
		c.Letters[0].OriginalID != dead || c.Letters[0].State != "discarded" || len(c.Audit) != 1 ||
		c.Audit[0].Reason != "INC-4711" || c.Conditions.Asked < 20 || len(c.Settings) < 20 || len(c.Unseen) != 0 ||
		!reflect.DeepEqual(c.Route, []string{"default:order.placed"}) ||
		c.TraceIDs["traceparent"] != "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" {
		t.Errorf("the capsule is:\n%s", text)
	}
	contains(t, strings.Join(c.Says, "\n"), "it became dead letter "+letter, "was discarded at", "route 2")

	without := capturing.ok("", "capture", dead, "--without-payload", "--out", "-")
	if n := decode[capsule](t, without); strings.Contains(without, "12345678901234567890") || len(n.Key) != 2 {
		t.Errorf("without payloads it is:\n%s", without)
	}
	capturing.says(1, "capture "+dead+" --out "+file, "is there already and was left as it is", "--out")
	capturing.says(1, "capture 0198c5a0-7f3e-7c11-8a55-2f6d1c0b9e42", "no table of the settings has event")
	capturing.says(2, "capture yesterday", "is neither an event id")
	capturing.says(2, "capture "+dead+" --of nothing", "nothing")

	// The application's receiver is mended, and gets the event; dev's gets the same from the file.
	relay.signal(syscall.SIGTERM)
	relay.wait()
	mended, laptop := e, env{t: t}
	mended.redis, laptop.redis = redis.URL(), testenv.RedisServer(t).URL()
	got := func(at env) *process {
		tail := at.start("tail", "order.placed", "--count", "1", "-o", "json")
		tail.await(tail.err, "subscribed")
		return tail
	}
	want := got(mended)
	mended.relaying("--table", "outbox_events")
	e.ok("", "dlq", "replay", letter, "--discarded", "--yes", "--reason", "mended")
	have, opened := got(laptop), laptop.start("tail", "open", "--count", "2")
	opened.await(opened.err, "subscribed")
	d := laptop.develop(dir, "--from", file, "--sink", laptop.redis)
	d.await(d.out, "event "+dead+"  order.placed  key 42  written")
	d.await(d.out, "event "+dead+"  delivered to order.placed")
	for _, tail := range []*process{want, have, opened} {
		if code := tail.wait(); code != 0 {
			t.Errorf("tail ended with exit code %d", code)
		}
	}
	type message struct {
		Channel string
		Message map[string]json.RawMessage
	}
	wanted, had := decode[message](t, want.out.String()), decode[message](t, have.out.String())
	contains(t, string(had.Message["data"]), "12345678901234567890", "1.50")
	if !reflect.DeepEqual(wanted, had) {
		t.Errorf("the sink got\n%s\nand that of dev\n%s", want.out, have.out)
	}
	d.stop()
	if _, err := os.Stat(filepath.Join(dir, "outbox.db")); err == nil {
		t.Error("dev --from has made outbox.db")
	}
}

// A file that is no capsule starts nothing, and the error says what it is instead.
func TestDevFromBadFiles(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	dir := t.TempDir()
	id := `"id":"0198c5a0-7f3e-7c11-8a55-2f6d1c0b9e42"`
	for name, c := range map[string]struct{ text, says string }{
		"empty":   {"", "it is no capsule, but should be the JSON"},
		"text":    {"an event", "it is no capsule, but should be the JSON"},
		"list":    {"[]", "it is no capsule, but should be the JSON"},
		"other":   {`{"items": []}`, "it is JSON and no capsule: it has no outboxCapsule"},
		"newer":   {`{"outboxCapsule": 2, "event": 7}`, "of format 2, and this program knows 1: use the outbox that wrote it"},
		"damaged": {`{"outboxCapsule": 1, "event": 7}`, "it is a damaged capsule"},
		"no id": {`{"outboxCapsule": 1, "event": {}}`, "it is a damaged capsule: event 00000000-0000-0000-0000-000000000000: " +
			"it has no id"},
		"no topic": {`{"outboxCapsule": 1, "table": "t", "event": {` + id + `}}`, "0198c5a0-7f3e-7c11-8a55-2f6d1c0b9e42: " +
			"event 0: Topic is required"},
		"metadata": {`{"outboxCapsule": 1, "event": {` + id + `, "topic": "x", "metadata": 7}}`, "it is a damaged capsule"},
		"large":    {strings.Repeat(" ", 64<<20) + " {}", "it has more than 64 MiB"},
		"missing":  {"", "no such file"},
	} {
		file := filepath.Join(dir, name)
		if name != "missing" {
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		e := env{t: t, extra: []string{"TMPDIR=" + dir}}
		r := e.run("", "dev", "--http", "127.0.0.1:0", "--from", file)
		if r.code != 2 || r.out != "" || !strings.Contains(r.err, "--from") || !strings.Contains(r.err, c.says) {
			t.Errorf("%s: exit code %d, want 2 and %q:\n%s%s", name, r.code, c.says, r.out, r.err)
		}
	}
	e := env{t: t}
	e.says(2, "dev --from x --temp --file y", "contradict")
	if r := e.run("", "dev", "--from", ""); r.code != 2 || !strings.Contains(r.err, "--from is empty") {
		t.Errorf("exit code %d\n%s", r.code, r.err)
	}
}

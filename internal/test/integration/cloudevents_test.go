package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// conforms asks the Go SDK of CloudEvents.
func conforms(message string) error {
	var e event.Event
	if err := json.Unmarshal([]byte(message), &e); err != nil {
		return fmt.Errorf("CloudEvents' SDK for Go cannot read it: %w", err)
	}
	if err := e.Validate(); err != nil {
		return fmt.Errorf("CloudEvents' SDK for Go does not accept it: %w", err)
	}
	return nil
}

// Whatever plain SQL writes into the columns, both SDKs of CloudEvents read the message, and the
// metadata is whole.
func TestMessagesOfAnyRowConform(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	w := newWorld(t)
	w.exec(t, "ALTER TABLE outbox_events DISABLE TRIGGER outbox_events_refuse") // as in a table from before it
	w.relay(t, nil)
	sources := []string{"shop", "Order Service", "a b", "sh\u00f6p", "%zz", "http://[::1", "1:x", ":x",
		"https://shop.example/a?b#c", "//", "\u65e5\u672c", "\"\\"}
	metadata := []string{
		`{"trace_id": "7f", "user_id": "u1"}`,
		`{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "user_id": 7}`,
		`{"region": "eu", "retry": true, "shard": -3, "big": 9007199254740993, "ratio": 1.5, "none": null, "list": [1, {"a": "b"}], "empty": ""}`,
		`{"id": "x", "type": "y", "data": 1, "validate": "v", "constructor": 1, "source": 2, "time": "t", "metadata": "m"}`,
		`{"\u00fc": 1, "With Space": 2, "UPPER": 3, "": 4, "averylongnameofmorethantwenty": 5}`,
		`{"line": "a\nb", "bell": "\u0007"}`, `null`, `[1, 2]`, `"text"`,
	}
	times := []string{"now()", "'infinity'", "'-infinity'", "'0044-03-15 BC'", "'10000-01-01'", "'294276-01-01'",
		"'2026-11-22 12:00:00.123456+05:30'"}
	wanted := map[string]string{} // metadata by topic
	n := 0
	for i, source := range sources {
		for j := range max(len(metadata), len(times)) {
			n++
			topic := fmt.Sprintf("any.%d", n)
			wanted[topic] = metadata[j%len(metadata)]
			w.exec(t, `INSERT INTO outbox_events (event_topic, occurred_at, source_bc, aggregate_type, aggregate_id, schema_version, payload, metadata)
				VALUES ($1, `+times[j%len(times)]+`, $2, $3, $4, $5, $6, $7)`,
				topic, source, "Type "+source, fmt.Sprint("id ", i), j, fmt.Sprintf(`{"n": %d}`, n), metadata[j%len(metadata)])
		}
	}
	var lines []string
	for _, m := range w.wait(t, n, 0) {
		if err := conforms(m.Text); err != nil {
			t.Error(err)
		}
		if got, want := metadataOf(t, m.Text), parsed(t, wanted[m.Type]); !reflect.DeepEqual(got, want) {
			t.Errorf("metadata %v, want %v, of %s", got, want, m.Text)
		}
		lines = append(lines, m.Text)
	}
	askJavaScript(t, lines)
}

// metadataOf puts the metadata of a message together again.
func metadataOf(t *testing.T, text string) any {
	t.Helper()
	var attributes map[string]any
	noError(t, json.Unmarshal([]byte(text), &attributes))
	all := map[string]any{}
	if rest, ok := attributes["metadata"].(string); ok {
		members, ok := parsed(t, rest).(map[string]any)
		if !ok {
			return parsed(t, rest)
		}
		all = members
	}
	for _, ours := range []string{"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "sequence",
		"partitionkey",
		"tenantid", "schemaid", "schemaversion", "metadata", "data"} {
		delete(attributes, ours)
	}
	for name, value := range attributes {
		all[name] = value
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

func parsed(t *testing.T, text string) (v any) {
	t.Helper()
	noError(t, json.Unmarshal([]byte(text), &v))
	return v
}

// askJavaScript asks the JavaScript SDK, where there is a node to run it.
func askJavaScript(t *testing.T, messages []string) {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			fmt.Println("CloudEvents' SDK for JavaScript is not asked: there is no " + program)
			return
		}
	}
	dir := t.TempDir()
	install := exec.CommandContext(t.Context(), "npm", "install", "--no-audit", "--no-fund", "--prefix", dir,
		"cloudevents@10.0.0")
	if out, err := install.CombinedOutput(); err != nil {
		fmt.Printf("CloudEvents' SDK for JavaScript is not asked: npm cannot install it: %v\n%s\n", err, out)
		return
	}
	const script = `
const { HTTP } = require("cloudevents");
const lines = require("fs").readFileSync("messages.jsonl", "utf8").trim().split("\n");
for (const body of lines) {
	const e = HTTP.toEvent({ headers: { "content-type": "application/cloudevents+json" }, body });
	if (!e.validate()) throw new Error("not valid: " + body);
	if (JSON.parse(body).data.n !== e.data.n) throw new Error("other data: " + body);
}
console.log(lines.length);
`
	for name, text := range map[string]string{"messages.jsonl": strings.Join(messages, "\n"), "check.js": script} {
		noError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	node := exec.CommandContext(t.Context(), "node", "check.js")
	node.Dir, node.WaitDelay = dir, 10*time.Second
	out, err := node.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != fmt.Sprint(len(messages)) {
		t.Errorf("CloudEvents' SDK for JavaScript does not accept a message: %v\n%s", err, out)
	}
}

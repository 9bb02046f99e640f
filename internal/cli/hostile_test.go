package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// schema is what the description of the API says of a body.
type schema struct {
	Ref        string `json:"$ref"`
	Properties map[string]schema
	Items      *schema
}

// described is the description of the API.
type described struct {
	Paths map[string]map[string]struct {
		OperationID string
		Parameters  []struct{ Name, In string }
		RequestBody struct {
			Content map[string]struct{ Schema schema }
		}
	}
	Components struct{ Schemas map[string]schema }
}

// bodies returns bodies in each of which one field has the value, JSON text.
func (d described) bodies(s schema, value string) (all []string) {
	if name, is := strings.CutPrefix(s.Ref, "#/components/schemas/"); is {
		s = d.Components.Schemas[name]
	}
	all = append(all, value)
	if s.Items != nil {
		for _, item := range d.bodies(*s.Items, value) {
			all = append(all, "["+item+"]")
		}
	}
	for name, field := range s.Properties {
		for _, v := range d.bodies(field, value) {
			// With what makes the rest of the request valid, for as long as it is not the field itself.
			var rest strings.Builder
			for other, valid := range map[string]string{"reason": `"x"`, "set": `"x"`, "all": "true", "upTo": "9",
				"appPackage": `"x"`, "error": `"x"`, "id": fmt.Sprintf("%q", uuid.New()), "token": fmt.Sprintf("%q", uuid.New())} {
				if _, has := s.Properties[other]; has && other != name {
					fmt.Fprintf(&rest, ", %q: %s", other, valid)
				}
			}
			all = append(all, fmt.Sprintf("{%q: %s%s}", name, v, &rest))
		}
	}
	return all
}

// leaked matches words of Go, its libraries and PostgreSQL.
var leaked = regexp.MustCompile(`SQLSTATE|ERROR: |pgconn|pgx|strconv|json: |jsontext|time: |sql: |parsing |runtime error|` +
	`goroutine|uuid: |invalid UUID|invalid character|byte sequence|violates|input syntax|out of range for type|` +
	`unmarshal|Go value|Go struct|relation "|column "|Unicode escape|this is not your fault`)

// Whatever a parameter or a field of a body contains, every operation answers with a status below 500
// and in words of this project.
func TestHostileInputIsRefusedInOurWords(t *testing.T) {
	t.Parallel()
	e := migrated(t)
	e.ok("", "migrate", "up", "--set", "core,crawl,log")
	g := e.serving("--parts", "gateway,relay", "--auth", "none", "--admin", "write", "--sink", "memory:")
	run := g.external()
	var doc described
	client := http.Client{}
	asked := 0
	ask := func(operation, method, target, body string) {
		asked++
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, method, g.url+target, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatalf("%s: %s %s: %v", operation, method, target, err)
		}
		defer resp.Body.Close()
		if resp.Header.Get("Content-Type") == "text/event-stream" {
			return
		}
		answer, err := io.ReadAll(resp.Body)
		if operation == "" {
			err = json.Unmarshal(answer, &doc)
		} else if words := leaked.Find(answer); resp.StatusCode >= 500 || resp.StatusCode >= 400 && words != nil {
			t.Errorf("%s: %s %.300s %.300q: status %d, words %q in %.600s", operation, method, target, body,
				resp.StatusCode, words, answer)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ask("", http.MethodGet, "/openapi.json", "")
	texts := []string{"a\x00b", "\xff", "x", "-1", "99999999999999999999999", "1e400", "9223372036854775807",
		"294277-01-01T00:00:00Z", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z", uuid.New().String(),
		strings.Repeat("k", 5000)}
	tables := []string{"outbox_log", "outbox_subscriptions", "outbox_subscription_events", "outbox_deliveries", "job_dlq",
		"apps", "crawl_outbox", "pg_class", "nosuch", `"`}
	values := []string{`"a\u0000b"`, "\"\xff\"", `"\ud800"`, `"x"`, "-1", "1e400", "9223372036854775807", "null", "{}",
		`[{"a": 1, "a": 2}]`, `"294277-01-01T00:00:00Z"`, `"0000-01-01T00:00:00Z"`}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			method = strings.ToUpper(method)
			target := func(of, value string) string {
				filled := path
				query := url.Values{}
				for _, p := range op.Parameters {
					v := map[string]string{"id": run, "name": "billing", "table": "outbox_events", "topics": "a"}[p.Name]
					if p.Name == of {
						v = value
					}
					switch {
					case p.In == "path":
						filled = strings.ReplaceAll(filled, "{"+p.Name+"}", url.PathEscape(v))
					case p.In == "query" && v != "":
						query.Set(p.Name, v)
					}
				}
				return filled + "?" + query.Encode()
			}
			for _, p := range op.Parameters {
				for _, v := range slices.Concat(texts, tables) {
					if p.In != "header" && (p.Name == "table" || !slices.Contains(tables, v)) {
						ask(op.OperationID, method, target(p.Name, v), "")
					}
				}
			}
			ask(op.OperationID, method, target("", "")+"%zz", "")
			for _, content := range op.RequestBody.Content {
				for _, v := range values {
					for _, body := range doc.bodies(content.Schema, v) {
						ask(op.OperationID, method, target("", ""), body)
					}
				}
				ask(op.OperationID, method, target("", ""), strings.Repeat("[", 12_000))
				for _, table := range tables {
					ask(op.OperationID, method, target("", ""), fmt.Sprintf(`{"table": %q, "all": true, "reason": "x", "upTo": 9}`, table))
				}
			}
		}
	}
	t.Logf("%d requests", asked)
}

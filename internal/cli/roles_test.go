package cli_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// refusedByDatabase matches texts that tell an operator of a right that the role lacks, or of an
// error that has no sentence of ours.
var refusedByDatabase = regexp.MustCompile(`permission denied|lacks (a right|privileges)|SQLSTATE|not seen|not your fault`)

// setTables are the tables of events of each set that "migrate up --set core" can have beside it.
var setTables = map[string]string{"core": "outbox_events", "events": "event_outbox", "crawl": "crawl_outbox",
	"log": "outbox_log"}

// The documented logins do everything that they are for, with every combination of sets, and see no
// error of the database: outbox_operator and outbox_reader by the commands, a gateway that also has
// outbox_operator by every operation of the admin API.
func TestRolesWorkWithEveryCombinationOfSets(t *testing.T) {
	t.Parallel()
	redis := testenv.RedisServer(t).URL()
	for mask := range 8 {
		sets := []string{"core"}
		for i, set := range []string{"events", "crawl", "log"} {
			if mask&(1<<i) != 0 {
				sets = append(sets, set)
			}
		}
		name := strings.Join(sets, ",")
		t.Run(name, func(t *testing.T) {
			if name != "core,log" { // the usual one of who needs neither runs nor event_outbox
				tier.Full(t)
			}
			e := env{t: t, database: testenv.Database(t), redis: redis}
			e.ok("", "migrate", "up", "--set", name)
			e.ok("", "migrate", "roles")
			var tables []string
			for _, set := range sets {
				tables = append(tables, setTables[set])
			}
			fillTables(e, tables)
			t.Run("admin API", func(t *testing.T) { e.t = t; testAdminOperations(e, tables) })
			t.Run("commands", func(t *testing.T) { e.t = t; testRoleCommands(e, tables) })
		})
	}
}

// fillTables writes two events into each table. One of outbox_events is dead, and one waits for its
// next attempt.
func fillTables(e env, tables []string) {
	for _, table := range tables {
		exec1(e, map[string]string{
			"outbox_events": `INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload, status, next_retry_at, error_message)
				SELECT 'order.placed', now(), 's', '{}', s, CASE s WHEN 'FAILED' THEN now() + interval '1 h' END, 'refused'
				  FROM unnest('{NEW,NEW,FAILED,DEAD}'::text[]) s`,
			"event_outbox": `INSERT INTO apps (name, namespace) VALUES ('default', 'default') ON CONFLICT DO NOTHING;
				INSERT INTO event_outbox (app_id, event_id, event_type, payload)
				SELECT a.id, gen_random_uuid(), 'order.placed', '{}' FROM apps a, generate_series(1, 2)`,
			"crawl_outbox": `INSERT INTO crawl_runs (app_package) VALUES ('p');
				INSERT INTO crawl_outbox (crawl_id, event_type, payload) SELECT id, 'T', '{}' FROM crawl_runs, generate_series(1, 2)`,
			"outbox_log": `INSERT INTO outbox_log (event_topic, occurred_at, source_bc, payload)
				SELECT 'order.placed', now(), 's', '{}' FROM generate_series(1, 2); SELECT outbox_subscribe('billing')`,
		}[table])
	}
}

// testAdminOperations starts a server without a relay, as the documented login, and sends every
// operation of its OpenAPI document below /v1/admin.
func testAdminOperations(e env, tables []string) {
	secret := decode[struct{ Token string }](e.t, e.owner().ok("", "token", "create", "-o", "json", "--tenant", "*",
		"--scope", "admin:read,admin:write")).Token
	exec1(e, `DO $$ BEGIN CREATE ROLE page_login LOGIN IN ROLE outbox_gateway, outbox_operator;
		EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`)
	page := e
	page.database = strings.Replace(e.database, "postgres@", "page_login@", 1)
	g := page.serving("--parts", "gateway", "--admin", "write")
	asked := map[string]bool{}
	ask := func(operation, path string, body map[string]any) string {
		e.t.Helper()
		asked[operation] = true
		method := http.MethodGet
		if body != nil {
			method = http.MethodPost
		}
		status, answer := g.asOperator(secret, method, path, body)
		if status != 200 || refusedByDatabase.Match(answer) {
			e.t.Errorf("%s %s %v: status %d: %s", method, path, body, status, answer)
		}
		return string(answer)
	}
	type events struct{ Items []struct{ ID string } }
	for _, operation := range []string{"session", "history", "settings", "pauses"} {
		ask(operation, "/"+operation, nil)
	}
	seen := decode[struct {
		Tables        []struct{ Backlog int }
		Error         string
		Unseen        []any
		Letters       struct{ Pending int }
		Worst, Reason string
	}](e.t, ask("overview", "/overview", nil))
	if len(seen.Tables) != len(tables) || seen.Error != "" || len(seen.Unseen) > 0 {
		e.t.Errorf("the overview is %+v, want that of %v", seen, tables)
	}
	for i, table := range seen.Tables {
		if table.Backlog < 2 && tables[i] != "outbox_log" { // only a subscription reads the log
			e.t.Errorf("%d events wait in %s, want 2 or more", table.Backlog, tables[i])
		}
	}
	ask("conditions", "/conditions", nil)
	for _, table := range tables {
		ask("lanes", "/tables/"+table+"/lanes", nil)
		ask("backlog", "/tables/"+table+"/backlog?by=tenant", nil)
		ask("pause", "/pauses", map[string]any{"table": table, "reason": "r"})
		ask("resume", "/resume", map[string]any{"table": table})
		if table == "outbox_log" {
			continue // it keeps no state that could be listed or changed
		}
		rows := decode[events](e.t, ask("events", "/events?table="+table, nil))
		if len(rows.Items) < 2 {
			e.t.Fatalf("the page of %s has %d events, want 2 or more", table, len(rows.Items))
		}
		ask("event", "/events/"+rows.Items[0].ID+"?table="+table, nil)
		ask("payload", "/events/"+rows.Items[0].ID+"/payload?table="+table, nil)
		ask("retry", "/events/retry", map[string]any{"table": table, "all": true, "reason": "r"})
		upTo := decode[struct{ UpTo int }](e.t, ask("events preview", "/events/preview",
			map[string]any{"table": table, "topic": "order.*"})).UpTo
		ask("skip", "/events/skip", map[string]any{"table": table, "topic": "order.*", "upTo": max(upTo, 1), "reason": "r"})
	}
	letters := decode[events](e.t, ask("letters", "/letters", nil))
	if len(letters.Items) < 3 { // those that were skipped
		e.t.Fatalf("%d dead letters, want 3 or more", len(letters.Items))
	}
	ask("letter groups", "/letters/groups", nil)
	ask("letter", "/letters/"+letters.Items[0].ID, nil)
	for _, change := range []string{"replay", "discard"} {
		chosen := map[string]any{"ids": []string{letters.Items[0].ID}}
		chosen["set"] = decode[struct{ Set string }](e.t, ask("letters preview", "/letters/preview", chosen)).Set
		chosen["reason"] = "r"
		ask(change, "/letters/"+change, chosen)
		letters.Items = letters.Items[1:]
	}
	if audit := ask("audit", "/audit", nil); !strings.Contains(audit, `"discard"`) {
		e.t.Errorf("the audit is %s", audit)
	}
	asked["watch"] = true // the same as the overview, over and over
	var document struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	status, text := g.ask("", http.MethodGet, "/openapi.json", nil)
	if err := json.Unmarshal(text, &document); err != nil {
		e.t.Fatalf("status %d: %v", status, err)
	}
	described := 0
	for path, methods := range document.Paths {
		if strings.HasPrefix(path, "/v1/admin/") {
			described += len(methods)
		}
	}
	if described != len(asked) {
		e.t.Errorf("the test asks for %d operations, and the OpenAPI document has %d: add the new ones",
			len(asked), described)
	}
}

// testRoleCommands runs the commands of operators and readers.
func testRoleCommands(e env, tables []string) {
	// Row-level security shows a reader the rows of one tenant.
	read := []string{"migrate status", "migrate indexes", "dlq list --tenant default", "dlq stats --tenant default",
		"audit", "pauses"}
	act := []string{"sinks", "dlq collect --reason r", "dlq replay --all --yes --reason r", "dlq purge --yes --reason r",
		"pause --topic a --reason r", "resume --topic a", "dlq discard --all --yes --reason r",
		"replay --since 1h --yes --reason r"}
	for _, table := range tables {
		of := " --table " + table
		read = append(read, "lanes"+of)
		if table == "outbox_log" { // it keeps no state that could be listed or changed
			read = append(read, "subscriptions list")
			act = append(act, "subscriptions add a", "subscriptions replay a --from 2026-01-01T00:00:00Z",
				"subscriptions remove a --yes")
			continue
		}
		column := map[bool]string{true: "id", false: "event_id"}[table == "outbox_events"]
		id := query[string](e, "SELECT "+column+"::text FROM "+table+" LIMIT 1")
		of += " --tenant default"
		read = append(read, "events"+of, "why "+id+of, "events show "+id+of)
		act = append(act, "events retry --reason r"+of, "events skip --yes --reason r"+of)
	}
	for _, role := range []struct {
		name  string
		lines []string
	}{{"outbox_reader", read}, {"outbox_operator", append(read, act...)},
		// The server of the tests has no autovacuum (OBX-011).
		{"outbox_relay", []string{"sinks", "lanes", "purge --yes", "doctor --pre --skip OBX-011", "verify"}}} {
		as := e.login(role.name)
		for _, line := range role.lines {
			r := as.run("", strings.Fields(line)...)
			if r.code != 0 || refusedByDatabase.MatchString(r.out+r.err) {
				e.t.Errorf("outbox %s as %s: exit code %d\n%s%s", line, role.name, r.code, r.out, r.err)
			}
		}
	}
}

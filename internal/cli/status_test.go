package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

func TestStatus(t *testing.T) { onStores(t, testStatus) }

func testStatus(t *testing.T, e env) {
	e.redis = testenv.RedisServer(t).URL()
	e.says(3, "status --table outbox_events", "No relay serves outbox_events; no event waits", "warning   OBX-030")
	e.ok("{}", "write", "--topic", "order.placed", "--key", "42")
	e.says(4, "status --table outbox_events", "No relay serves outbox_events; 1 event waits", "critical  OBX-030",
		"do: start one: outbox relay")
	relay := e.start("relay", "--table", "outbox_events")
	relay.await(relay.err, "lanes held")
	e.eventually("the status is healthy", func() bool {
		return strings.HasPrefix(e.run("", "status", "--table", "outbox_events").out, "Healthy; no event waits.\n")
	})
	var s condition.Status
	out := e.ok("", "status", "--table", "outbox_events", "-o", "json")
	if err := json.Unmarshal([]byte(out), &s); err != nil || s.Facts == nil || len(s.Facts.Queues) != 1 ||
		s.Facts.Queues[0].Held != 64 || len(s.Facts.Queues[0].Processes) != 1 {
		t.Errorf("got %s, error %v", out, err)
	}
	e.says(2, "status --watch 1ms", "want at least 1s")
}

// A database that cannot tell the state never makes it healthy. The commands say why within 5 s.
func TestStatusOfBadDatabases(t *testing.T) {
	t.Parallel()
	e := migrated(t)
	e.redis = testenv.RedisServer(t).URL()
	silent := silentServer(t)
	exec1(e, "CREATE ROLE blind LOGIN")
	for name, c := range map[string]struct {
		database string
		code     int
		says     string
	}{
		"away":      {"postgres://postgres@127.0.0.1:1/postgres", 4, "The database does not answer"},
		"silent":    {"postgres://postgres@" + silent + "/postgres", 4, "The database does not answer"},
		"empty":     {e.empty().database, 4, "The tables of set core do not exist."},
		"no rights": {strings.Replace(e.database, "postgres@", "blind@", 1), 5, "Unknown"},
	} {
		of := e
		of.database = c.database
		for _, command := range []string{"status", "doctor", "verify"} {
			began := time.Now()
			r := of.run("", command, "--table", "outbox_events")
			if r.code != c.code && r.code != 4 || r.code < 4 {
				t.Errorf("%s of a database that is %s: exit code %d, want %d or 4\n%s%s", command, name, r.code,
					c.code, r.out, r.err)
			}
			if command == "status" && (r.code != c.code || !strings.HasPrefix(r.out, c.says)) {
				t.Errorf("status of a database that is %s: exit code %d\n%s%s", name, r.code, r.out, r.err)
			}
			if took := time.Since(began); took > 6*time.Second {
				t.Errorf("%s of a database that is %s took %s", command, name, took)
			}
			t.Logf("%s, %s: exit code %d in %s: %s", name, command, r.code,
				time.Since(began).Round(10*time.Millisecond), r.out)
		}
	}
}

// A session that locks a table is named. Other tables are still known.
func TestStatusNamesLocks(t *testing.T) {
	t.Parallel()
	e := migrated(t)
	e.redis = testenv.RedisServer(t).URL()
	cfg, err := pgx.ParseConfig(e.database)
	if err != nil {
		t.Fatal(err)
	}
	cfg.RuntimeParams["application_name"] = "nightly report"
	holder, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Close(context.WithoutCancel(t.Context())) }()
	if _, err := holder.Exec(t.Context(), "BEGIN; LOCK TABLE outbox_events"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1500 * time.Millisecond) // a lock that lasts less is not reported
	named := fmt.Sprintf(`session %d of login postgres (application "nightly report"`, holder.PgConn().PID())
	r := e.run("", "status")
	if r.code != 4 || !strings.HasPrefix(r.out, "Table outbox_events is locked against reads by "+named) ||
		!strings.Contains(r.out, "no relay serves event_outbox") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	e.says(4, "doctor --only database --skip OBX-011", named)
}

package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/inbox/group"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/postgres"
	"github.com/outboxrelay/outbox/store/sqlite"
)

// groupProcess is the variable with which the test binary is a process of a group: its name and the
// table that it reads.
const groupProcess = "TEST_GROUP_PROCESS"

// runGroup is that process. It ends with SIGTERM.
func runGroup() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	name, table, _ := strings.Cut(os.Getenv(groupProcess), " ")
	layout := outbox.OutboxLog()
	if table == "outbox_events" {
		layout = outbox.OutboxEvents()
	}
	cfg := group.Config{Name: name, Table: layout, Workers: 2, Window: 30 * 24 * time.Hour,
		Backoff: relay.Backoff{Base: time.Minute}, Relay: relay.Config{LeaseTTL: 2 * time.Second}}
	database := os.Getenv("OUTBOX_DATABASE_URL")
	if path, file := strings.CutPrefix(database, "sqlite:"); file {
		db, err := sqlite.Connect(ctx, path, 4)
		if err != nil {
			return err
		}
		return handle(ctx, db, sqlite.Transactions(db), cfg)
	}
	db, err := postgres.Connect(ctx, database, postgres.Config{Conns: 4, Name: "group"})
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	return handle(ctx, db, postgres.Transactions(pool), cfg)
}

// slowHandler is the duration of the handler of an event with key slow.
const slowHandler = time.Second

// handle runs a group that fails at events of key bad, and takes slowHandler for those of key slow.
func handle[Tx any](ctx context.Context, db outbox.Database, tx inbox.Transactions[Tx], cfg group.Config) error {
	g, err := group.New(db, tx, cfg)
	if err != nil {
		return err
	}
	group.Handle(g, "*", func(_ context.Context, _ Tx, m group.Message[any]) error {
		switch m.AggregateID {
		case "bad":
			return errors.New("no such customer")
		case "slow":
			fmt.Println("handling slow") //nolint:forbidigo // the test waits for it
			time.Sleep(slowHandler)
		}
		return nil
	})
	return g.Run(ctx)
}

// group starts a process of a group.
func (e env) group(name, table string) *process {
	e.t.Helper()
	return e.startBinary(func(ctx context.Context, _ ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), groupProcess+"="+name+" "+table, "OUTBOX_DATABASE_URL="+e.database)
		return cmd
	})
}

type groupState struct {
	Group, Table, Life                       string
	LastSeen                                 *time.Time
	Processes                                []struct{ Name string }
	LanesHeld, LanesExpired, Waiting, Failed int
	Failing                                  []struct{ Key, Error string }
	Pauses                                   []struct{ Reason string }
}

// awaitGroup waits until outbox groups show says what is wanted.
func (e env) awaitGroup(name, what string, wanted func(g groupState) bool) {
	e.t.Helper()
	e.eventually(what, func() bool {
		r := e.run("", "groups", "show", name, "-o", "json")
		return r.code == 0 && wanted(decode[groupState](e.t, r.out))
	})
}

// A group of a log, and a group that is the recorded reader of another table: alive, paused, killed,
// and stopped. What operators see and do of both is the same.
func TestGroups(t *testing.T) {
	onStores(t, func(t *testing.T, e env) { testGroup(t, e, "outbox_events") })
}

func TestGroupsOfLog(t *testing.T) {
	t.Parallel()
	e := migrated(t)
	e.ok("", "migrate", "up", "--set", "log")
	testGroup(t, e, "outbox_log")
}

func testGroup(t *testing.T, e env, table string) {
	e.says(0, "groups list", "there are no consumer groups")
	e.says(1, "groups show billing", "find consumer group billing: it does not exist", "has none")
	write := func(key string) {
		t.Helper()
		e.ok("1", "write", "--table", table, "--topic", "order.placed", "--source", "shop", "--aggregate-type", "Order",
			"--key", key)
	}
	one := e.group("billing", table)
	write("good")
	e.awaitGroup("billing", "alive", func(g groupState) bool {
		return g.Life == "alive" && g.Waiting == 0 && g.LanesHeld == 64 && g.Table == table && len(g.Processes) == 1
	})
	write("bad")
	write("bad")
	e.awaitGroup("billing", "failed events", func(g groupState) bool {
		return g.Waiting == 2 && g.Failed == 2 && len(g.Failing) == 1 && g.Failing[0].Key == "bad" &&
			strings.Contains(g.Failing[0].Error, "no such customer")
	})
	e.says(0, "groups list", "billing", table, "alive", "64 of 64")
	e.says(0, "groups show billing", "alive", "last seen", "BLOCKED KEY", "no such customer")

	// A pause is confirmed once the event in flight has been handled.
	e.says(2, "groups pause billing", "--reason is required")
	e.says(1, "groups pause bill --reason x", "this database has billing of "+table)
	if table == "outbox_log" {
		e.says(2, "pause --table outbox_log --sink billing --reason x", "is a consumer group", "outbox groups pause billing")
	}
	write("slow")
	one.await(one.out, "handling slow")
	began := time.Now()
	r := e.run("", "groups", "pause", "billing", "--reason", "INC-1", "--wait", "300ms")
	refused := r.code == 1 && strings.Contains(r.err, "wait 300ms for confirmation: not confirmed by ")
	if !refused && time.Since(began) < slowHandler {
		t.Errorf("a pause was confirmed while a handler runs: %d, after %s:\n%s%s", r.code, time.Since(began), r.out, r.err)
	}
	e.says(0, "groups pause billing --reason INC-1", "paused group billing of "+table+"; confirmed by ")
	write("good")
	time.Sleep(500 * time.Millisecond)
	e.awaitGroup("billing", "paused", func(g groupState) bool {
		return g.Waiting == 3 && len(g.Pauses) == 1 && g.Pauses[0].Reason == "INC-1"
	})
	e.says(0, "pauses", "INC-1")
	e.says(0, "groups resume billing", "resumed group billing of "+table+"; confirmed by ")
	e.says(1, "groups resume billing", "it is not paused by these names")
	e.awaitGroup("billing", "resumed", func(g groupState) bool { return g.Waiting == 2 && len(g.Pauses) == 0 })

	// Killed, it is dead; a pause needs no confirmation then.
	one.signal(syscall.SIGKILL)
	one.wait()
	write("good")
	e.awaitGroup("billing", "dead", func(g groupState) bool {
		return g.Life == "dead" && g.LastSeen != nil && g.Waiting == 3 && g.LanesExpired == 64 && len(g.Processes) == 0
	})
	e.says(0, "groups show billing", "dead", "last seen", "start a process of group billing", "64 expired")
	e.says(0, "groups pause billing --reason INC-2 -o json", `"confirmedBy": []`)
	e.says(0, "groups resume billing", "no process that it concerns is alive")

	r = e.run("", "doctor", "--table", table)
	if said := r.out + r.err; strings.Contains(said, "outbox relay") || strings.Contains(said, "no relay serves") {
		t.Errorf("doctor advises a relay for a table that a group reads:\n%s", said)
	}
	if table == "outbox_log" {
		testWhyLogged(t, e)
	}

	two := e.group("billing", table)
	e.awaitGroup("billing", "alive again", func(g groupState) bool { return g.Life == "alive" && g.Waiting == 2 })
	two.signal(syscall.SIGTERM)
	two.wait()
	ended := time.Now()
	e.awaitGroup("billing", "stopped", func(g groupState) bool {
		return g.Life == "stopped" && g.LastSeen.After(ended.Add(-time.Second))
	})
	contains(t, e.ok("", "audit"), "INC-1", "INC-2")
	if e.onFile() {
		return
	}
	e.ok("", "migrate", "roles")
	e.login("outbox_reader").says(0, "groups list", "billing", "stopped")
	e.login("outbox_producer").says(1, "groups list", "this login may not read outbox_relays", "outbox_reader")
}

// The log has the events good, bad, bad, slow, good and good, of which the dead group billing has not
// handled the last one.
func testWhyLogged(t *testing.T, e env) {
	id := func(key, order string) string {
		t.Helper()
		const of = "SELECT id::text FROM outbox_log WHERE aggregate_id = $1 ORDER BY position "
		return query[string](e, of+order+" LIMIT 1", key)
	}
	last := id("good", "DESC")
	e.says(0, "why "+id("good", ""), "is logged in outbox_log", "it was written into outbox_log at position 1",
		"group billing has handled it")
	e.says(0, "why --position 1 --table outbox_log", "group billing has handled it")
	e.says(0, "why "+id("bad", ""), "group billing has it among its failed events", "after 1 failed: no such customer")
	e.says(0, "events --table outbox_log/billing", "no such customer", "bad")
	e.says(0, "events retry --table outbox_log/billing --all --reason x", "1 event")
	e.ok("", "subscriptions", "add", "audit", "--from", "earliest")
	e.redis = testenv.RedisServer(t).URL()
	_, url := e.relaying("--table", "outbox_events")
	e.eventually("a relay tells of the group and the subscription", func() bool {
		_, text := get(t, url+"/metrics")
		return strings.Contains(text, `outbox_group_processes{group="billing",table="outbox_log"} 0`) &&
			strings.Contains(text, `outbox_subscription_backlog_events{subscription="audit"} 6`)
	})
	e.ok("", "subscriptions", "add", "refunds", "--from", "earliest", "--topic", "refund.paid")
	e.ok("", "groups", "pause", "billing", "--reason", "x")
	e.says(0, "why "+last, "group billing has not reached it, and has up to 0 events to pass before it; it is paused",
		"subscription audit has not reached it, and has up to 5 events", "it is not for subscription refunds")
	e.ok("", "groups", "resume", "billing")
	given := query[string](e, "SELECT id::text FROM outbox_next('audit', 3) ORDER BY position LIMIT 1")
	e.says(0, "why "+given, "subscription audit has given it to a consumer")
	exec1(e, "SELECT outbox_ack('audit', array_agg(id), array_agg(token)) FROM outbox_subscription_events WHERE id = $1",
		given)
	e.says(0, "why "+given, "subscription audit has handled it")
	e.says(0, "why "+last+" -o json", `"kind": "group"`, `"passed": false`)
	e.says(1, "why "+last+" --tenant acme", "no table of the settings has event")
}

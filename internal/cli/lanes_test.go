package cli_test

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

type laneReport struct {
	Relays []struct {
		Owner, Name  string
		Lanes, Share int
	}
	Lanes []struct {
		Lane    int
		State   string
		Owner   string
		Epoch   int64
		Backlog int
		Oldest  *float64 `json:"oldestSeconds"`
	}
	Counted int
}

// in returns how many lanes are in a state, by owner.
func (r laneReport) in(state string) map[string]int {
	n := map[string]int{}
	for _, l := range r.Lanes {
		if l.State == state {
			n[l.Owner]++
		}
	}
	return n
}

// awaitLanes asks until the answer is as wanted.
func awaitLanes(e env, what string, holds func(laneReport) bool) laneReport {
	e.t.Helper()
	var out string
	for start := time.Now(); time.Since(start) < tier.Patience(); time.Sleep(50 * time.Millisecond) {
		out = e.ok("", "lanes", "-o", "json")
		if r := decode[laneReport](e.t, out); holds(r) {
			return r
		}
	}
	e.t.Fatalf("not %s:\n%s", what, out)
	return laneReport{}
}

// What an operator sees while two relays share a table, one dies and the other is stopped.
func TestLanes(t *testing.T) { onStores(t, testLanes) }

func testLanes(t *testing.T, e env) {
	e.redis = testenv.RedisServer(t).URL()
	contains(t, e.ok("", "lanes"), "no relay", "0-63")
	if r := e.run("", "lanes", "--by", "key"); r.code != 2 || !strings.Contains(r.err, "want tenant or topic") {
		t.Errorf("by key: %d %s", r.code, r.err)
	}
	out := e.ok("", "lanes", "-o", "json")
	if r := decode[laneReport](t, out); len(r.Lanes) != 64 || r.in("free")[""] != 64 ||
		!strings.Contains(out, `"relays": []`) {
		t.Fatalf("got %s", out)
	}

	one, _ := e.relaying("--table", "outbox_events", "--lease-ttl", "3s")
	two, _ := e.relaying("--table", "outbox_events", "--lease-ttl", "3s")
	shared := awaitLanes(e, "shared", func(r laneReport) bool {
		held := r.in("held")
		return len(r.Relays) == 2 && held[r.Relays[0].Owner] == 32 && held[r.Relays[1].Owner] == 32 && r.Relays[0].Share == 32
	})
	table := e.ok("", "lanes")
	contains(t, table, "RELAY", "SHARE", "LEASE", "OLDEST", shared.Relays[0].Owner, shared.Relays[1].Name, "32", "all")
	if n := strings.Count(table, "\n"); n != 4 {
		t.Errorf("want a line for each relay, a head and a sum, got:\n%s", table)
	}
	if all := e.ok("", "lanes", "--all"); strings.Count(all, "\n") != 65 || strings.Count(all, " held ") != 64 {
		t.Errorf("--all:\n%s", all)
	}

	killed := fmt.Sprint(one.cmd.Process.Pid)
	one.signal(syscall.SIGKILL)
	e.stop(two) // or it would take over at once
	stopped := func() laneReport {
		return awaitLanes(e, "lapsed", func(r laneReport) bool { return len(r.in("lapsed")) == 2 })
	}
	stopped()
	contains(t, e.ok("", "lanes"), "lapsed", killed)
	e.ok(strings.Join(numbered(30), "\n"), "write", "--jsonl")
	exec1(e, `UPDATE outbox_lanes SET crashes = 2 WHERE lane = 7`)
	queued := stopped()
	sum := 0
	for _, l := range queued.Lanes {
		if sum += l.Backlog; (l.Backlog > 0) != (l.Oldest != nil) {
			t.Errorf("lane %d: %d events and no age", l.Lane, l.Backlog)
		}
	}
	if sum != 30 || queued.Counted != 30 {
		t.Errorf("the lanes have %d events, counted %d, want 30", sum, queued.Counted)
	}
	contains(t, e.ok("", "lanes"), "\nLANE", "2 relays died here", " 30 ")

	two.signal(syscall.SIGCONT)
	after := awaitLanes(e, "taken over and drained", func(r laneReport) bool {
		return len(r.in("held")) == 1 && r.Counted == 0 && r.in("held")[r.Lanes[0].Owner] == 64
	})
	for i, l := range after.Lanes {
		if l.Epoch < shared.Lanes[i].Epoch {
			t.Errorf("lane %d: epoch %d, was %d", i, l.Epoch, shared.Lanes[i].Epoch)
		}
	}
	two.signal(syscall.SIGTERM)
	two.wait()
	contains(t, e.ok("", "lanes"), "no relay")

	for args, code := range map[string]int{"lanes extra": 2, "lanes --table nope": 2, "lanes --table crawl_outbox": 0} {
		if r := e.run("", strings.Fields(args)...); r.code != code {
			t.Errorf("outbox %s: exit code %d, want %d:\n%s", args, r.code, code, r.err)
		}
	}
}

// stop stops a relay between two of its transactions: within one it would keep the lock of a file
// from everybody.
func (e env) stop(relay *process) {
	e.t.Helper()
	for deadline := time.Now().Add(tier.Patience()); ; {
		relay.signal(syscall.SIGSTOP)
		if !e.onFile() || e.lockIsFree() {
			return
		}
		relay.signal(syscall.SIGCONT)
		if time.Now().After(deadline) {
			e.t.Fatal("the relay always has the file's lock")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (e env) lockIsFree() bool {
	db := e.file()
	_, err := db.ExecContext(e.t.Context(), "PRAGMA busy_timeout = 200; BEGIN IMMEDIATE; ROLLBACK")
	return errors.Join(err, db.Close()) == nil
}

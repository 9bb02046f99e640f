package chaos

import (
	"testing"
	"time"

	"github.com/outboxrelay/outbox/outboxtest"
)

// kills is how many a test does: all of them with -long.
func kills(short, all int) int {
	if *long {
		return all
	}
	return short
}

// SIGKILL in a loop while writing and relaying on one file. A program with the library, one with
// plain SQL and two relays are killed at random, each only after it has done something, and started
// again.
func TestSQLiteKills(t *testing.T) {
	t.Parallel()
	inTier(t, "sqlite-kills")
	f := newFile(t, "sqlite-kills", t.TempDir())
	programs := []*player{f.play(roleLibrary), f.play(rolePlain)}
	roles := []string{roleLibrary, rolePlain}
	relays := []*relayProcess{f.watched(), f.watched()}
	struck := 0
	for range kills(8, 100) {
		if i := f.rng.IntN(4); i < 2 {
			eventually(t, "the program has committed something", programs[i].worked)
			f.moment(func() int { return int(f.attempted.Load()) })
			programs[i].kill(t)
			programs[i] = f.play(roles[i])
		} else {
			i -= 2
			eventually(t, "the relay has delivered something", func() bool { return published(relays[i]) > 0 })
			f.moment(f.heard.count)
			relays[i].kill(t)
			relays[i] = f.watched()
		}
		struck++
	}
	for i := range 2 {
		eventually(t, "the last programs and relays work",
			func() bool { return programs[i].worked() && published(relays[i]) > 0 })
	}
	f.finish("sqlite-kills", struck)
}

// A relay is killed when Redis has acknowledged a batch and nothing of the batch is settled in the
// file. Another takes over, and Redis refuses the copies.
func TestSQLiteKilledUnsettled(t *testing.T) {
	t.Parallel()
	inTier(t, "sqlite-killed-unsettled")
	f := newFile(t, "sqlite-killed-unsettled", t.TempDir())
	program := f.play(roleLibrary)
	struck := 0
	for range 2 {
		before := program.did()
		eventually(t, "a backlog", func() bool { return program.did() >= before+100 })
		f.relay([]string{"OUTBOX_FAULT=after-publish:" + itoa(1+f.rng.IntN(4)) + ":kill"},
			"--lease-ttl", killTTL.String()).killed(t)
		unsettled := 0
		for _, r := range f.received() {
			unsettled += one[int](f, `SELECT count(*) FROM outbox_events WHERE id = ? AND status = 'NEW'`, r.ID)
		}
		if unsettled == 0 {
			t.Error("nothing had arrived that was not settled")
		}
		struck += unsettled
		successor := f.watched()
		eventually(t, "another relay delivers", func() bool { return published(successor) > unsettled })
		successor.terminate(t)
	}
	f.relay(nil)
	f.finish("sqlite-killed-unsettled", struck)
}

// moment waits for the moment of a kill: in half of the cases any, in the other half right after
// count has risen, because then a COMMIT or a settle is about to come.
func (f *file) moment(count func() int) {
	if f.rng.IntN(2) == 0 {
		f.pause(20*time.Millisecond, 300*time.Millisecond)
		return
	}
	for before, deadline := count(), time.Now().Add(time.Second); count() == before && time.Now().Before(deadline); {
		time.Sleep(100 * time.Microsecond)
	}
	f.pause(0, 500*time.Microsecond)
}

// A program that writes and relays by itself is killed again and again, beside one that writes with
// plain SQL. Its sink refuses nothing, so what was published and not settled comes again; nothing
// else does.
func TestSQLiteKillsOfOneProcess(t *testing.T) {
	t.Parallel()
	inTier(t, "sqlite-kills-of-one")
	f := newFile(t, "sqlite-kills-of-one", t.TempDir())
	plain := f.play(rolePlain)
	var lives []life
	for range kills(6, 50) {
		whole := f.play(roleWhole)
		number := len(f.players) - 1
		eventually(t, "the program has committed and delivered something",
			func() bool { return whole.worked() && len(f.deliveredBy(number)) > 0 })
		f.moment(func() int { return int(f.attempted.Load()) })
		whole.kill(t)
		lives = append(lives, life{number, f.ids(`SELECT id FROM outbox_events WHERE status = 'NEW'`)})
		if found := one[string](f, `PRAGMA integrity_check`); found != "ok" {
			t.Fatalf("integrity after the kill: %s", found)
		}
	}
	plain.terminate(t)
	f.play(roleRelay)
	lives = append(lives, life{number: len(f.players) - 1})
	f.compare(lives)
	f.finish("sqlite-kills-of-one", len(lives)-1)
}

// life is one of a program that was killed.
type life struct {
	number    int             // among the players
	unsettled map[string]bool // when it had died
}

// deliveredBy is what a player's sink was given, in its order.
func (l *ledger) deliveredBy(player int) (events []told) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.delivered {
		if d.life == player {
			events = append(events, d.told)
		}
	}
	return events
}

// compare waits for everything to be delivered, and looks at what each life delivered: in order,
// once, nothing that had been settled before; and when it died, no more of it was unsettled than
// the batches in flight.
func (f *file) compare(lives []life) {
	t := f.t
	t.Helper()
	eventually(t, "everything is delivered",
		func() bool { return one[int](f, `SELECT count(*) FROM outbox_events WHERE status = 'NEW'`) == 0 })
	written, _ := f.written()
	before := map[string]int{} // in which life an event was delivered last
	f.through = []outboxtest.Received{}
	for i, l := range lives {
		var own []outboxtest.Received
		inFlight := 0
		for _, e := range f.deliveredBy(l.number) {
			arrived := outboxtest.Received{ID: e.ID, Key: e.Key}
			own = append(own, arrived)
			switch last, known := before[e.ID]; {
			case !known:
				f.through = append(f.through, arrived)
			case last != i:
				f.again++
				if !lives[i-1].unsettled[e.ID] {
					t.Errorf("life %d delivered event %s again, which had been settled", i, e.ID)
				}
			}
			if before[e.ID] = i; l.unsettled[e.ID] {
				inFlight++
			}
		}
		if most := wholeRelay.Workers * wholeRelay.BatchRecords; inFlight > most {
			t.Errorf("when life %d ended, %d events that it had delivered were not settled, want %d at most", i, inFlight, most)
		}
		if r := outboxtest.Check(outboxtest.History{Written: written,
			Received: own}); r.Duplicated.Count+r.OutOfOrder.Count+r.Invented.Count > 0 {
			t.Errorf("within life %d: %v", i, r.Err())
		}
	}
}

package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// before names the outbox command of an earlier commit, which `make versions` builds.
const before = "OUTBOX_TEST_BEFORE"

// An upgrade and its way back while eight writers write: relays of an earlier commit and of this
// one serve a database beside each other, before and after its migrations, and after these have
// been taken back.
func TestTwoVersions(t *testing.T) {
	tier.All(t)
	t.Parallel()
	old := os.Getenv(before)
	if old == "" {
		t.Skipf("%s names no earlier outbox: run make versions", before)
	}
	own, err := binary()
	noError(t, err)
	w := &world{url: testenv.Database(t), redis: testenv.RedisServer(t)}
	migrate(t, old, w.url, "up", "--set", "core")
	was := versionOf(t, old, w.url)
	w.pool, err = pgxpool.New(t.Context(), w.url)
	noError(t, err)
	t.Cleanup(w.pool.Close)
	w.subscriber = subscribe(t, w.redis)

	arrived := func(more int) {
		t.Helper()
		w.mu.Lock()
		n := len(w.messages)
		w.mu.Unlock()
		w.wait(t, n+more, 0)
	}
	flags := []string{"--table", "outbox_events", "--lease-ttl", "2s"}
	start := func(path string) *exec.Cmd { return w.relayOf(t, path, nil, flags...) }
	first := start(old)
	through, done := make(chan struct{}), make(chan *history)
	go func() {
		all := writeConcurrently(t, w, roundEvents)
		for writing := true; writing; {
			select {
			case <-through:
				writing = false
			default:
			}
			h := writeConcurrently(t, w, roundEvents)
			maps.Copy(all.committed, h.committed)
			maps.Copy(all.rolledBack, h.rolledBack)
		}
		done <- all
	}()
	arrived(200)
	migrate(t, own, w.url, "up", "--set", "core")
	arrived(200) // by the earlier relay, on the tables of now
	second := start(own)
	w.eventually(t, "both hold lanes", twoHold)
	noError(t, first.Process.Kill())
	arrived(200)
	third := start(own)
	w.eventually(t, "both hold lanes", twoHold)
	noError(t, second.Process.Signal(os.Interrupt))
	noError(t, second.Wait())
	// And back: an earlier relay joins, this one's goes, and so do the migrations.
	start(old)
	w.eventually(t, "both hold lanes", twoHold)
	noError(t, third.Process.Kill())
	if now := versionOf(t, own, w.url); now > was {
		migrate(t, own, w.url, "down", "--yes", "--lose-undelivered", "--set", "core", "--steps", strconv.Itoa(now-was))
	}
	arrived(200)
	close(through)
	h := <-done
	h.check(t, w, w.wait(t, len(h.committed), 3*time.Second))
	t.Logf("core went from version %d to %d and back", was, versionOf(t, own, w.url))
}

// roundEvents are written again and again until the test is through.
const roundEvents = 2000

// twoHold asks whether two relays that are alive hold lanes.
const twoHold = `SELECT count(DISTINCT l.owner) = 2 FROM outbox_lanes l JOIN outbox_relays r USING (table_name, owner)
	WHERE r.expires_at > clock_timestamp()`

func migrate(t *testing.T, path, url string, args ...string) []byte {
	t.Helper()
	out, err := exec.Command(path, append(append([]string{"migrate"}, args...), "--database", url)...).Output()
	if err != nil {
		t.Fatalf("%s migrate %v: %v\n%s", path, args, err, out)
	}
	return out
}

// versionOf is the version of the set core.
func versionOf(t *testing.T, path, url string) int {
	t.Helper()
	var sets struct {
		Items []struct {
			Set     string
			Current int
		}
	}
	out := migrate(t, path, url, "status", "--output", "json")
	noError(t, json.Unmarshal(out, &sets))
	for _, s := range sets.Items {
		if s.Set == "core" {
			return s.Current
		}
	}
	t.Fatal(fmt.Errorf("no set core in %s", out))
	return 0
}

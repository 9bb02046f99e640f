package redispubsub

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/redisscript"
	"github.com/outboxrelay/outbox/internal/test/redistest"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// A copy is refused for a window and at most a period by Redis's clock, whichever sink sends it,
// and then nothing of it is left.
func TestWindowExpires(t *testing.T) {
	t.Parallel()
	const window = 500 * time.Millisecond
	server := testenv.RedisServer(t)
	first, admin := open(t, server, Config{Window: window, Envelope: idEnvelope})
	second := openURL(t, server.URL(), Config{Window: window, Envelope: idEnvelope})
	first.Period, second.Period = 200, 200
	sub := subscribe(t, admin, "c")

	batch := []outbox.Delivery{event(t, "c", 1)}
	before := time.Now()
	if got := first.Publish(t.Context(), batch)[0]; got != (outbox.Result{}) {
		t.Fatalf("answered %+v", got)
	}
	refused := 0
	for {
		got := second.Publish(t.Context(), batch)[0]
		if got == (outbox.Result{}) {
			break
		}
		if got != (outbox.Result{Duplicate: true}) {
			t.Fatalf("answered %+v", got)
		}
		refused++
		time.Sleep(10 * time.Millisecond)
	}
	if passed := time.Since(before); passed < window || refused == 0 {
		t.Errorf("the copy passed after %s and %d refusals, the window is %s", passed, refused, window)
	}
	sub.want("c", ids(batch[0], batch[0])...)
	eventually(t, func() bool { return admin.DBSize(t.Context()).Val() == 0 })
}

// The names of the keys are a contract: operators look for them, a Cluster hashes them, other
// versions share them.
func TestKeys(t *testing.T) {
	sink, admin := open(t, testenv.RedisServer(t), Config{})
	d := event(t, "c", 1)
	d.Lane = 12
	d.ID = [16]byte{0: 1, 15: 2}
	d.Generation = 3
	other := event(t, "c", 1)
	other.Lane = 7
	deliver(t, sink, other, d)
	keys := admin.Keys(t.Context(), "*").Val()
	slices.Sort(keys)
	if len(keys) != 2 || !strings.HasPrefix(keys[0], "outbox:seen:{12}:120000:") ||
		!strings.HasPrefix(keys[1], "outbox:seen:{7}:120000:") {
		t.Fatalf("keys are %q", keys)
	}
	members := admin.SMembers(t.Context(), keys[0]).Val()
	slices.Sort(members)
	// The event id and the hash.
	want := "\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02" + "\x28\xbb\xfa\x3d\xc6\xc1\x84\x31"
	if !slices.Equal(members, []string{want}) {
		t.Errorf("members are %q, want %q", members, want)
	}
	for _, key := range keys {
		ttl := admin.PTTL(t.Context(), key).Val()
		if ttl < 2*time.Minute-time.Second || ttl > 2*time.Minute+redisscript.ShortestPeriod {
			t.Errorf("%s expires in %s, want a window of 2m and at most a period more", key, ttl)
		}
	}
}

// What Redis refuses leaves nothing behind.
func TestNothingHappensOnARefusingServer(t *testing.T) {
	for _, fault := range append(redistest.Faults(), redistest.NoRight("sadd"), redistest.NoRight("srem"),
		redistest.NoRight("pexpireat"), redistest.NoRight("publish"), redistest.NoKeys()) {
		t.Run(fault.Name, func(t *testing.T) {
			t.Parallel()
			server := testenv.RedisServer(t)
			sink, admin := restricted(t, server, Config{Envelope: idEnvelope})
			sub := subscribe(t, admin, "suite:1")
			arrived := redistest.Refused(t, fault, server, admin, sink, "suite:1", true)
			sub.want("suite:1", arrived...)
		})
	}
}

// An event that its channel refused is not remembered: once the user may publish there, it goes
// out.
func TestRefusedIsForgotten(t *testing.T) {
	sink, admin := restricted(t, testenv.RedisServer(t), Config{Envelope: idEnvelope})
	sub := subscribe(t, admin, "later")
	batch := []outbox.Delivery{event(t, "later", 1), event(t, "later", 1)}
	got := sink.Publish(t.Context(), batch)
	sinktest.WantClass(t, got[0].Err, outbox.ClassRetryable, `"later"`)
	do(t, admin, "ACL", "SETUSER", "relay", "&later")
	deliver(t, sink, batch...)
	sub.want("later", ids(batch...)...)
}

// This is why there is a script and not a bare PUBLISH: a replica takes one, tells nobody but its
// own subscribers, and says 0.
func TestReplica(t *testing.T) {
	primary, replica := testenv.RedisServer(t), testenv.RedisServer(t)
	sink, admin := open(t, replica, Config{Envelope: idEnvelope})
	do(t, connectAdmin(t, primary), "CONFIG", "SET", "repl-diskless-sync-delay", "0") // 5 s, waiting for more replicas
	host, port, _ := strings.Cut(primary.Addr(), ":")
	do(t, admin, "REPLICAOF", host, port)
	eventually(t, func() bool {
		return strings.Contains(admin.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	sub := subscribe(t, connectAdmin(t, primary), "c")

	if n, err := admin.Publish(t.Context(), "c", "bare").Result(); n != 0 || err != nil {
		t.Errorf("a bare PUBLISH on a replica answers %d, %v; the sink could be simpler", n, err)
	}
	for _, res := range sink.Publish(t.Context(), []outbox.Delivery{event(t, "c", 1)}) {
		wantUnavailable(t, res, "READONLY")
	}
	sub.want("c") // nothing
}

// A foreign key in the way of one lane stops the whole call, before anything of it is remembered or
// published.
func TestForeignKey(t *testing.T) {
	sink, admin := open(t, testenv.RedisServer(t), Config{Envelope: idEnvelope})
	sub := subscribe(t, admin, "c")
	a, b, c := onLane(t, 1), onLane(t, 2), onLane(t, 2)
	deliver(t, sink, b)
	key := admin.Keys(t.Context(), "*{2}*").Val()[0]
	do(t, admin, "SET", key, "foreign")
	for _, res := range sink.Publish(t.Context(), []outbox.Delivery{a, c}) {
		wantUnavailable(t, res, "WRONGTYPE")
	}
	do(t, admin, "DEL", key)
	deliver(t, sink, a, c)
	sub.want("c", ids(b, a, c)...)
}

// A lane whose set may be read but not written stops the call when other lanes are remembered
// already. They are forgotten again, for nothing of it was published.
func TestForgottenBehindARefusedLane(t *testing.T) {
	sink, admin := restricted(t, testenv.RedisServer(t), Config{Envelope: idEnvelope})
	sub := subscribe(t, admin, "suite:1")
	a, b := onLane(t, 1), onLane(t, 2)
	a.Destination, b.Destination = "suite:1", "suite:1"

	do(t, admin, "ACL", "SETUSER", "relay", "resetkeys", "~outbox:seen:{1}*", "~outbox:seen:{2}", "%R~outbox:seen:{2}:*")
	do(t, admin, "CONFIG", "RESETSTAT")
	for _, res := range sink.Publish(t.Context(), []outbox.Delivery{a, b}) {
		wantUnavailable(t, res, "keys")
	}
	if stats := admin.Info(t.Context(), "commandstats").Val(); !strings.Contains(stats, "cmdstat_sadd:calls=3,") {
		t.Fatalf("want SADD of lane 1 twice, the first to prove it, and the witness's:\n%s", stats)
	}
	do(t, admin, "ACL", "SETUSER", "relay", "resetkeys", "~outbox:seen:*")
	deliver(t, sink, a, b)
	sub.want("suite:1", ids(a, b)...)
}

// The second of two equal deliveries in a batch is a copy of the first, unless that one was
// refused.
func TestTwiceInABatch(t *testing.T) {
	sink, admin := restricted(t, testenv.RedisServer(t), Config{Envelope: idEnvelope})
	sub, later := subscribe(t, admin, "suite:1"), subscribe(t, admin, "later")
	first, refused, behind := event(t, "suite:1", 1), event(t, "later", 1), event(t, "suite:1", 1)
	batch := []outbox.Delivery{first, first, refused, refused, behind, behind}
	for range 2 {
		got := sink.Publish(t.Context(), batch)
		if got[1] != (outbox.Result{Duplicate: true}) {
			t.Errorf("the copy of a published event is answered %+v", got[1])
		}
		for i, res := range got[2:] {
			if held := errors.Is(res.Err, outbox.ErrNotAttempted); res.Err == nil || held != (i >= 2) {
				t.Errorf("delivery %d is answered %+v", i+2, res)
			}
		}
	}
	do(t, admin, "ACL", "SETUSER", "relay", "&later")
	copied := outbox.Result{Duplicate: true}
	want := []outbox.Result{copied, copied, {}, copied, {}, copied}
	if got := sink.Publish(t.Context(), batch); !slices.Equal(got, want) {
		t.Errorf("answered %+v, want %+v", got, want)
	}
	sub.want("suite:1", ids(first, behind)...)
	later.want("later", ids(refused)...)
}

func onLane(t *testing.T, lane int16) outbox.Delivery {
	t.Helper()
	d := event(t, "c", int(lane))
	d.Lane = lane
	return d
}

// A round has at most 1000 deliveries and 4 MiB, and each is one call on a single server.
func TestRounds(t *testing.T) {
	sink, admin := open(t, testenv.RedisServer(t), Config{})
	var batch []outbox.Delivery
	for i := range 2500 {
		batch = append(batch, event(t, "c", i))
	}
	deliver(t, sink, batch...)
	calls := func() int {
		stats := admin.Info(t.Context(), "commandstats").Val()
		return strings.Count(stats, "cmdstat_evalsha:calls=3,")
	}
	if calls() != 1 {
		t.Errorf("want 3 calls for 2500 deliveries:\n%s", admin.Info(t.Context(), "commandstats").Val())
	}
	do(t, admin, "CONFIG", "RESETSTAT")
	batch = nil
	for i := range 9 {
		d := event(t, "c", i)
		d.Payload = []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
		batch = append(batch, d)
	}
	deliver(t, sink, batch...)
	if calls() != 1 {
		t.Errorf("want 3 calls for 9 MiB:\n%s", admin.Info(t.Context(), "commandstats").Val())
	}
}

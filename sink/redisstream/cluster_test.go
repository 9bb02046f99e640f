package redisstream

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/redistest"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// Two nodes with half of the slots each. A batch is spread over both, what is remembered is in the
// slot of its stream, and a slot changes hands without a copy getting through and without a lost
// event.
func TestCluster(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	a, b := testenv.RedisServerWith(t, testenv.RedisConfig{Cluster: true}),
		testenv.RedisServerWith(t, testenv.RedisConfig{Cluster: true})
	cluster := redistest.Join(t, a, b)
	all := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{a.Addr()}})
	t.Cleanup(func() { _ = all.Close() })

	sink := openURL(t, "redis+stream://"+a.Addr()+","+b.Addr()+"?create=true", Config{Envelope: idEnvelope})
	var batch []outbox.Delivery
	for n := range 40 {
		batch = append(batch, event(t, fmt.Sprintf("s%d", n), n), event(t, fmt.Sprintf("{s%d}.more", n), n),
			event(t, fmt.Sprintf("a{s%d", n), n))
	}
	deliver(t, sink, batch...)
	wantCopies(t, sink, batch...)
	for _, d := range batch {
		wantEntries(t, all, d.Destination, d.ID.String())
	}
	for n, admin := range cluster.Admins {
		if sets := len(admin.Keys(t.Context(), "outbox:seen:stream:{*").Val()); sets < 10 {
			t.Errorf("node %d has %d sets", n, sets)
		}
	}
	moving, staying := event(t, "s0", 1000), event(t, "s1", 1001)
	cluster.Moved(t, sink, "s0", true, []outbox.Delivery{batch[0], moving, staying})
	wantEntries(t, all, "s0", ids(batch[0], moving)...)
}

// The calls of a Cluster run side by side, so a key's events for streams of different slots take
// turns: what is behind a refused one is held, wherever it goes, and the event's other streams are
// served.
func TestOrderAcrossSlots(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServerWith(t, testenv.RedisConfig{Cluster: true})
	sink, admin := open(t, server, Config{Envelope: idEnvelope})
	makeStreams(t, admin, "a", "b", "c")
	first := event(t, "a", 1)
	second := event(t, "b", 1)
	refused := event(t, "missing", 1)
	elsewhere := refused
	elsewhere.Destination = "c"
	held, free := event(t, "b", 1), event(t, "b", 2)
	// The refused one is last in line for its key, so a sink that sends all at once would have sent
	// held with it.
	batch := []outbox.Delivery{first, second, refused, elsewhere, held, free, event(t, "a", 1)}
	got := sink.Publish(t.Context(), batch)
	for i, res := range got {
		switch i {
		case 2:
			sinktest.WantClass(t, res.Err, outbox.ClassRetryable)
		case 4, 6:
			if !errors.Is(res.Err, outbox.ErrNotAttempted) {
				t.Errorf("delivery %d, behind the refused one, is answered %+v", i, res)
			}
		default:
			if res != (outbox.Result{}) {
				t.Errorf("delivery %d is answered %+v, want delivered", i, res)
			}
		}
	}
	wantEntries(t, admin, "a", ids(first)...)
	wantEntries(t, admin, "b", ids(free, second)...) // in the first round and the second
	wantEntries(t, admin, "c", ids(elsewhere)...)

	// Many keys that alternate between streams: every entry is there, each key in order over both.
	batch = nil
	for n := range 600 {
		batch = append(batch, event(t, []string{"a", "b", "c"}[n/20%3], n%20))
	}
	deliver(t, sink, batch...)
	wantCopies(t, sink, batch...)
}

// A group that takes nothing holds a key's later events for other groups back.
func TestSlotThatIsDown(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServerWith(t, testenv.RedisConfig{Cluster: true, Args: []string{
		"--cluster-require-full-coverage", "no"}})
	sink, admin := open(t, server, Config{Envelope: idEnvelope})
	makeStreams(t, admin, "a", "b")
	do(t, admin, "CLUSTER", "DELSLOTS", do(t, admin, "CLUSTER", "KEYSLOT", "a"))
	batch := []outbox.Delivery{event(t, "a", 1), event(t, "b", 1), event(t, "b", 2), event(t, "a", 3)}
	got := sink.Publish(t.Context(), batch)
	wantUnavailable(t, got[0], "CLUSTERDOWN")
	wantUnavailable(t, got[3], "CLUSTERDOWN")
	if !errors.Is(got[1].Err, outbox.ErrNotAttempted) || got[2] != (outbox.Result{}) {
		t.Errorf("the others are answered %+v", got[1:3])
	}
	wantEntries(t, admin, "b", ids(batch[2])...)
}

// The key of the memory and the stream share a slot, as Redis itself computes it.
func TestHashTag(t *testing.T) {
	t.Parallel()
	admin := connectAdmin(t, testenv.RedisServerWith(t, testenv.RedisConfig{Cluster: true}))
	c := xadd(Config{})("outbox:seen:", true)
	for _, stream := range []string{
		"orders", "{shop}.orders", "a{b}c{d}", "{{x}}", "a{b", "{", "é", "a b\r\n", "x{y{z}", "}{a}",
	} {
		d := event(t, stream, 7)
		tag, shard, err := c.Place(&d)
		if err != nil {
			t.Errorf("%q: %v", stream, err)
			continue
		}
		key := c.Key(tag, shard)
		if do(t, admin, "CLUSTER", "KEYSLOT", stream) != do(t, admin, "CLUSTER", "KEYSLOT", key) {
			t.Errorf("%q is not in the slot of %q", stream, key)
		}
	}
	for _, stream := range []string{"a}", "{}orders", "}a{b", "{}", ""} {
		d := event(t, stream, 7)
		if _, _, err := c.Place(&d); err == nil {
			t.Errorf("%q: no error", stream)
		}
	}
}

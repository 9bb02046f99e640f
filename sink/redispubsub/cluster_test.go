package redispubsub

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// Two nodes with half of the slots each. A batch is spread over both, messages reach subscribers of either, and a slot
// changes hands without a copy getting through and without a lost event.
func TestCluster(t *testing.T) {
	t.Parallel()
	a, b := testenv.RedisServerWith(t, testenv.RedisConfig{Cluster: true}),
		testenv.RedisServerWith(t, testenv.RedisConfig{Cluster: true})
	adminA, adminB := connectAdmin(t, a), connectAdmin(t, b)
	joinCluster(t, a, b, adminA, adminB)
	sub := subscribe(t, adminA, "c")
	sub.nodes = []*redis.Client{adminA, adminB}

	sink := openURL(t, "redis://"+a.Addr()+","+b.Addr(), Config{Envelope: idEnvelope})
	var batch []outbox.Delivery
	for lane := range outbox.Lanes {
		d := event(t, "c", lane)
		d.Lane = int16(lane)
		batch = append(batch, d)
	}
	deliver(t, sink, batch...)
	sub.wantAnyOrder("c", ids(batch...)...)
	wantCopies(t, sink, batch)
	for name, admin := range map[string]*redis.Client{"first": adminA, "second": adminB} {
		keys := admin.Keys(t.Context(), "*").Val()
		if len(keys) < 10 {
			t.Errorf("the %s node has %d keys", name, len(keys))
		}
		if i := slices.IndexFunc(keys, func(k string) bool { return !strings.HasPrefix(k, "outbox:seen:{") }); i >= 0 {
			t.Errorf("the %s node has a key %q", name, keys[i])
		}
	}

	// Lane 0 moves from the node that has it to the other.
	from, to := adminA, adminB
	key := adminA.Keys(t.Context(), "outbox:seen:{0}:*").Val()
	if len(key) == 0 {
		from, to, key = adminB, adminA, adminB.Keys(t.Context(), "outbox:seen:{0}:*").Val()
	}
	slot := do(t, from, "CLUSTER", "KEYSLOT", key[0])
	fromID, toID := do(t, from, "CLUSTER", "MYID"), do(t, to, "CLUSTER", "MYID")
	do(t, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	do(t, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	moving, staying := event(t, "c", 1000), event(t, "c", 1001)
	moving.Lane, staying.Lane = 0, 1
	again := []outbox.Delivery{batch[0], moving, staying}
	got := sink.Publish(t.Context(), again)
	wantUnavailable(t, got[0], "ASK")
	wantUnavailable(t, got[1], "ASK")
	if got[2] != (outbox.Result{}) {
		t.Errorf("a lane that stays is answered %+v", got[2])
	}
	target := b
	if to == adminA {
		target = a
	}
	host, port, _ := strings.Cut(target.Addr(), ":")
	do(t, from, "MIGRATE", host, port, key[0], 0, 5000)
	for _, admin := range []*redis.Client{to, from} {
		do(t, admin, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	}
	want := []outbox.Result{{Duplicate: true}, {}, {Duplicate: true}}
	eventually(t, func() bool {
		got = sink.Publish(t.Context(), again)
		return got[0].Err == nil && got[1].Err == nil // the client learns the slot's new home from the first MOVED
	})
	if !slices.Equal(got, want) {
		t.Errorf("after the move answered %+v, want %+v", got, want)
	}
	sub.wantAnyOrder("c", ids(moving, staying)...)
}

// joinCluster makes one cluster of two, each of which has all slots so far.
func joinCluster(t *testing.T, a, b *testenv.Redis, adminA, adminB *redis.Client) {
	do(t, adminB, "CLUSTER", "RESET", "HARD")
	do(t, adminA, "CLUSTER", "DELSLOTSRANGE", 8192, 16383)
	do(t, adminB, "CLUSTER", "ADDSLOTSRANGE", 8192, 16383)
	do(t, adminB, "CLUSTER", "SET-CONFIG-EPOCH", 2)
	host, port, _ := strings.Cut(a.Addr(), ":")
	_, bus, _ := strings.Cut(adminA.ClusterNodes(t.Context()).Val(), "@") // "id host:port@bus …"
	bus, _, _ = strings.Cut(strings.Fields(bus)[0], ",")
	do(t, adminB, "CLUSTER", "MEET", host, port, bus)
	for _, admin := range []*redis.Client{adminA, adminB} {
		eventually(t, func() bool {
			info := admin.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:2") &&
				strings.Contains(info, "cluster_slots_ok:16384")
		})
	}
}

// A server that says it is a Cluster is treated as one, even if the URL names one host only.
func TestClusterIsRecognised(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServerWith(t, testenv.RedisConfig{Cluster: true})
	if !isCluster(openURL(t, server.URL(), Config{}).Client()) {
		t.Error("it was taken for a single server")
	}
	if isCluster(openURL(t, testenv.RedisServer(t).URL(), Config{}).Client()) {
		t.Error("a single server was taken for a Cluster")
	}
}

package redispubsub

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/redistest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// Two nodes with half of the slots each. A batch is spread over both, messages reach subscribers of
// either, and a slot changes hands without a copy getting through and without a lost event.
func TestCluster(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	a, b := testenv.RedisServerWith(t, testenv.RedisConfig{Cluster: true}),
		testenv.RedisServerWith(t, testenv.RedisConfig{Cluster: true})
	cluster := redistest.Join(t, a, b)
	sub := subscribe(t, cluster.Admins[0], "c")
	sub.nodes = cluster.Admins[:]

	sink := openURL(t, "redis://"+a.Addr()+","+b.Addr(), Config{Envelope: idEnvelope})
	var batch []outbox.Delivery
	for lane := range outbox.LaneCount {
		d := event(t, "c", lane)
		d.Lane = int16(lane)
		batch = append(batch, d)
	}
	deliver(t, sink, batch...)
	sub.wantAnyOrder("c", ids(batch...)...)
	wantCopies(t, sink, batch...)
	lane0 := ""
	for n, admin := range cluster.Admins {
		keys := admin.Keys(t.Context(), "*").Val()
		if len(keys) < 10 {
			t.Errorf("node %d has %d keys", n, len(keys))
		}
		if i := slices.IndexFunc(keys, func(k string) bool { return !strings.HasPrefix(k, "outbox:seen:{") }); i >= 0 {
			t.Errorf("node %d has a key %q", n, keys[i])
		}
		for _, key := range keys {
			if strings.HasPrefix(key, "outbox:seen:{0}:") {
				lane0 = key
			}
		}
	}
	moving, staying := event(t, "c", 1000), event(t, "c", 1001)
	moving.Lane, staying.Lane = 0, 1
	cluster.Moved(t, sink, lane0, false, []outbox.Delivery{batch[0], moving, staying})
	sub.wantAnyOrder("c", ids(moving, staying)...)
}

// A server that says it is a Cluster is treated as one, even if the URL names one host only.
func TestClusterIsRecognised(t *testing.T) {
	t.Parallel()
	for _, want := range []bool{true, false} {
		server := testenv.RedisServerWith(t, testenv.RedisConfig{Cluster: want})
		if _, got := openURL(t, server.URL(), Config{}).Client().(*redis.ClusterClient); got != want {
			t.Errorf("it is a Cluster: %t, and taken for one: %t", want, got)
		}
	}
}

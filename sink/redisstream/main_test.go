package redisstream

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/redisscript"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/sink"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func openURL(t testing.TB, url string, cfg Config) *redisscript.Publisher {
	t.Helper()
	sink, err := Open(t.Context(), url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sink.Close(); err != nil {
			t.Error(err)
		}
	})
	return sink.p
}

// open returns a sink on the server, and a client for what the sink cannot do.
func open(t testing.TB, server *testenv.Redis, cfg Config) (*redisscript.Publisher, *redis.Client) {
	t.Helper()
	return openURL(t, "redis+stream://"+server.Addr(), cfg), connectAdmin(t, server)
}

func connectAdmin(t testing.TB, server *testenv.Redis) *redis.Client {
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// do runs a command that must succeed.
func do(t testing.TB, client *redis.Client, args ...any) any {
	t.Helper()
	reply, err := client.Do(t.Context(), args...).Result()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// makeStreams makes empty streams as their owner would.
func makeStreams(t testing.TB, admin redis.UniversalClient, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := admin.XGroupCreateMkStream(t.Context(), name, "workers", "$").Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// event returns a delivery of a new event; events of the same key stay in order.
func event(t testing.TB, stream string, key int) outbox.Delivery {
	t.Helper()
	id, err := outbox.NewID()
	if err != nil {
		t.Fatal(err)
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d", key)
	orderKey := int64(h.Sum64())
	return outbox.Delivery{
		Destination: stream,
		Record: &outbox.Record{
			Event: outbox.Event{
				ID: id, Topic: "order.placed", OccurredAt: time.Now(), AggregateType: "Order", AggregateID: fmt.Sprint(key),
				TenantID: "acme", Source: "orders", Payload: []byte(`{"total":1}`),
			},
			OrderKey: orderKey, Keyed: true, Lane: int16(uint64(orderKey) % outbox.Lanes),
		},
	}
}

// idEnvelope makes the event id the message: enough for most tests, and easy to compare.
func idEnvelope(dst []byte, d *outbox.Delivery) []byte { return append(dst, d.ID.String()...) }

func ids(batch ...outbox.Delivery) []string {
	var list []string
	for _, d := range batch {
		list = append(list, d.ID.String())
	}
	return list
}

// wantEntries checks that a stream holds these messages of structured mode and no others.
func wantEntries(t testing.TB, client redis.UniversalClient, stream string, want ...string) {
	t.Helper()
	entries, err := client.XRange(t.Context(), stream, "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, fmt.Sprint(e.Values[eventField]))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("stream %s has %d entries, want %d: %.400q, want %.400q", stream, len(got), len(want), got, want)
	}
}

func deliver(t testing.TB, sink sink.Sink, batch ...outbox.Delivery) {
	t.Helper()
	for i, res := range sink.Publish(t.Context(), batch) {
		if res != (outbox.Result{}) {
			t.Fatalf("delivery %d is answered %+v, want delivered", i, res)
		}
	}
}

func wantCopies(t testing.TB, sink sink.Sink, batch ...outbox.Delivery) {
	t.Helper()
	for i, res := range sink.Publish(t.Context(), batch) {
		if res != (outbox.Result{Duplicate: true}) {
			t.Errorf("delivery %d is answered %+v, want duplicate", i, res)
		}
	}
}

// eventually waits until ok, for what another process does in its own time.
func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testenv.Patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nothing for %s", testenv.Patience)
		}
	}
}

// tail passes on the entries of a stream, from its beginning, until ctx ends.
func tail(ctx context.Context, client redis.UniversalClient, stream string, entry func(redis.XMessage)) {
	for last := "0"; ctx.Err() == nil; {
		read, err := client.XRead(ctx, &redis.XReadArgs{Streams: []string{stream, last}, Count: 1000,
			Block: 100 * time.Millisecond}).Result()
		if err != nil {
			continue // nothing for so long, or the server is away
		}
		for _, e := range read[0].Messages {
			entry(e)
			last = e.ID
		}
	}
}

package redispubsub

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
)

func TestMain(m *testing.M) { testenv.Main(m) }

// open returns a sink on the server, and a client for what the sink cannot do.
func open(t testing.TB, server *testenv.Redis, cfg Config) (*redisscript.Publisher, *redis.Client) {
	t.Helper()
	return openURL(t, server.URL(), cfg), connectAdmin(t, server)
}

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

// event returns a delivery of a new event; events of the same key stay in order.
func event(t testing.TB, channel string, key int) outbox.Delivery {
	t.Helper()
	id, err := outbox.NewID()
	if err != nil {
		t.Fatal(err)
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d", key)
	orderKey := int64(h.Sum64())
	return outbox.Delivery{
		Destination: channel,
		Record: &outbox.Record{
			Event: outbox.Event{
				ID: id, Topic: "order.placed", OccurredAt: time.Now(), AggregateType: "Order", AggregateID: fmt.Sprint(key),
				TenantID: "acme", Source: "orders", Payload: []byte(`{"total":1}`),
			},
			OrderKey: orderKey, Keyed: true, Lane: int16(uint64(orderKey) % outbox.Lanes),
		},
	}
}

// subscription collects the ids that arrive on some channels.
type subscription struct {
	t      testing.TB
	pubsub *redis.PubSub
	nodes  []*redis.Client // where messages may have been published
}

func subscribe(t testing.TB, admin *redis.Client, channels ...string) *subscription {
	t.Helper()
	s := &subscription{t: t, nodes: []*redis.Client{admin}, pubsub: admin.Subscribe(t.Context(), channels...)}
	t.Cleanup(func() { _ = s.pubsub.Close() })
	for _, c := range channels {
		waitSubscribed(t, admin, c)
	}
	return s
}

func waitSubscribed(t testing.TB, admin *redis.Client, channel string) {
	t.Helper()
	eventually(t, func() bool { return admin.PubSubNumSub(t.Context(), channel).Val()[channel] > 0 })
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

// want checks that exactly these messages are next on the channel.
func (s *subscription) want(channel string, messages ...string) {
	s.t.Helper()
	if got := s.next(channel); !slices.Equal(got, messages) {
		s.t.Fatalf("%d messages arrived, want %d: %.400q, want %.400q", len(got), len(messages), got, messages)
	}
}

func (s *subscription) wantAnyOrder(channel string, messages ...string) {
	s.t.Helper()
	slices.Sort(messages)
	if got := slices.Sorted(slices.Values(s.next(channel))); !slices.Equal(got, messages) {
		s.t.Fatalf("%d messages arrived, want %d: %.400q, want %.400q", len(got), len(messages), got, messages)
	}
}

// next returns what has arrived by the time a message published now does. Each node keeps its own messages in order.
func (s *subscription) next(channel string) (messages []string) {
	s.t.Helper()
	const end = "the end"
	for _, node := range s.nodes {
		if err := node.Publish(s.t.Context(), channel, end).Err(); err != nil {
			s.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), testenv.Patience)
	defer cancel()
	for ends := 0; ends < len(s.nodes); {
		m, err := s.pubsub.ReceiveMessage(ctx)
		if err != nil {
			s.t.Fatalf("after %d messages: %v", len(messages), err)
		}
		if m.Payload == end {
			ends++
			continue
		}
		messages = append(messages, m.Payload)
	}
	return messages
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

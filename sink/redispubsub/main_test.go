package redispubsub

import (
	"context"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/internal/sink/redisscript"
	"github.com/outboxrelay/outbox/internal/test/redistest"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var (
	deliver, wantCopies, eventually = sinktest.Deliver, sinktest.WantCopies, sinktest.Eventually
	wantUnavailable, event, ids     = sinktest.WantUnavailable, sinktest.Event, sinktest.IDs
	idEnvelope, do, connectAdmin    = sinktest.IDEnvelope, redistest.Do, redistest.Admin
)

// open returns a sink on the server, and a client for what the sink cannot do.
func open(t testing.TB, server *testenv.Redis, cfg Config) (*redisscript.Publisher, *redis.Client) {
	t.Helper()
	return openURL(t, server.URL(), cfg), connectAdmin(t, server)
}

func openURL(t testing.TB, url string, cfg Config) *redisscript.Publisher {
	t.Helper()
	s, err := Open(t.Context(), url, cfg)
	return sinktest.Closing(t, s, err).p
}

// restricted returns a sink whose user has the rights of the package comment and no others.
func restricted(t testing.TB, server *testenv.Redis, cfg Config) (*redisscript.Publisher, *redis.Client) {
	t.Helper()
	admin := connectAdmin(t, server)
	redistest.Relay(t, admin, rights)
	return openURL(t, "redis://relay:hunter2@"+server.Addr(), cfg), admin
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

// next returns what has arrived by the time a message published now does. Each node keeps its own
// messages in order.
func (s *subscription) next(channel string) (messages []string) {
	s.t.Helper()
	const end = "the end"
	for _, node := range s.nodes {
		if err := node.Publish(s.t.Context(), channel, end).Err(); err != nil {
			s.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), tier.Patience())
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

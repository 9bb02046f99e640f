package redispubsub

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/internal/test/redistest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/outboxtest"
)

// rights are the least a user needs, as the package comment lists them.
var rights = []any{"resetkeys", "~outbox:seen:*", "resetchannels", "&suite:*", "-@all",
	"+evalsha", "+eval", "+time", "+smismember", "+exists", "+pttl", "+sadd", "+srem", "+pexpireat", "+publish", "+ping"}

func TestSinkContract(t *testing.T) {
	for _, tt := range []struct {
		name     string
		cluster  bool
		cfg      Config
		features outboxtest.SinkFeatures
	}{
		{"window", false, Config{}, outboxtest.SinkFeatures{RefusesDuplicates: true}},
		{"window off", false, Config{Window: -1}, outboxtest.SinkFeatures{}},
		{"cluster", true, Config{}, outboxtest.SinkFeatures{RefusesDuplicates: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name != "window" {
				tier.Full(t)
			}
			t.Parallel()
			// One server for all tests of a mode: a cluster takes 2 s until it serves its slots.
			b := &broker{Redis: testenv.RedisServerWith(t, testenv.RedisConfig{Cluster: tt.cluster})}
			b.admin = connectAdmin(t, b.Redis)
			// The sink runs as a user with the least rights, which is also what makes a channel
			// refuse.
			redistest.Relay(t, b.admin, rights)
			if tt.cluster {
				do(t, b.admin, "ACL", "SETUSER", "relay", "+cluster|slots", "+cluster|shards", "+command")
			}
			outboxtest.SinkSuite(t, tt.features, func(t *testing.T) outboxtest.SinkHarness {
				return outboxtest.SinkHarness{
					Sink:     openURL(t, "redis://relay:hunter2@"+b.Addr(), tt.cfg),
					Listen:   b.listen,
					Refusing: "forbidden",
					Stall:    b.stall,
				}
			})
		})
	}
}

type broker struct {
	*testenv.Redis
	admin    *redis.Client
	channels atomic.Int64
}

func (b *broker) listen(t *testing.T) (string, <-chan outboxtest.Arrived) {
	channel := fmt.Sprintf("suite:%d", b.channels.Add(1))
	s := subscribe(t, b.admin, channel)
	// More than any test sends: the forwarder never waits for a test that is over.
	messages := make(chan outboxtest.Arrived, 10000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(messages)
		for {
			m, err := s.pubsub.ReceiveMessage(t.Context())
			if err != nil {
				return // the test is over
			}
			messages <- outboxtest.Arrived{Body: []byte(m.Payload)}
		}
	}()
	t.Cleanup(func() { _ = s.pubsub.Close(); <-done })
	return channel, messages
}

func (b *broker) stall(t *testing.T) func() {
	do(t, b.admin, "CLIENT", "PAUSE", "60000", "WRITE")
	return func() { do(t, b.admin, "CLIENT", "UNPAUSE") }
}

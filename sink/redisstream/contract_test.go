package redisstream

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/outboxtest"
)

// rights are the least a user needs, as the package comment lists them.
var rights = []string{"resetkeys", "~outbox:seen:*", "~suite:*", "resetchannels", "-@all",
	"+evalsha", "+eval", "+time", "+smismember", "+exists", "+pttl", "+sadd", "+srem", "+pexpireat", "+xadd", "+ping"}

func TestSinkContract(t *testing.T) {
	for _, tt := range []struct {
		name, refusing string
		cluster        bool
		cfg            Config
		features       outboxtest.SinkFeatures
	}{
		{"window", "forbidden", false, Config{}, outboxtest.SinkFeatures{RefusesDuplicates: true}},
		{"wrong type", "suite:text", false, Config{}, outboxtest.SinkFeatures{RefusesDuplicates: true}},
		{"window off", "suite:missing", false, Config{Window: -1}, outboxtest.SinkFeatures{}},
		{"cluster", "forbidden", true, Config{}, outboxtest.SinkFeatures{RefusesDuplicates: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name != "window" {
				tier.Full(t)
			}
			t.Parallel()
			// One server for all tests of a mode: a cluster takes 2 s until it serves its slots.
			args := append([]string{"--appendonly", "yes", "--appendfsync", "always", "--user", "relay", "on", ">hunter2"},
				rights...)
			if tt.cluster {
				args = append(args, "+cluster|slots", "+cluster|shards", "+command")
			}
			b := &broker{Redis: testenv.RedisServerWith(t, testenv.RedisConfig{Cluster: tt.cluster, Args: args})}
			b.admin = connectAdmin(t, b.Redis)
			do(t, b.admin, "SET", "suite:text", "not a stream")
			tt.features.Durable, tt.features.Headers = true, attributePrefix
			forbidden := []string{"", "outbox:seen:stream:{1}", "outbox:seen:{1}:120000:1", "outbox:anything"}
			if tt.cluster {
				forbidden = append(forbidden, "a}b", "{}orders")
			}
			outboxtest.SinkSuite(t, tt.features, func(t *testing.T) outboxtest.SinkHarness {
				binary := tt.cfg
				binary.Binary = true
				url := "redis+stream://relay:hunter2@" + b.Addr()
				return outboxtest.SinkHarness{
					Sink: openURL(t, url, tt.cfg), Binary: openURL(t, url, binary),
					Listen: b.listen, Stored: b.stored, Restart: b.restart,
					Refusing: tt.refusing, Forbidden: forbidden, Stall: b.stall,
				}
			})
		})
	}
}

type broker struct {
	*testenv.Redis
	admin   *redis.Client
	streams atomic.Int64
}

func (b *broker) listen(t *testing.T) (string, <-chan outboxtest.Arrived) {
	stream := fmt.Sprintf("suite:%d", b.streams.Add(1))
	makeStreams(t, b.admin, stream)
	// More than any test sends: the forwarder never waits for a test that is over.
	messages := make(chan outboxtest.Arrived, 10000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tail(ctx, b.admin, stream, func(e redis.XMessage) { messages <- arrived(e) })
	}()
	t.Cleanup(func() { cancel(); <-done })
	return stream, messages
}

// arrived reads an entry of either mode.
func arrived(e redis.XMessage) outboxtest.Arrived {
	a := outboxtest.Arrived{Headers: map[string]string{}}
	for name, value := range e.Values {
		if name == eventField || name == dataField {
			a.Body = []byte(fmt.Sprint(value))
		} else {
			a.Headers[name] = fmt.Sprint(value)
		}
	}
	return a
}

func (b *broker) stored(t *testing.T, stream string, n int) (all []outboxtest.Arrived) {
	entries, err := b.admin.XRangeN(t.Context(), stream, "-", "+", int64(n)).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, arrived(e))
	}
	return all
}

func (b *broker) restart(t *testing.T) {
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := b.Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return b.admin.Ping(t.Context()).Err() == nil })
}

func (b *broker) stall(t *testing.T) func() {
	do(t, b.admin, "CLIENT", "PAUSE", "60000", "WRITE")
	return func() { do(t, b.admin, "CLIENT", "UNPAUSE") }
}

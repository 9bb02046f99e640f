package redisstream

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/internal/sink/redisscript"
	"github.com/outboxrelay/outbox/internal/test/redistest"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var (
	deliver, wantCopies, eventually = sinktest.Deliver, sinktest.WantCopies, sinktest.Eventually
	wantUnavailable, event, ids     = sinktest.WantUnavailable, sinktest.Event, sinktest.IDs
	idEnvelope, do, connectAdmin    = sinktest.IDEnvelope, redistest.Do, redistest.Admin
)

func openURL(t testing.TB, url string, cfg Config) *redisscript.Publisher {
	t.Helper()
	s, err := Open(t.Context(), url, cfg)
	return sinktest.Closing(t, s, err).p
}

// open returns a sink on the server, and a client for what the sink cannot do.
func open(t testing.TB, server *testenv.Redis, cfg Config) (*redisscript.Publisher, *redis.Client) {
	t.Helper()
	return openURL(t, "redis+stream://"+server.Addr(), cfg), connectAdmin(t, server)
}

// restricted returns a sink whose user has the rights of the package comment and no others.
func restricted(t testing.TB, server *testenv.Redis, cfg Config) (*redisscript.Publisher, *redis.Client) {
	t.Helper()
	admin := connectAdmin(t, server)
	var all []any
	for _, right := range rights {
		all = append(all, right)
	}
	redistest.Relay(t, admin, all)
	return openURL(t, "redis+stream://relay:hunter2@"+server.Addr(), cfg), admin
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

// entries returns the messages of structured mode that a stream holds.
func entries(t testing.TB, client redis.UniversalClient, stream string) (messages []string) {
	t.Helper()
	all, err := client.XRange(t.Context(), stream, "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		messages = append(messages, fmt.Sprint(e.Values[eventField]))
	}
	return messages
}

// wantEntries checks that a stream holds these messages and no others.
func wantEntries(t testing.TB, client redis.UniversalClient, stream string, want ...string) {
	t.Helper()
	if got := entries(t, client, stream); !slices.Equal(got, want) {
		t.Fatalf("stream %s has %d entries, want %d: %.400q, want %.400q", stream, len(got), len(want), got, want)
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

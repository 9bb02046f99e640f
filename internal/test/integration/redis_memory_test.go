package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/sink"
	"github.com/outboxrelay/outbox/sink/redispubsub"
	"github.com/outboxrelay/outbox/sink/redisstream"
)

// A producer names as destinations the sets in which the sinks of this Redis remember, of now and
// of periods to come. None becomes a stream, and the other sink goes on.
func TestDestinationCannotBeTheMemoryOfASink(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := testenv.RedisServer(t)
	admin := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket()})
	t.Cleanup(func() { _ = admin.Close() })
	for _, prefix := range []string{"", "shop:seen:"} {
		options := sink.Options{Prefix: prefix}
		streams := openSink(t, redisstream.Driver(), "redis+stream://"+server.Addr()+"?create=true", options)
		channels := openSink(t, redispubsub.Driver(), server.URL(), options)
		if prefix == "" {
			prefix = "outbox:seen:"
		}
		var attack []outbox.Delivery
		for _, period := range []int64{120_000, 480_000, 1_920_000, 7_680_000} {
			number := time.Now().UnixMilli() / period
			for lane := range outbox.LaneCount {
				for ahead := range int64(3) {
					for _, part := range []string{"", "stream:"} {
						d := delivered(t, fmt.Sprintf("%s%s{%d}:%d:%d", prefix, part, lane, period, number+ahead), lane)
						attack = append(attack, d)
					}
				}
			}
		}
		for i, r := range streams.Publish(t.Context(), attack) {
			if class, _ := outbox.Classify(r.Err); class != outbox.ClassPermanent {
				t.Fatalf("%s: answered %+v, want permanent", attack[i].Destination, r)
			}
		}
		if keys := admin.Keys(t.Context(), "*").Val(); len(keys) > 0 {
			t.Errorf("prefix %s: the attack made %q", prefix, keys)
		}
		for lane := range outbox.LaneCount {
			if r := channels.Publish(t.Context(), []outbox.Delivery{delivered(t, "orders", lane)})[0]; r.Err != nil {
				t.Errorf("prefix %s: lane %d: %v", prefix, lane, r.Err)
			}
		}
		admin.FlushAll(t.Context())
	}
}

// Where something else has got into a set's place after all, that is not the event's failure: it
// waits, and the cause names the key.
func TestMemoryOfAnotherType(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T, *testenv.Redis) sink.Sink{
		"channels": func(t *testing.T, server *testenv.Redis) sink.Sink {
			return openSink(t, redispubsub.Driver(), server.URL(), sink.Options{})
		},
		"streams": func(t *testing.T, server *testenv.Redis) sink.Sink {
			return openSink(t, redisstream.Driver(), "redis+stream://"+server.Addr()+"?create=true", sink.Options{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.RedisServer(t)
			admin := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket()})
			t.Cleanup(func() { _ = admin.Close() })
			s := open(t, server)
			first := delivered(t, "orders", 7)
			if r := s.Publish(t.Context(), []outbox.Delivery{first})[0]; r.Err != nil {
				t.Fatal(r.Err)
			}
			keys := admin.Keys(t.Context(), "outbox:*").Val()
			if len(keys) != 1 {
				t.Fatalf("the keys are %q", keys)
			}
			// A set of a longer period, where a relay with another window would remember.
			place := keys[0][:strings.Index(keys[0], "}")+1]
			key := fmt.Sprintf("%s:480000:%d", place, time.Now().UnixMilli()/480_000)
			noError(t, admin.Set(t.Context(), key, "text", 0).Err())
			next := delivered(t, "orders", 7)
			for range 4 { // more often than an event is blamed for what fails it alone
				r := s.Publish(t.Context(), []outbox.Delivery{next})[0]
				if class, _ := outbox.Classify(r.Err); class != outbox.ClassUnavailable || !strings.Contains(r.Err.Error(), key) {
					t.Fatalf("answered %+v, want unavailable because of %s", r, key)
				}
			}
			admin.Del(t.Context(), key)
			if r := s.Publish(t.Context(), []outbox.Delivery{next})[0]; r != (outbox.Result{}) {
				t.Errorf("without the key: %+v", r)
			}
		})
	}
}

func openSink(t *testing.T, d sink.Driver, url string, o sink.Options) sink.Sink {
	t.Helper()
	s, err := d.Open(t.Context(), url, o)
	noError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func delivered(t *testing.T, destination string, lane int) outbox.Delivery {
	t.Helper()
	id, err := outbox.NewID()
	noError(t, err)
	return outbox.Delivery{Destination: destination, Record: &outbox.Record{Lane: int16(lane),
		Event: outbox.Event{ID: id, Topic: "order.placed", OccurredAt: time.Now(), Payload: []byte(`{}`)}}}
}

// Package redispubsub publishes events to Redis Pub/Sub channels: the destination is the channel.
//
// # What is guaranteed
//
//   - A delivery that was answered without error was published by a Redis that takes writes. A
//     read-only replica, a server that is out of memory or lacks replicas answers a bare PUBLISH
//     with 0 and no error; here it is an error.
//   - A second copy of a delivery (same origin, event id, destination and generation) within
//     Config.Window of the first is refused, whichever relay sends it: the script remembers and
//     publishes in one step, by Redis's clock. So a batch whose reply was lost is simply sent
//     again. An operator's replay raises the generation and gets through. Two relays with different
//     windows refuse each other's copies for the shorter of the two; changing the window forgets
//     nothing.
//   - An event that Redis does not take (too large for its memory or one of its limits, or for a
//     proxy) fails alone: what else is in its call goes out, and the event fails with the reason. A
//     Redis that takes nothing is no event's failure.
//   - Deliveries of one ordering key go out in the order of the batch, and none after a failed
//     event of its key.
//   - No password reaches an error.
//
// # What is not
//
//   - Pub/Sub reaches whoever is subscribed at that moment. Delivered means that Redis took the
//     message, not that anybody listened.
//   - The memory of what was published is Redis's own. It is lost with FLUSHDB, with a restart of a
//     server that saves nothing, with eviction, and in part with a failover to a replica that
//     lagged; a clock set back forgets too. Copies from around that moment pass.
//   - With the window off nothing is remembered, so copies pass, and a server that takes no writes
//     looks like one that does. A call whose reply was lost is sent again at once.
//   - In a Cluster the order between keys is lost (one script call a lane), and a lane whose slot
//     is being migrated is unavailable until that is done.
//
// # What it costs
//
// About 3.6 µs of Redis's one core for an event with 500 bytes of payload (a message of 830).
// PUBLISH alone is 0.8, and Lua's copy of every message another 1.1. And 80 bytes of its memory for
// a window and at most a period: at 1000 events/s and the default window up to 20 MB. A window of
// an hour costs 1.1 times the time, and the memory of up to 92 minutes. One script call handles at
// most 1000 deliveries and keeps Redis busy for some 5 ms. At 50,000 events/s the sets grow to
// 100,000 members, and freeing one takes 14 ms: set lazyfree-lazy-expire there.
//
// # What it needs
//
// Redis 6.2 or later (tested with 7.0), a single server or a Cluster, and a user with at least
//
//	~outbox:seen:* &the-channels +evalsha +eval +time +smismember +exists +pttl +sadd +srem +pexpireat +publish +ping
//
// and +select for a database other than 0, +cluster|slots +cluster|shards +command for a Cluster.
package redispubsub

import (
	"context"
	"crypto/tls"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/redisscript"
)

// source has the destination as the channel, and the value as the message.
const source = `local send, command = redis.pcall, 'PUBLISH'`

// Config configures a Sink. Zero means the default in parentheses.
type Config struct {
	// Window is how long a copy of a delivery is refused at least (2 min). Negative remembers
	// nothing. It must outlast whatever can lie between two attempts: the relay's PublishTimeout,
	// DatabaseTimeout, LeaseTTL, a restart.
	Window time.Duration
	// Prefix is what the names of the keys begin with ("outbox:seen:"). Relays with different ones
	// know nothing of each other. No braces: the hash tag follows.
	Prefix string
	// Envelope builds the message (outbox.CloudEvent).
	Envelope outbox.Envelope
	// TLS replaces the system's certificate authorities or adds a client certificate, for Open with
	// a rediss:// URL.
	TLS *tls.Config
}

func (c Config) shared() redisscript.Config {
	return redisscript.Config{Name: "Redis", Window: c.Window, Prefix: c.Prefix, TLS: c.TLS}
}

// Sink is an outbox.Sink. It is safe for concurrent use.
type Sink struct{ p *redisscript.Publisher }

// Publish implements outbox.Sink.
func (s *Sink) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	return s.p.Publish(ctx, batch)
}

// Abilities implements outbox.Able.
func (s *Sink) Abilities() outbox.Abilities { return s.p.Abilities() }

// Close closes the client if Open made it. Call it after the last Publish has returned.
func (s *Sink) Close() error { return s.p.Close() }

// New returns a Sink that uses client, which stays the caller's to close. All problems of cfg are
// reported at once.
//
// Whatever client's MaxRetries says, a script call is not sent twice by the client. Its ReadTimeout
// bounds how long a connection stays in use after Publish has given up on it.
func New(client redis.UniversalClient, cfg Config) (*Sink, error) {
	p, err := redisscript.New(client, cfg.shared(), publish(cfg))
	if err != nil {
		return nil, err
	}
	return &Sink{p}, nil
}

// publish is PUBLISH, with a memory for each lane. The lane is the hash tag, so in a Cluster there
// is one call a lane.
func publish(cfg Config) func(prefix string, cluster bool) redisscript.Command {
	return func(prefix string, cluster bool) redisscript.Command {
		var tags [outbox.LaneCount]string
		var keys [outbox.LaneCount]any // boxed once
		for lane := range tags {
			tags[lane] = strconv.Itoa(lane)
			keys[lane] = prefix + "{" + tags[lane] + "}"
		}
		return redisscript.Command{
			Source: source, Target: "channel", Refusal: refusal,
			Append: func(dst []byte, d *outbox.Delivery) []byte { return d.AppendMessage(dst, cfg.Envelope) },
			Place: func(d *outbox.Delivery) (string, int, error) {
				lane := int(uint16(d.Lane) % outbox.LaneCount)
				if !cluster {
					return "", lane, nil
				}
				return tags[lane], lane, nil
			},
			Key: func(_ string, lane int) any { return keys[lane] },
		}
	}
}

// refusal classes the error of one PUBLISH. Every Redis (6.2, 7.0, 7.2) says "channel" when it is
// this channel the user may not use. Anything else (no right to PUBLISH at all, a stale replica) is
// not the event's fault.
func refusal(channel, text string) error {
	err := fmt.Errorf("publish to channel %q: %s", channel, text)
	if strings.Contains(text, "channel") {
		return err
	}
	return outbox.Unavailable(err)
}

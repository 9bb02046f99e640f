// Package redispubsub publishes events to Redis Pub/Sub channels: the destination is the channel.
//
// # What is guaranteed
//
//   - A delivery that was answered without error was published by a Redis that takes writes. A read-only replica, a
//     server that is out of memory or lacks replicas answers a bare PUBLISH with 0 and no error; here it is an error.
//   - A second copy of a delivery (same origin, event id, destination and generation) within Config.Window of the first
//     is refused, whichever relay sends it: the script publish.lua remembers and publishes in one step, by Redis's
//     clock. So a batch whose reply was lost is simply sent again. An operator's replay raises the generation and gets
//     through. Two relays with different windows refuse each other's copies for the shorter of the two; changing the
//     window forgets nothing.
//   - An event that Redis does not take (too large for its memory or one of its limits, or for a proxy) fails alone:
//     what else is in its call goes out, and the event fails with the reason. A Redis that takes nothing is no event's
//     failure.
//   - Deliveries of one ordering key go out in the order of the batch, and none after a failed event of its key.
//   - No password reaches an error.
//
// # What is not
//
//   - Pub/Sub reaches whoever is subscribed at that moment. Delivered means that Redis took the message, not that
//     anybody listened.
//   - The memory of what was published is Redis's own. It is lost with FLUSHDB, with a restart of a server that saves
//     nothing, with eviction, and in part with a failover to a replica that lagged; a clock set back forgets too.
//     Copies from around that moment pass.
//   - With the window off nothing is remembered, so copies pass, and a server that takes no writes looks like one that
//     does. A call whose reply was lost is sent again at once.
//   - In a Cluster the order between keys is lost (one script call a lane), and a lane whose slot is being migrated is
//     unavailable until that is done.
//
// # What it costs
//
// About 4.7 µs of Redis's one core for an event with 500 bytes of payload (a message of 830; PUBLISH alone is 0.9, and
// Lua's hashing of every message another 1.1), and 80 bytes of its memory for a window and at most a period: at 1000
// events/s and the default window up to 20 MB. A window of an hour costs 1.1 times the time, and the memory of up to 92
// minutes. One script call handles at most 1000 deliveries and keeps Redis busy for some 5 ms. At 50,000 events/s the
// sets grow to 100,000 members, and freeing one takes 14 ms: set lazyfree-lazy-expire there.
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
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
)

// Config configures a Sink. Zero means the default in parentheses.
type Config struct {
	// Window is how long a copy of a delivery is refused at least (2 min). Negative remembers nothing. It must outlast
	// whatever can lie between two attempts: the relay's PublishTimeout, DatabaseTimeout, LeaseTTL, a restart.
	Window time.Duration
	// Prefix is what the names of the keys begin with ("outbox:seen:"). Relays with different ones know nothing of each
	// other. No braces: the hash tag follows.
	Prefix string
	// Envelope builds the message (outbox.CloudEvent).
	Envelope outbox.Envelope
	// TLS replaces the system's certificate authorities or adds a client certificate, for Open with a rediss:// URL.
	TLS *tls.Config
}

func (c Config) withDefaults() (Config, error) {
	var problems []error
	if c.Window == 0 {
		c.Window = 2 * time.Minute
	}
	if c.Window > 0 && c.Window < time.Millisecond {
		problems = append(problems, fmt.Errorf("Window is %s, must be at least 1ms (negative is off)", c.Window))
	}
	if c.Prefix == "" {
		c.Prefix = "outbox:seen:"
	}
	if strings.ContainsAny(c.Prefix, "{}") {
		problems = append(problems, fmt.Errorf("Prefix %q contains a brace, which would change the hash tag", c.Prefix))
	}
	if c.Envelope == nil {
		c.Envelope = outbox.CloudEvent
	}
	return c, errors.Join(problems...)
}

// Sink is an outbox.Sink that publishes to Redis channels. It is safe for concurrent use.
type Sink struct {
	client   redis.UniversalClient
	cluster  bool // one call a lane, because a script's keys must share a slot
	owned    bool // Open made the client, so Close closes it
	password secret
	envelope outbox.Envelope

	// Arguments of every call, boxed once.
	window, period any
	keys           [outbox.Lanes]any

	limits limits

	// For use again; a sync.Pool lost them to every second collection (300 KB more a batch of 1000).
	free     chan *round
	inFlight sync.WaitGroup // round trips, of which Publish may have stopped waiting
}

var _ outbox.Sink = (*Sink)(nil)

// New returns a Sink that uses client, which stays the caller's to close. All problems of cfg are reported at once.
//
// Whatever client's MaxRetries says, a script call is not sent twice by the client. Its ReadTimeout bounds how long a
// connection stays in use after Publish has given up on it.
func New(client redis.UniversalClient, cfg Config) (*Sink, error) {
	cfg, err := cfg.withDefaults()
	switch client.(type) {
	case nil:
		err = errors.Join(err, errors.New("client is nil"))
	case *redis.Ring:
		err = errors.Join(err,
			errors.New("client is a Ring: its servers do not pass messages on to each other's subscribers"))
	}
	if cfg.TLS != nil {
		err = errors.Join(err, errors.New("TLS is for Open: the client has its own"))
	}
	if err != nil {
		return nil, fmt.Errorf("configure Redis sink: %w", err)
	}
	return newSink(client, cfg), nil
}

// shortestPeriod is the first of the periods of publish.lua, for all relays of a Redis: one with another would not find
// what the others remember.
const shortestPeriod = 2 * time.Minute

func newSink(client redis.UniversalClient, cfg Config) *Sink {
	_, cluster := client.(*redis.ClusterClient)
	s := &Sink{client: client, cluster: cluster, envelope: cfg.Envelope, free: make(chan *round, keptRounds)}
	s.window, s.period = max(cfg.Window, 0).Milliseconds(), shortestPeriod.Milliseconds()
	s.limits.bytes = maxBytes
	for lane := range s.keys {
		s.keys[lane] = cfg.Prefix + "{" + strconv.Itoa(lane) + "}"
	}
	return s
}

// Ping asks the server (in a Cluster one of them) whether it answers. Errors are of class outbox.ClassUnavailable.
func (s *Sink) Ping(ctx context.Context) error {
	if err := s.client.Ping(ctx).Err(); err != nil {
		return outbox.Unavailable(fmt.Errorf("ping Redis: %w", s.password.hide(err)))
	}
	return nil
}

// Close closes the client if Open made it, and waits for round trips that Publish gave up on. Call it after the last
// Publish has returned.
func (s *Sink) Close() error {
	var err error
	if s.owned {
		err = s.client.Close()
	}
	s.inFlight.Wait()
	if err != nil {
		return fmt.Errorf("close Redis client: %w", err)
	}
	return nil
}

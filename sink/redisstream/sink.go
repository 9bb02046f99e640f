// Package redisstream appends events to Redis Streams by XADD: the destination is the stream.
//
// # What is guaranteed
//
//   - A delivery that was answered without error is an entry of the stream, on a Redis that takes
//     writes.
//   - A second copy of a delivery (same origin, event id, destination and generation) within
//     Config.Window of the first is refused, whichever relay sends it: one script remembers and
//     appends in one step, by Redis's clock. So a batch whose reply was lost is simply sent again.
//     An operator's replay raises the generation and gets through.
//   - An event that Redis does not take fails alone, with its reason: its stream does not exist,
//     its key is of another type, the user may not write there, it is too large. A Redis that takes
//     nothing is no event's failure.
//   - Deliveries of one ordering key are appended in the order of the batch, and none after a
//     failed event of its key, whatever their streams are. The ids of entries are Redis's own, so
//     they are times.
//   - No password reaches an error.
//
// # What is not
//
//   - Entries are as durable as the Redis: appendfsync always keeps all that was answered, everysec
//     loses up to a second, a failover to a replica that lagged loses what had not reached it.
//   - Trimming goes by number or age and asks no consumer group: what is trimmed is gone, read or
//     not.
//   - The memory of what was published is Redis's own. It is lost with FLUSHDB, with a restart of a
//     server that saves nothing, with eviction, and in part with a failover. Copies from around
//     that moment pass.
//   - With the window off nothing is remembered: copies pass, and a call whose reply was lost is
//     sent again at once.
//   - In a Cluster a stream whose slot is being migrated is unavailable until that is done, and the
//     order between streams is kept within a key only.
//
// # The fields of an entry
//
// In structured mode the field event holds the message, as the table's envelope makes it: a
// CloudEvent in JSON. In binary mode the attributes of the CloudEvent are fields ce_id, ce_source,
// ce_type, …, and the field data is the payload. In both modes traceparent and tracestate are
// fields too, for events that have them.
//
// # What it costs
//
// One EVALSHA a 1000 events, in a Cluster one a stream. Beside the entry an event costs 80 bytes of
// Redis's memory for the window and at most a period of 2 minutes. A single server has 64 sets a
// period for all streams together. In a Cluster the sets must be in the slot of their stream: 8
// sets a period and hash tag, about 250 bytes each beside their members. A thousand streams without
// a common tag so take up to 4 MB.
//
// # What it needs
//
// Redis 6.2 or later (tested with 7.0), a single server or a Cluster, and a user with at least
//
//	~outbox:seen:* ~the-streams +evalsha +eval +time +smismember +exists +pttl +sadd +srem +pexpireat +xadd +ping
//
// and +select for a database other than 0, +cluster|slots +cluster|shards +command for a Cluster.
package redisstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/redisscript"
)

// Config configures a Sink. Zero means the default in parentheses.
type Config struct {
	// Window is how long a copy of a delivery is refused at least (2 min). Negative remembers
	// nothing. It must outlast whatever can lie between two attempts: the relay's PublishTimeout,
	// DatabaseTimeout, LeaseTTL, a restart.
	Window time.Duration
	// Prefix is what the names of the keys of the memory begin with ("outbox:seen:"). Relays with
	// different ones know nothing of each other. No braces: the hash tag follows.
	Prefix string
	// Envelope builds the message (outbox.CloudEvent), unless Binary is set.
	Envelope outbox.Envelope
	// Binary sends the attributes of a CloudEvent as fields and the payload as data; a table's own
	// envelope does not matter then.
	Binary bool

	// Watermill sends the fields that watermill-redisstream's DefaultMarshallerUnmarshaller reads:
	// _watermill_message_uuid is the event id, payload the payload, metadata the attributes (ce_…)
	// and the texts of the event's metadata.
	Watermill bool

	// Create makes a stream that does not exist (its events fail).
	Create bool
	// MaxLen is how many entries of a stream stay (all). Not together with MaxAge.
	MaxLen int64
	// MaxAge is how long an entry stays, by Redis's clock (for ever).
	MaxAge time.Duration
	// Exact trims to MaxLen or MaxAge with every entry. Otherwise some more may stay, which is much
	// cheaper.
	Exact bool

	// TLS replaces the system's certificate authorities or adds a client certificate, for Open with
	// a rediss+stream:// URL.
	TLS *tls.Config
}

func (c Config) shared() redisscript.Config {
	return redisscript.Config{Name: "Redis Streams", Window: c.Window, Prefix: c.Prefix, TLS: c.TLS}
}

// check says what is wrong with what is of streams alone.
func (c Config) check() error {
	var problems []error
	if c.MaxLen < 0 {
		problems = append(problems, fmt.Errorf("MaxLen is %d, must be positive (0 keeps all)", c.MaxLen))
	}
	if c.MaxAge < 0 || c.MaxAge > 0 && c.MaxAge < time.Millisecond {
		problems = append(problems, fmt.Errorf("MaxAge is %s, must be at least 1ms (0 keeps all)", c.MaxAge))
	}
	if c.MaxLen > 0 && c.MaxAge > 0 {
		problems = append(problems, errors.New("MaxLen and MaxAge are both set, but XADD trims by one of them"))
	}
	if c.Exact && c.MaxLen == 0 && c.MaxAge == 0 {
		problems = append(problems, errors.New("Exact is set without MaxLen or MaxAge"))
	}
	return errors.Join(problems...)
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
// reported at once. For a Cluster, client must be a *redis.ClusterClient, with MaxRedirects -1:
// where a redirect is followed in the middle of a slot's migration, copies pass.
//
// Whatever client's MaxRetries says, a script call is not sent twice by the client. Its ReadTimeout
// bounds how long a connection stays in use after Publish has given up on it.
func New(client redis.UniversalClient, cfg Config) (*Sink, error) {
	p, err := redisscript.New(client, cfg.shared(), xadd(cfg), cfg.check())
	if err != nil {
		return nil, err
	}
	return &Sink{p}, nil
}

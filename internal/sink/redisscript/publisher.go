// Package redisscript publishes batches through one Lua script on Redis that remembers what it has
// published: the part that the sinks on Redis share. A sink gives the Command that publishes one
// delivery, and where the memory of a delivery is kept.
//
// # What is guaranteed
//
//   - What outbox.Sink asks for, with the order between calls that run side by side
//     (Command.Scattered) too.
//   - A second copy of a delivery within the window is refused in the same step that would publish
//     it.
//   - A call that fails although the server takes others is sent again in parts, until the delivery
//     that is the reason is alone (docs/adr/0005).
//   - No password reaches an error.
//
// # What is not
//
//   - That the memory outlives the server, or an eviction.
package redisscript

import (
	"cmp"
	"context"
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/dedup"
	"github.com/outboxrelay/outbox/internal/sink/rounds"
	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
)

//go:embed script.lua
var common string

// Command is what sinks differ in. All fields but Arguments and Scattered are required.
type Command struct {
	// Source is Lua that defines command and send, see script.lua.
	Source string
	// Arguments follow the deliveries in ARGV.
	Arguments []any
	// Append appends what is the value of a delivery to send.
	Append func(dst []byte, d *outbox.Delivery) []byte
	// Place returns which call a delivery goes into, and under which of the group's lanes, from 0
	// to outbox.LaneCount-1, it is remembered. An error is the delivery's answer. On a single
	// server there is one group; in a Cluster a group is what shares a slot.
	Place func(d *outbox.Delivery) (group string, lane int, err error)
	// Scattered says that deliveries of one ordering key may be of several groups.
	Scattered bool
	// Key returns the name of the key of a lane, a string.
	Key func(group string, lane int) any
	// Target is what a destination is called in errors: "channel".
	Target string
	// Refusal classes what Redis says of one delivery.
	Refusal Refusal
}

// Refusal makes an error with its class of the text with which Redis refuses a delivery.
type Refusal func(destination, text string) error

// Config is what the Configs of the sinks have in common. Zero means the default in parentheses.
type Config struct {
	Name   string        // of the sink, in errors
	Window time.Duration // (2 min), negative remembers nothing
	Prefix string        // ("outbox:seen:")
	TLS    *tls.Config
}

func (c Config) withDefaults() (Config, error) {
	var problems []error
	c.Window = cmp.Or(c.Window, dedup.DefaultWindow)
	if c.Window > 0 && c.Window < time.Millisecond {
		problems = append(problems, fmt.Errorf("Window is %s, must be at least 1ms (negative is off)", c.Window))
	}
	c.Prefix = cmp.Or(c.Prefix, own+"seen:")
	if strings.ContainsAny(c.Prefix, "{}") {
		problems = append(problems, fmt.Errorf("Prefix %q contains a brace, which would change the hash tag", c.Prefix))
	}
	return c, errors.Join(problems...)
}

// own is what the names of all that this project keeps in a Redis begin with, whichever sink keeps
// it.
const own = "outbox:"

// ShortestPeriod is the first of the periods of script.lua, for all relays of a Redis: one with
// another would not find what the others remember.
const ShortestPeriod = 2 * time.Minute

// Publisher publishes by a Command. It is safe for concurrent use.
type Publisher struct {
	// Arguments of every call, in milliseconds, boxed once. They are changed by nobody but tests,
	// before the first call.
	Window, Period any
	// Bytes is how large a call may be.
	Bytes rounds.Limit

	client   redis.UniversalClient
	command  Command
	prefix   string // of all keys, see reserved
	source   string
	script   *redis.Script
	owned    bool // Close closes the client
	password string

	// For use again; a sync.Pool lost them to every second collection (300 KB more a batch of
	// 1000).
	free     chan *round
	strikes  strikes
	inFlight sync.WaitGroup // round trips, of which Publish may have stopped waiting
}

// Open connects to a server and returns a Publisher that Close closes. Problems are what the sink
// itself has found wrong; all are reported at once. Commands makes the Command for names with a
// prefix, on a Cluster or not.
func Open(
	ctx context.Context, s Server, cfg Config, commands func(prefix string, cluster bool) Command, problems ...error,
) (*Publisher, error) {
	cfg, err := cfg.withDefaults()
	if err := errors.Join(append(problems, err, s.UseTLS(cfg.TLS))...); err != nil {
		return nil, fmt.Errorf("configure %s sink: %w", cfg.Name, err)
	}
	client, err := s.Connect(ctx)
	if err != nil {
		return nil, err
	}
	p := newPublisher(client, cfg, commands)
	p.owned, p.password = true, s.Options.Password
	return p, nil
}

// New returns a Publisher that uses client, which stays the caller's to close. All problems are
// reported at once.
//
// Whatever client's MaxRetries says, a script call is not sent twice by the client. Its ReadTimeout
// bounds how long a connection stays in use after Publish has given up on it.
func New(
	client redis.UniversalClient, cfg Config, commands func(prefix string, cluster bool) Command, problems ...error,
) (*Publisher, error) {
	cfg, err := cfg.withDefaults()
	problems = append(problems, err)
	switch client.(type) {
	case nil:
		problems = append(problems, errors.New("client is nil"))
	case *redis.Ring:
		problems = append(problems, errors.New("client is a Ring: a destination, those who listen to it and what is "+
			"remembered of it must share a server"))
	}
	if cfg.TLS != nil {
		problems = append(problems, errors.New("TLS is for Open: the client has its own"))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("configure %s sink: %w", cfg.Name, err)
	}
	return newPublisher(client, cfg, commands), nil
}

func newPublisher(
	client redis.UniversalClient, cfg Config, commands func(prefix string, cluster bool) Command,
) *Publisher {
	_, cluster := client.(*redis.ClusterClient)
	command := commands(cfg.Prefix, cluster)
	source := command.Source + "\n" + common
	p := &Publisher{client: client, command: command, prefix: cfg.Prefix, source: source,
		script: redis.NewScript(source), free: make(chan *round, keptRounds)}
	p.Window, p.Period = max(cfg.Window, 0).Milliseconds(), ShortestPeriod.Milliseconds()
	p.Bytes.Least, p.Bytes.Most = minLimit, MaxBytes
	return p
}

// hide replaces an error that quotes the password.
func (s *Publisher) hide(err error) error { return sinkurl.Hide(err, s.password) }

// Client is the one that New was given.
func (s *Publisher) Client() redis.UniversalClient { return s.client }

// Abilities implements outbox.Able.
func (s *Publisher) Abilities() outbox.Abilities {
	return outbox.Abilities{Ping: s.ping, Weaknesses: s.weaknesses}
}

// weaknesses asks the server (in a Cluster one of them) what it does without room, and whether it
// is a replica. INFO tells it where a hosted server forbids CONFIG.
func (s *Publisher) weaknesses(ctx context.Context) (weak []outbox.Weakness, err error) {
	info, err := s.client.InfoMap(ctx, "memory", "replication").Result()
	if err != nil {
		return nil, outbox.Unavailable(fmt.Errorf("ask Redis about itself: %w", s.hide(err)))
	}
	if policy := info["Memory"]["maxmemory_policy"]; policy != "noeviction" && info["Memory"]["maxmemory"] != "0" {
		weak = append(weak, outbox.Weakness{
			Says: "out of memory it evicts keys (maxmemory-policy " + policy + "): streams, or what is remembered of " +
				"ids, and then copies pass",
			Remedy: "CONFIG SET maxmemory-policy noeviction, and enough maxmemory: out of it, relays wait"})
	}
	if info["Replication"]["role"] == "slave" {
		weak = append(weak, outbox.Weakness{Says: "it is a replica, which takes no messages",
			Remedy: "name the primary in the sink's URL"})
	}
	return weak, nil
}

// ping asks the server (in a Cluster one of them) whether it answers. Errors are of class
// outbox.ClassUnavailable.
func (s *Publisher) ping(ctx context.Context) error {
	if err := s.client.Ping(ctx).Err(); err != nil {
		return outbox.Unavailable(fmt.Errorf("ping Redis: %w", s.hide(err)))
	}
	return nil
}

// Close closes the client if it is its own, and waits for round trips that Publish gave up on. Call
// it after the last Publish has returned.
func (s *Publisher) Close() error {
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

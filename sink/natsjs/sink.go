// Package natsjs publishes events to streams of NATS JetStream: the destination is the subject.
//
// # What is guaranteed
//
//   - A delivery that was answered without error is in a stream: the stream acknowledged it. How
//     safe it is there is the server's setting, see below.
//   - A second copy of a delivery (same origin, event id, destination and generation) within the
//     duplicate window of the stream is refused by the stream, whichever relay sends it: the header
//     Nats-Msg-Id names the delivery. An operator's replay raises the generation and gets through.
//     The event id itself is the header ce-id.
//   - Deliveries of one ordering key go out in the order of the batch, and none after a failed
//     event of its key. An event is sent when the one before it of its key was acknowledged;
//     different keys are not waited for. A stream can refuse one message and take the next (a queue
//     that is full, an election that has just ended), so nothing less keeps the order
//     (docs/adr/0026).
//   - A message whose acknowledgement does not come (connection lost, time over) is an error of
//     class outbox.ClassUnavailable. It is not sent again but by the next Publish.
//   - A subject without a stream fails its own events, with the reason and what to do. Nothing is
//     created unless Config.Create says so.
//   - What no stream can have is refused before it is sent, for good: a subject with a wildcard, a
//     space or an empty token, one that NATS keeps for itself (it begins with $ or is an inbox), a
//     message larger than the server takes.
//   - No password reaches an error.
//
// # What is not
//
//   - A copy that comes after the window is a second message. The window is the stream's own
//     (duplicate_window, 2 minutes by default) and counts for the whole stream. It must outlast
//     whatever can lie between two attempts: the relay's PublishTimeout, DatabaseTimeout, LeaseTTL,
//     a restart. A stream that is deleted and made again has forgotten.
//   - A server acknowledges before it has synced to disk, unless its sync_interval is always.
//     Without that, what it acknowledged in the last two minutes can be lost with the machine's
//     power; a killed process loses nothing. A stream of three replicas acknowledges when two have
//     it.
//   - Order across keys.
//   - Expected sequences (Nats-Expected-Last-Subject-Sequence) are not used. They fence one writer
//     of a subject, and a subject has as many writers as keys and relays: each would refuse the
//     others.
//
// # What it costs
//
// A batch of many keys is one pipeline, as fast as the client's own. A key by itself takes a round
// trip an event: 0.25 of that over loopback, 0.52 with 10 keys (docs/reference/sinks.md).
//
// # What it needs
//
// NATS with JetStream (tested with 2.15), streams for the subjects, and a user who may publish to
// the subjects and subscribe to _INBOX.>. To tell a missing stream from one without a leader it
// should be able to publish to $JS.API.STREAM.NAMES, for Config.Create to $JS.API.STREAM.CREATE.*.
package natsjs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/dedup"
)

// Config configures a Sink. Zero means the default in parentheses.
type Config struct {
	// Envelope builds the message (outbox.CloudEvent).
	Envelope outbox.Envelope
	// Binary sends a CloudEvent in binary mode: its attributes are headers, the message is the
	// payload. Envelope, and that of a table, do not matter then. A subscriber hears the payload
	// alone.
	Binary bool
	// Watermill sends what watermill-nats's NATSMarshaler reads: the message is the payload; event
	// id, attributes (ce_…) and texts of the metadata are headers. The Envelope does not matter
	// then.
	Watermill bool
	// Window is the duplicate window of the stream that Create makes (2 min). Streams that are
	// there have their own. Negative sends no Nats-Msg-Id, so that no copy is refused.
	Window time.Duration
	// Create is a stream that Open makes if there is none of its name (none is made).
	Create Stream
	// TLS replaces the system's certificate authorities or adds a client certificate, for Open with
	// a tls:// URL.
	TLS *tls.Config
}

// Stream is a stream to be made: with files, without limits.
type Stream struct {
	Name     string
	Subjects []string // with wildcards, if you like: "orders.>"
	Replicas int      // (1)
}

func (c Config) withDefaults() (Config, error) {
	if c.Window == 0 {
		c.Window = dedup.DefaultWindow
	}
	var problems []error
	if c.Window > 0 && c.Window < 100*time.Millisecond {
		problems = append(problems,
			fmt.Errorf("Window is %s, must be at least 100ms as NATS has it (negative is off)", c.Window))
	}
	return c, errors.Join(append(problems, c.Create.check())...)
}

func (s Stream) check() error {
	switch {
	case s.Name == "" && len(s.Subjects) == 0 && s.Replicas == 0:
		return nil
	case s.Name == "":
		return errors.New("Create lacks Name: it names the stream of Subjects and Replicas")
	case strings.ContainsAny(s.Name, " \t\r\n\f.*>/\\"):
		return fmt.Errorf("Create.Name %q has a character that no stream's name may have: . * > / \\ or a space", s.Name)
	case len(s.Subjects) == 0:
		return errors.New("Create lacks Subjects: name those of the stream, such as orders.>")
	case slices.Contains(s.Subjects, ""):
		return errors.New("Create.Subjects has an empty one")
	case s.Replicas < 0 || s.Replicas > 5:
		return fmt.Errorf("Create.Replicas is %d, must be 1 to 5", s.Replicas)
	}
	return nil
}

// Sink is an outbox.Sink that publishes to JetStream. It is safe for concurrent use.
type Sink struct {
	cfg    Config
	target *target // where Open connects; nil: the connection is somebody else's

	dialling chan struct{} // held by who connects
	mu       sync.Mutex
	link     *link // the latest
	closed   bool

	inFlight sync.WaitGroup // publications, of which Publish may have stopped waiting
}

var _ outbox.Sink = (*Sink)(nil)

// New returns a Sink that uses conn, which stays the caller's to close. All problems of cfg are
// reported at once.
//
// conn must not keep what is published while it is disconnected, for it would go out later, behind
// what was published since: its options need nats.ReconnectBufSize(-1), or nats.NoReconnect().
// nats.MaxReconnects(-1) and nats.IgnoreAuthErrorAbort() keep it from giving up for good. Its error
// handler is called as before, after the Sink's. A user who may not subscribe to the inbox makes
// the Sink unavailable for good, as a closed connection does.
func New(conn *nats.Conn, cfg Config) (*Sink, error) {
	cfg, err := cfg.withDefaults()
	switch {
	case conn == nil:
		err = errors.Join(err, errors.New("conn is nil"))
	case conn.Opts.AllowReconnect && conn.Opts.ReconnectBufSize >= 0:
		err = errors.Join(err, errors.New("conn keeps what is published while it is disconnected: "+
			"connect with nats.ReconnectBufSize(-1)"))
	}
	if cfg.TLS != nil {
		err = errors.Join(err, errors.New("TLS is for Open: conn has its own"))
	}
	if cfg.Create.Name != "" {
		err = errors.Join(err, errors.New("Create is for Open: make the stream with conn"))
	}
	if err != nil {
		return nil, fmt.Errorf("configure NATS sink: %w", err)
	}
	s := &Sink{cfg: cfg, dialling: make(chan struct{}, 1)}
	if s.link, err = newLink(conn); err != nil {
		return nil, fmt.Errorf("configure NATS sink: %w", err)
	}
	before := conn.ErrorHandler()
	conn.SetErrorHandler(func(c *nats.Conn, sub *nats.Subscription, err error) {
		s.link.refused(err)
		if before != nil {
			before(c, sub, err)
		}
	})
	return s, nil
}

const pingTimeout = 5 * time.Second

// Abilities implements outbox.Able.
func (s *Sink) Abilities() outbox.Abilities { return outbox.Abilities{Ping: s.ping} }

// ping asks the server whether it answers, and connects if need be. That a stream takes messages is
// not asked. Errors are of class outbox.ClassUnavailable.
func (s *Sink) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout) // the client wants a deadline
	defer cancel()
	l, err := s.connected(ctx)
	if err != nil {
		return err
	}
	if err := l.conn.FlushWithContext(ctx); err != nil {
		return outbox.Unavailable(fmt.Errorf("ping NATS: %w", err))
	}
	return nil
}

// Close closes the connection if Open made it, and waits for what Publish gave up on. Call it after
// the last Publish has returned.
func (s *Sink) Close() error {
	s.mu.Lock()
	s.closed = true
	l := s.link
	s.mu.Unlock()
	if s.target != nil {
		l.conn.Close()
	}
	s.inFlight.Wait()
	return nil
}

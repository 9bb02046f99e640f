package sink

import (
	"context"
	"log/slog"
	"time"

	"github.com/outboxrelay/outbox"
)

// Driver describes how the sinks of some URL schemes are opened. Schemes, Example and Open are
// required; what a sink cannot do is left nil. A URL that the functions are given begins with one
// of the schemes and a colon.
type Driver struct {
	// Schemes are what its URLs begin with, without the colon: "redis", "rediss".
	Schemes []string
	// Example shows on one line how its URLs look: "redis://user:password@host:6379/0, rediss://
	// for TLS".
	Example string
	// Variables are environment variables in which platforms offer such a URL: "REDIS_URL". None of
	// them is read. Where no sink is set, the error names the one that is there.
	Variables []string
	// System is what OpenTelemetry calls its servers: "rabbitmq" ("" is the first scheme, up to a
	// +).
	System string
	// InProcess says that nobody but this process hears what is published: publisher and subscriber
	// must both be in it.
	InProcess bool

	// Open connects. An error is of class outbox.ClassUnavailable exactly if waiting may cure it: a
	// server that is down or starting, and not a wrong password. No error shows a password.
	Open func(ctx context.Context, url string, o Options) (Sink, error)
	// Check says what is wrong with a URL, without connecting and without showing a password. Nil
	// finds nothing wrong.
	Check func(url string) error
	// Files opens the files that a URL names, such as certificates, and says what is wrong with
	// them, without connecting and without showing a secret. It is called for URLs that Check finds
	// right. Nil: a URL names none, or Check reads them.
	Files func(url string) error
	// Mask names the server for logs and people: no user, no password, no options. Nil shows all
	// but user, password and options.
	Mask func(url string) string
	// Plaintext returns the hosts of other machines that are reached without TLS. Nil has none.
	Plaintext func(url string) []string
	// Encrypted returns the addresses, host:port, where connections begin with TLS. Nil has none.
	Encrypted func(url string) []string
	// Hint names the remedy for an error of its sinks where the error's own text cannot know it; ""
	// for one that is not its own.
	Hint func(err error) string

	// Subscribe returns what hears the sinks of this URL. It does not connect: that is Run's. Nil
	// where nobody can listen.
	Subscribe func(url string, o Options) (Subscriber, error)
	// Tail follows channels for a person, those with a * as patterns, until ctx ends or t.Message
	// returns an error, which it returns as it is. It fails if it cannot connect; a connection that
	// breaks later is made again. Nil where nobody can listen.
	Tail func(ctx context.Context, url string, channels []string, t Tail) error
}

// Options are what a program says of a sink beside its URL. Zero means the sink's own default.
type Options struct {
	// Window is how long a copy of a delivery is refused, in a sink that can (2 min). Negative
	// remembers nothing.
	Window time.Duration
	// Prefix is what the names begin with under which the sink remembers deliveries, in one that
	// has such names.
	Prefix string
	Logger *slog.Logger // (slog.Default)
}

// Sink is an outbox.Sink with a connection. It is safe for concurrent use. Its Publish returns as
// soon as ctx ends; what that leaves under way may still be published. Errors of its Ping are of
// class outbox.ClassUnavailable.
type Sink interface {
	outbox.Able
	// Close closes the connection, unless the caller gave it, and waits for what is under way. It
	// is called after the last Publish has returned.
	Close() error
}

// Subscriber is an outbox.Subscriber with a connection of its own.
type Subscriber interface {
	outbox.Subscriber
	// Run keeps the connection until ctx ends.
	Run(ctx context.Context) error
	// State tells how the connection is doing.
	State() State
}

// State is how a Subscriber is doing.
type State struct {
	Up         bool
	Channels   int    // that somebody listens to
	Reconnects uint64 // connections after the first
	Err        error  // why it is down, or why a channel is refused; nil while all is well. No password is in it.
}

// Tail is told what happens while channels are followed. All three are required.
type Tail struct {
	Subscribed func(channels []string)
	Lost       func(err error) // the connection; what is published until Subscribed is called again is missed
	Message    func(channel, payload string) error
}

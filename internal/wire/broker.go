package wire

import (
	"context"
	"log/slog"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/sink/memory"
	"github.com/outboxrelay/outbox/sink/redispubsub"
)

// broker is what the relay publishes to and the gateway hears it from.
type broker interface {
	// name is for people; no password is in it.
	name() string
	// attr is name for the log.
	attr() slog.Attr
	// sink connects. An error may be one that waiting cures.
	sink(ctx context.Context) (brokerSink, error)
	// live does not connect: that is its Run's.
	live(log *slog.Logger) (brokerLive, error)
}

// brokerSink is a Sink that can be asked whether it works. Close waits for what is under way.
type brokerSink interface {
	outbox.Sink
	Ping(ctx context.Context) error
	Close() error
}

// brokerLive is a Live that keeps its connection until Run's ctx ends, and tells how that goes.
type brokerLive interface {
	outbox.Subscriber
	Run(ctx context.Context) error
	State() liveState
}

// liveState is how a brokerLive is doing.
type liveState struct {
	up         bool
	channels   int // that somebody listens to
	reconnects uint64
	err        error // why it is down, or refuses a channel
}

func openBroker(cfg config.Config) (broker, error) {
	if !cfg.Serve.Memory {
		return redisBroker{cfg}, nil
	}
	return memoryBroker{memory.New(memory.Config{Window: window(cfg)})}, nil
}

// redisBroker is Redis Pub/Sub.
type redisBroker struct{ cfg config.Config }

func (b redisBroker) name() string { return "Redis " + config.MaskRedis(b.cfg.Redis) }

func (b redisBroker) attr() slog.Attr { return slog.String("redis", config.MaskRedis(b.cfg.Redis)) }

func (b redisBroker) sink(ctx context.Context) (brokerSink, error) {
	s, err := redispubsub.Open(ctx, b.cfg.Redis, redispubsub.Config{Window: window(b.cfg), Prefix: b.cfg.DedupPrefix})
	if err == nil {
		return s, nil
	}
	if class, _ := outbox.Classify(err); class != outbox.ClassUnavailable {
		return nil, &config.Error{Problems: []string{err.Error()}} // the URL itself
	}
	return nil, err
}

func (b redisBroker) live(log *slog.Logger) (brokerLive, error) {
	l, err := redispubsub.OpenListener(b.cfg.Redis, redispubsub.ListenerConfig{Logger: log})
	if err != nil {
		return nil, &config.Error{Problems: []string{err.Error()}} // the URL itself
	}
	return redisLive{l}, nil
}

// window is the sink's duplicate window: the setting's "not at all" is 0, which is the sink's default.
func window(cfg config.Config) time.Duration {
	if cfg.DedupWindow == 0 {
		return -1
	}
	return cfg.DedupWindow
}

type redisLive struct{ *redispubsub.Listener }

func (l redisLive) State() liveState {
	s := l.Stats()
	return liveState{up: s.Up, channels: s.Channels, reconnects: s.Reconnects, err: s.LastError}
}

// memoryBroker is one hub for the relay and the gateway of a process.
type memoryBroker struct{ hub *memory.Hub }

func (b memoryBroker) name() string { return "memory" }

func (b memoryBroker) attr() slog.Attr { return slog.Bool("memory", true) }

func (b memoryBroker) sink(context.Context) (brokerSink, error) { return b.hub, nil }

func (b memoryBroker) live(*slog.Logger) (brokerLive, error) { return memoryLive{b.hub}, nil }

type memoryLive struct{ *memory.Hub }

// Run has nothing to do: there is no connection.
func (l memoryLive) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (l memoryLive) State() liveState { return liveState{up: true, channels: l.Channels()} }

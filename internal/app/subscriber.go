package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/sink"
)

// errNoSink says that a gateway hears nothing.
var errNoSink = errors.New("no sink is set: give --sink or set OUTBOX_SINK")

// noSubscriber stands for the subscriber of a gateway without sinks.
type noSubscriber struct{}

func (noSubscriber) Subscribe(context.Context, string, outbox.Listener) (acknowledged bool, stop func()) {
	return false, func() {}
}

func (noSubscriber) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (noSubscriber) State() sink.State { return sink.State{Err: errNoSink} }

// subscriber returns what the gateway hears. That is the sink that the events of runs go to, and
// beside it that of outbox_events, if that is another one and can be listened to.
func (a *api) subscriber() (sink.Subscriber, slog.Attr, error) {
	if len(a.cfg.Sink) == 0 {
		a.log.Warn("streams of runs are read from the database, and streams of topics receive nothing", "error", errNoSink)
		return noSubscriber{}, slog.Group("sink"), nil
	}
	runs, err := a.cfg.StreamSink()
	if err != nil {
		return nil, slog.Attr{}, err
	}
	heard, err := runs.Driver.Subscribe(runs.URL, a.sinkOptions())
	if err != nil {
		return nil, slog.Attr{}, err
	}
	attr := slog.Group("sink", slog.String(runs.Name, runs.Masked()))
	topics, err := a.cfg.TopicSink()
	if err != nil || topics.Name == runs.Name {
		return heard, attr, nil // without a sink for topics there are none: this process has no relay for them
	}
	isRun := a.cfg.ReservedChannels()
	if topics.Driver.Subscribe == nil || isRun == nil {
		a.log.Warn("streams of topics receive nothing of outbox_events: its sink cannot be listened to", "sink", topics.Name)
		return heard, attr, nil
	}
	second, err := topics.Driver.Subscribe(topics.URL, a.sinkOptions())
	if err != nil {
		return nil, slog.Attr{}, err
	}
	attr = slog.Group("sink", slog.String(runs.Name, runs.Masked()), slog.String(topics.Name, topics.Masked()))
	return twoSubscribers{runs: heard, topics: second, isRun: isRun}, attr, nil
}

// twoSubscribers hears runs at one sink and topics at another.
type twoSubscribers struct {
	runs, topics sink.Subscriber
	isRun        func(channel string) bool
}

func (s twoSubscribers) Subscribe(
	ctx context.Context, channel string, l outbox.Listener,
) (acknowledged bool, stop func()) {
	if s.isRun(channel) {
		return s.runs.Subscribe(ctx, channel, l)
	}
	return s.topics.Subscribe(ctx, channel, l)
}

func (s twoSubscribers) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.runs.Run(ctx) })
	group.Go(func() error { return s.topics.Run(ctx) })
	return group.Wait()
}

// State is up while both are.
func (s twoSubscribers) State() sink.State {
	one, other := s.runs.State(), s.topics.State()
	return sink.State{Up: one.Up && other.Up, Channels: one.Channels + other.Channels,
		Reconnects: one.Reconnects + other.Reconnects, Err: cmp.Or(one.Err, other.Err)}
}

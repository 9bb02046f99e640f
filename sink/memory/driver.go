package memory

import (
	"context"
	"errors"
	"sync"

	"github.com/outboxrelay/outbox/sink"
)

// Driver opens the one Hub of this process, by the URL "memory:". What one Driver returns as sinks
// and as subscribers is the same Hub, made with the options of whoever comes first. After it was
// closed, the next one who comes gets a new one.
func Driver() sink.Driver {
	p := new(process)
	return sink.Driver{
		Schemes:   []string{"memory"},
		Example:   "memory: for the streams of the same process and nobody else",
		InProcess: true,
		Open: func(_ context.Context, url string, o sink.Options) (sink.Sink, error) {
			if err := checkURL(url); err != nil {
				return nil, err
			}
			return p.open(o), nil
		},
		Check: checkURL,
		Mask:  func(string) string { return "memory:" },
		Subscribe: func(url string, o sink.Options) (sink.Subscriber, error) {
			if err := checkURL(url); err != nil {
				return nil, err
			}
			return subscriber{p.open(o)}, nil
		},
	}
}

func checkURL(url string) error {
	if url != "memory:" {
		return errors.New("the URL is memory: and no more: there is one such sink in a process")
	}
	return nil
}

// process holds the Hub of a Driver.
type process struct {
	mu  sync.Mutex
	hub *Hub // nil: nobody has opened it
}

func (p *process) open(o sink.Options) *Hub {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hub == nil || p.hub.isClosed() {
		p.hub = New(Config{Window: o.Window})
	}
	return p.hub
}

// subscriber is a Hub as who listens sees it.
type subscriber struct{ *Hub }

// Run has nothing to do: there is no connection.
func (s subscriber) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// State is up for as long as there is a process.
func (s subscriber) State() sink.State { return sink.State{Up: true, Channels: s.heard()} }

package gateway

import (
	"context"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/crawl"
	"github.com/outboxrelay/outbox/stream"
)

// Log returns the log of a store's runs as a stream.Hub reads it: each event as the CloudEvent that the relay publishes of it, byte for byte.
func Log(store crawl.Store) stream.Log { return runLog{store} }

type runLog struct{ store crawl.Store }

func (l runLog) Page(ctx context.Context, tenant string, run uuid.UUID, after int64, limit int) ([]stream.Message, error) {
	var events []crawl.Event
	var err error
	aside(func() { events, err = l.store.ListEvents(ctx, tenant, run, after, limit) })
	if err != nil {
		return nil, err
	}
	size := 0
	for i := range events {
		size += len(events[i].Payload) + envelopeSize
	}
	// One block for the page: its messages are sent and dropped together.
	block, messages := make([]byte, 0, size), make([]stream.Message, len(events))
	for i := range events {
		e := &events[i]
		d := e.Delivery()
		begin := len(block)
		block = outbox.CloudEvent(block, &d)
		event := block[begin:len(block):len(block)]
		data := len(event) - 1 - len(e.Payload) // the payload comes last, before the closing brace
		messages[i] = stream.Message{Seq: e.Seq, Type: e.Type, Event: event, Payload: event[data : len(event)-1]}
	}
	return messages, nil
}

// envelopeSize is about what CloudEvent adds to a run's payload.
const envelopeSize = 360

func (l runLog) Tops(ctx context.Context, tenant string, runs []uuid.UUID) (tops map[uuid.UUID]int64, err error) {
	aside(func() { tops, err = l.store.LastSeqs(ctx, tenant, runs) })
	return tops, err
}

// aside calls fn on a goroutine of its own and waits for it. A goroutine's stack grows with the deepest call and keeps that size: a stream's would be 16 KB for as
// long as it is open, because it asked the database something at its beginning (measured; half of that with this).
func aside(fn func()) {
	var panicked any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		fn()
	}()
	<-done
	if panicked != nil {
		panic(panicked)
	}
}

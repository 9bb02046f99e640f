package gateway

import (
	"context"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/stream"
)

// Log returns the log of a store's runs as a stream.Hub reads it: each event as the CloudEvent that
// the relay publishes of it, byte for byte. It reads at most so many pages at once, and at least
// one: what else needs the store's connections is not to wait behind history.
func Log(store crawl.Store, pages int) stream.Log {
	return runLog{store: store, pages: make(chan struct{}, max(1, pages))}
}

type runLog struct {
	store crawl.Store
	pages chan struct{} // holds one for each page that is being read
}

// Page gives up waiting for its turn when ctx ends, but not reading, which only ctx's deadline
// bounds. A cancelled query costs its connection, and clients leave in the middle of pages all the
// time.
func (l runLog) Page(
	ctx context.Context, tenant string, run uuid.UUID, after int64, limit int,
) ([]stream.Message, error) {
	select {
	case l.pages <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.pages }()
	return l.News(ctx, tenant, run, after, limit)
}

// News reads at once.
func (l runLog) News(
	ctx context.Context, tenant string, run uuid.UUID, after int64, limit int,
) (_ []stream.Message, err error) {
	reading := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		reading, cancel = context.WithDeadline(reading, deadline)
		defer cancel()
	}
	var events []crawl.Event
	aside(func() { events, err = l.store.ListEvents(reading, tenant, run, after, limit) })
	if err != nil {
		return nil, err
	}
	return messages(events), nil
}

// blockSize is up to where the messages of a page share one allocation, in bytes.
const blockSize = 256 << 10

// messages shares one block between all messages, which are mostly sent and dropped together. Not a
// large one: a hub keeps the last messages of a page, and with any of them its whole block.
func messages(events []crawl.Event) []stream.Message {
	size := 0
	for i := range events {
		size += len(events[i].Payload) + envelopeSize
	}
	var block []byte
	if size <= blockSize {
		block = make([]byte, 0, size)
	}
	list := make([]stream.Message, len(events))
	for i := range events {
		e := &events[i]
		d := e.Delivery()
		if size > blockSize {
			block = make([]byte, 0, len(e.Payload)+envelopeSize)
		}
		begin := len(block)
		block = outbox.CloudEvent(block, &d)
		event := block[begin:len(block):len(block)]
		data := len(event) - 1 - len(e.Payload) // the payload comes last, before the closing brace
		list[i] = stream.Message{Seq: e.Seq, Type: e.Type, Event: event, Payload: event[data : len(event)-1]}
	}
	return list
}

// envelopeSize is about what CloudEvent adds to a run's payload.
const envelopeSize = 360

func (l runLog) Tops(ctx context.Context, tenant string, runs []uuid.UUID) (tops map[uuid.UUID]int64, err error) {
	aside(func() { tops, err = l.store.LastSeqs(ctx, tenant, runs) })
	return tops, err
}

func (l runLog) Ended(ctx context.Context, tenant string, runs []uuid.UUID) (ends map[uuid.UUID]int64, err error) {
	aside(func() { ends, err = l.store.EndedRuns(ctx, tenant, runs) })
	return ends, err
}

// aside calls fn on a goroutine of its own and waits for it. A goroutine's stack grows with the
// deepest call and keeps that size. A stream's would be 16 KB for as long as it is open, because it
// asked the database something at its beginning (measured; half of that with this).
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

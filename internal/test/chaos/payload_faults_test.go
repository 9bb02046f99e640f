package chaos

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/outboxtest"
)

var payloadFaults = []fault{
	// The others must not wait for it; 1 GB of text takes 2 to 170 s, in which its server's DROP
	// DATABASE waits too.
	{name: "payload-poison", heavy: true, postgres: own, maxAge: time.Minute, strike: poison},
	// And two quotes.
	{name: "payload-1-mib", load: load{payload: outbox.DefaultMaxPayload - 2, perSecond: 12, keys: 10}, strike: largest},
	{name: "sink-panics", strike: sinkPanics},
}

// poison writes rows that cannot be delivered between those that can. They become dead letters.
func poison(w *world) int {
	w.exec("ALTER TABLE outbox_events DISABLE TRIGGER outbox_events_refuse") // as in a table from before it
	w.underway(0)
	for _, row := range []string{
		`'e', '{}', '{"not": "a list"}'`,
		`'e', '{}', '["fine", ""]'`,
		`'e', '{}', '[1, 2]'`,
		`'', '{}', NULL`,
		`'e', (SELECT jsonb_agg('1e131071'::numeric) FROM generate_series(1, 8200)), NULL`, // 1 GB as text
	} {
		w.arrive(50)
		var id string
		err := w.pool.QueryRow(w.t.Context(), `INSERT INTO outbox_events (occurred_at, source_bc, aggregate_id, event_topic, payload, destination_topics)
			VALUES (now(), 'chaos', gen_random_uuid()::text, `+row+`) RETURNING id::text`).Scan(&id)
		w.must(err)
		w.note(outboxtest.Written{ID: id, Outcome: outboxtest.Acknowledged, At: time.Now()})
		w.dead++
	}
	w.eventually("all are dead letters with a reason",
		`SELECT count(*) = 5 FROM job_dlq WHERE error_reason IN ('DeserializationFailed', 'HandlerMissing')`)
	w.arrive(50)
	return w.number(`SELECT count(*) FROM job_dlq`)
}

func largest(w *world) int {
	w.underway(60)
	return w.number(`SELECT count(*) FROM outbox_events WHERE octet_length(payload::text) = $1`, outbox.DefaultMaxPayload)
}

// panicky is a sink with a defect: it panics at some events.
type panicky struct {
	outbox.Sink
	panics  atomic.Int64
	refuses func(uuid.UUID) bool
}

func (s *panicky) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	for i := range batch {
		if s.refuses(batch[i].ID) {
			s.panics.Add(1)
			panic("a defect")
		}
	}
	return s.Sink.Publish(ctx, batch)
}

// sinkPanics has a sink panic at some events. They become dead letters; those that share a batch
// with them arrive once.
func sinkPanics(w *world) int {
	sink := w.panickyRelay(func(id uuid.UUID) bool { return id[15] == 7 }) // one in 256
	w.produce()
	w.arrive(2000)
	w.end()
	w.eventually("everything is delivered or dead",
		`SELECT count(*) = 0 FROM outbox_events WHERE status IN ('NEW', 'FAILED')`)
	w.dead = w.number(`SELECT count(*) FROM outbox_events WHERE status = 'DEAD' AND right(id::text, 2) = '07'`)
	return int(sink.panics.Load())
}

package grouptest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox/group"
	"github.com/outboxrelay/outbox/relay"
)

// secondReader starts a relay and a second group beside a group that reads the table.
func secondReader(t *testing.T, h Harness) {
	if !h.Layout.KeepsState() {
		return // a log has many readers
	}
	open := func(name string) *group.Group[*sql.Tx] {
		g := h.group(t, h.quick(name))
		group.Handle(g, "order.placed", record)
		return g
	}
	// A sink of the group's name has pending deliveries, which are not the group's either.
	for n, table := range []string{h.Layout.Table, "crawl_outbox"} {
		h.Exec(t, "INSERT INTO outbox_deliveries (outbox_table, sink, lane, event_id, destinations, event_topic, payload, "+
			"written_at) VALUES (?1, 'billing', 0, ?2, '[\"x\"]', 'order.placed', '{\"n\":1}', ?3)", table,
			fmt.Sprintf("01890000-0000-7000-8000-00000000000%d", n), time.Now())
	}
	run(t, open("billing"))
	run(t, open("billing"))
	h.write(t, "order.placed", "first", 0)
	until(t, "the group's first effect", func() bool { return h.count(t, "effects") == 1 })
	var published atomic.Int32
	sink := outbox.SinkFunc(func(context.Context, outbox.Delivery) error { published.Add(1); return nil })
	sinks, err := relay.New(h.DB, sink,
		relay.Config{Tables: []relay.Table{{Layout: h.Layout}}, Logger: h.quick("").Relay.Logger})
	if err != nil {
		t.Fatal(err)
	}
	for reader, refused := range map[string]interface{ Run(context.Context) error }{
		"sinks": sinks, "group:audit": open("audit"),
	} {
		h.write(t, "order.placed", reader, upTo(50)...)
		other, ok := errors.AsType[*outbox.ReaderError](refused.Run(t.Context()))
		want := outbox.ReaderError{Table: h.Layout.Table, Reader: reader, Current: "group:billing"}
		if !ok || *other != want {
			t.Errorf("%s ended with %v, want %v", reader, other, &want)
		}
	}
	until(t, "101 effects", func() bool { return h.count(t, "effects") == 101 })
	if n := h.count(t, "outbox_deliveries WHERE status = 'pending'"); n != 2 {
		t.Errorf("%d deliveries of a sink are pending, want 2", n)
	}
	if n := h.count(t, "(SELECT DISTINCT key, n FROM effects) one"); n != 101 || published.Load() != 0 {
		t.Errorf("%d events had their effect and %d were published", n, published.Load())
	}
}

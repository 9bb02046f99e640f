package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/store/postgres"
)

var producerFaults = []fault{
	{name: "commit-reply-lost-ignoring", postgres: own, strike: commitReplyLost(false)},
	{name: "commit-reply-lost-refusing", postgres: own, strike: commitReplyLost(true)},
}

// commitReplyLost cuts producers' connections while they commit: the reply is lost, or now and then
// the request. They know no more than that, and write the same events again, with the same ids,
// until they have an answer.
func commitReplyLost(refusing bool) func(*world) int {
	return func(w *world) int {
		writer, err := postgres.NewWriter(outbox.WriterConfig{Table: w.table, Source: "chaos", RefuseDuplicates: refusing})
		w.must(err)
		w.relay(nil)
		w.relay(nil)
		var struck atomic.Int64
		var all sync.WaitGroup
		for n := range 3 {
			p := &stubborn{world: w, writer: writer, proxy: newProxy(w.t, w.pg.Addr()), key: fmt.Sprint("k", n)}
			choose := w.rng.Uint64()
			all.Go(func() {
				for i := range 40 {
					p.write(w.t, &struck, int(choose>>(i%32))%4)
				}
			})
		}
		all.Wait()
		return int(struck.Load())
	}
}

// stubborn is a producer that is the only one to write its key, behind a proxy of its own.
type stubborn struct {
	*world
	writer  *postgres.Writer
	proxy   *proxy
	key     string
	version int64
}

// write writes a few events until it is known that they are committed. Of four fates, two lose the
// reply and one the request.
func (p *stubborn) write(t *testing.T, struck *atomic.Int64, fate int) {
	events := make([]outbox.Event, 1+fate%2)
	for i := range events {
		e, err := outbox.NewEvent("order.changed", i)
		if err != nil {
			t.Error(err)
			return
		}
		e.AggregateType, e.AggregateID = "Order", p.key
		events[i] = e
	}
	p.version += int64(len(events))
	err := p.attempt(t, events, map[int]string{1: "downstream", 2: "downstream", 3: "upstream"}[fate])
	p.proxy.heal(t)
	if err != nil {
		// What the producer cannot know, the test can.
		eventually(t, "the session that was cut ends", func() bool {
			return p.number(`SELECT count(*) FROM pg_stat_activity WHERE application_name = $1`, p.key) == 0
		})
		if p.number(`SELECT count(*) FROM `+p.table+` WHERE id = $1`, events[0].ID) == 1 {
			struck.Add(1)
		}
		err = p.attempt(t, events, "")
	}
	if err != nil && !errors.Is(err, outbox.ErrDuplicateEvent) { // which says that the first attempt had committed
		t.Errorf("write again: %v", err)
		return
	}
	p.record(p.key, p.version, events, outboxtest.Acknowledged)
}

// attempt is one transaction on a connection of its own, cut at its COMMIT in one direction.
func (p *stubborn) attempt(t *testing.T, events []outbox.Event, direction string) error {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, "postgres://postgres@"+p.proxy.Listen+"/postgres?sslmode=disable&application_name="+
		p.key)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	// May be repeated.
	const change = `INSERT INTO aggregates AS a VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET version = greatest(a.version, $2)`
	if _, err := tx.Exec(ctx, change, p.key, p.version); err != nil {
		return err
	}
	if err := p.writer.Write(ctx, tx, events...); err != nil {
		return err
	}
	if direction != "" {
		p.proxy.add(t, "limit_data", direction, "bytes", 0)
	}
	return tx.Commit(ctx)
}

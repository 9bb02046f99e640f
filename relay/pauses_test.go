package relay

import (
	"context"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/late"
)

// A relay reports a pause, and its end, within a second, but not while something is in flight that
// it began before: a batch, or an event whose answer is still to come.
func TestRelayReportsPausesOnceNothingIsInFlight(t *testing.T) {
	t.Parallel()
	const takes = 20 * time.Second
	for name, publish := range map[string]func(context.Context, []outbox.Delivery) []outbox.Result{
		"a batch": func(context.Context, []outbox.Delivery) []outbox.Result { time.Sleep(takes); return nil },
		"an answer": func(context.Context, []outbox.Delivery) []outbox.Result {
			answer := make(chan error, 1)
			time.AfterFunc(takes, func() { answer <- nil })
			return []outbox.Result{{Err: outbox.Postponed(&late.Answer{C: answer}, time.Millisecond)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &memory{publishHook: publish}
			inBubble(t, m, Config{PublishTimeout: time.Minute}, func(t *testing.T, _ *tableRelay) {
				reports := func(paused bool) {
					t.Helper()
					m.locked(func() {
						if m.obeys.Table != paused {
							t.Errorf("the relay reports %+v, want paused %t", m.obeys, paused)
						}
					})
				}
				m.add("a")
				pass(time.Second)
				m.locked(func() { m.paused.Table = true })
				pass(takes - 2*time.Second)
				reports(false)
				pass(3 * time.Second)
				reports(true)
				m.locked(func() { m.paused.Table, m.publishHook = false, nil })
				pass(time.Second)
				reports(false)
				m.add("b")
				pass(time.Second)
				m.locked(func() { m.paused.Table = true })
				pass(time.Second)
				reports(true)
			})
		})
	}
}

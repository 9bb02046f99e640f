package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// keyed adds n events of a key, in lane 0.
func (m *memory) keyed(key int64, n int) {
	m.locked(func() {
		for range n {
			m.records = append(m.records, &outbox.Record{Event: outbox.Event{ID: uuid.New(), Topic: fmt.Sprint(key)},
				Position: int64(len(m.records)), OrderKey: key, Keyed: true})
		}
	})
}

// A row whose outcome the database refuses keeps its own key waiting and nothing else, and its
// event is not published a second time.
func TestRelayGoesOnBesideARefusedOutcome(t *testing.T) {
	refused := true
	m := &memory{refuses: func(r *outbox.Record) bool { return refused && r.OrderKey == 1 }}
	m.keyed(1, 3)
	m.keyed(2, 5)
	m.add("without a key")
	inBubble(t, m, Config{BatchRecords: 2}, func(t *testing.T, r *tableRelay) {
		pass(time.Minute)
		m.locked(func() {
			if got := len(m.records); got != 3 {
				t.Errorf("%d records are left, want the 3 of the key that waits", got)
			}
			if n := count(m.published, "1"); n != 2 {
				t.Errorf("%d events of the refused key were published, want the 2 of the batch in which it was refused", n)
			}
			refused = false
		})
		pass(2 * maxUnsettledRetry)
		m.locked(func() {
			if len(m.records) != 0 || count(m.published, "1") != 3 || count(m.published, "2") != 5 {
				t.Errorf("%d records are left, published %v", len(m.records), m.published)
			}
		})
		if ready, why := ready(r); !ready {
			t.Errorf("the relay is not ready: %s", why)
		}
	})
}

func count(list []string, what string) (n int) {
	for _, s := range list {
		if s == what {
			n++
		}
	}
	return n
}

// A key of a million events whose head cannot be settled is not read again and again in front of
// all others.
func TestClaimLeavesOutWhatWaits(t *testing.T) {
	m := &memory{refuses: func(r *outbox.Record) bool { return r.OrderKey == 1 }}
	m.keyed(1, 100)
	m.keyed(2, 5)
	inBubble(t, m, Config{BatchRecords: 2}, func(t *testing.T, _ *tableRelay) {
		pass(10 * time.Second)
		m.locked(func() {
			if n := count(m.published, "2"); n != 5 {
				t.Errorf("%d of 5 events behind a key that waits were published", n)
			}
			if last := m.limits[len(m.limits)-1]; !slices.Equal(last.WithoutKeys, []int64{1}) || len(last.WithoutEvents) != 0 {
				t.Errorf("the last claim leaves out %v and %v, want key 1", last.WithoutKeys, last.WithoutEvents)
			}
		})
	})
}

// If nothing at all can be settled, publishing ends: each event would be sent and never marked.
func TestRelayStopsClaimingWhenNothingIsSettled(t *testing.T) {
	m := &memory{refuses: func(*outbox.Record) bool { return true }}
	for range 100 {
		m.add("a")
	}
	inBubble(t, m, Config{BatchRecords: 2}, func(t *testing.T, r *tableRelay) {
		pass(time.Minute)
		m.locked(func() {
			if n := len(m.published); n < unsettledBatches*2 || n > unsettledBatches*2+unsettledProbe {
				t.Errorf("%d events were published, want %d batches of 2 and what was claimed with the last of them", n,
					unsettledBatches)
			}
		})
		if ready, _ := ready(r); ready {
			t.Error("the relay says that it is ready")
		}
	})
}

// Of a table of which the database records nothing a worker publishes one batch at most, and the
// relay says why. When settles are taken again all goes on, and nothing is published twice.
func TestWorkersStopWhileNothingIsRecorded(t *testing.T) {
	denied := true
	m := &memory{settleErr: func(int) error {
		if denied {
			return &outbox.RefusedError{Err: errors.New("UPDATE is not granted: grant it"), Whole: true}
		}
		return nil
	}}
	for range 3 {
		for lane := range int16(8) {
			m.fill([]int16{lane}, 10)
		}
	}
	events := len(m.records)
	inBubble(t, m, Config{BatchRecords: 4, Workers: 2}, func(t *testing.T, r *tableRelay) {
		pass(2 * time.Second)
		m.locked(func() {
			if n := len(m.published); n == 0 || n > 2*4 {
				t.Errorf("%d events were published, want a batch of 4 for each of 2 workers at most", n)
			}
		})
		if ready, why := ready(r); ready || !strings.Contains(why, "UPDATE is not granted: grant it") {
			t.Errorf("ready %t: %q", ready, why)
		}
		pass(time.Hour)
		m.locked(func() {
			if n := len(m.published); n > 2*4 {
				t.Errorf("%d events were published in an hour", n)
			}
			denied = false
		})
		pass(5 * time.Second)
		if ready, why := ready(r); !ready {
			t.Errorf("not ready: %s", why)
		}
		pass(time.Minute)
		m.locked(func() {
			if len(m.records) > 0 || len(m.published) != events {
				t.Errorf("%d records are left, %d of %d events were published", len(m.records), len(m.published), events)
			}
		})
	})
}

// The database was away for hours, and has forgotten the last settles: its records come again, and
// are settled and not published again.
func TestRelayRemembersWhatTheDatabaseForgot(t *testing.T) {
	m := &memory{}
	var forgotten []*outbox.Record
	inBubble(t, m, Config{}, func(t *testing.T, _ *tableRelay) {
		m.add("a", "b", "c")
		m.locked(func() { forgotten = slices.Clone(m.records) })
		pass(time.Second)
		m.locked(func() {
			if len(m.settled) != 3 {
				t.Fatalf("%d records are settled, want 3", len(m.settled))
			}
			away := errors.New("connection refused")
			m.claimErr = func(outbox.ClaimLimit) error { return away }
			m.leaseErr = func() error { return away }
		})
		pass(3 * time.Hour)
		m.locked(func() {
			m.records, m.claimErr, m.leaseErr = append(m.records, forgotten...), nil, nil
		})
		m.add("d")
		pass(5 * time.Second)
		m.locked(func() {
			if len(m.records) != 0 || !slices.Equal(m.published, []string{"a", "b", "c", "d"}) {
				t.Errorf("%d records are left, published %v, want each once", len(m.records), m.published)
			}
		})
		// It is the database's time that counts: what an operator sets back by hand later is
		// published again.
		pass(3 * takenTime)
		m.locked(func() { m.records = append(m.records, forgotten[0]) })
		pass(time.Second)
		m.locked(func() {
			if count(m.published, "a") != 2 {
				t.Error("an event that was put back three minutes later was not published")
			}
		})
	})
}

// A replay is another delivery, and so is another destination.
func TestTakenTellsDeliveriesApart(t *testing.T) {
	rec := &outbox.Record{Event: outbox.Event{ID: uuid.New()}}
	again := &outbox.Record{Event: outbox.Event{ID: rec.ID}, Generation: 1}
	sent := outbox.Delivery{Record: rec, Destination: "a"}
	var r taken
	r.published(
		[]outbox.Delivery{sent, {Record: again, Destination: "b"}},
		[]outbox.Result{{}, {Err: errors.New("refused")}},
	)
	for _, tt := range []struct {
		d    outbox.Delivery
		want bool
	}{{sent, true}, {outbox.Delivery{Record: rec, Destination: "b"}, false},
		{outbox.Delivery{Record: again, Destination: "a"}, false},
		{outbox.Delivery{Record: again, Destination: "b"}, false}} {
		if got := r.knows(&tt.d); got != tt.want {
			t.Errorf("generation %d at %s: %v, want %v", tt.d.Generation, tt.d.Destination, got, tt.want)
		}
	}
	batch, owner, struck := r.strike([]outbox.Delivery{sent, {Record: rec, Destination: "b"}}, []int{0, 0})
	if struck != 1 || len(batch) != 1 || batch[0].Destination != "b" || len(owner) != 1 ||
		!slices.Equal(rec.DeliveredTo, []string{"a"}) {
		t.Errorf("%d struck, left %v of %v, delivered to %v", struck, batch, owner, rec.DeliveredTo)
	}
}

// A server with a time limit of its own for statements is asked for less, down to what it can do,
// and for more again later.
func TestClaimAsksForLessAfterATimeout(t *testing.T) {
	const most = 300
	m := &memory{}
	m.claimErr = func(limit outbox.ClaimLimit) error {
		if limit.Records > most {
			return fmt.Errorf("canceling statement due to statement timeout: %w", context.DeadlineExceeded)
		}
		return nil
	}
	for range 4000 {
		m.add("a")
	}
	inBubble(t, m, Config{}, func(t *testing.T, _ *tableRelay) {
		pass(20 * time.Second)
		m.locked(func() {
			if len(m.records) != 0 {
				t.Errorf("%d of 4000 records are left", len(m.records))
			}
			m.claimErr = nil
		})
	})
}

// A worker that waits for its database holds no turn: neither one that publishes nor one that wants
// to be alone waits for it.
func TestTurnRestsWhileSettling(t *testing.T) {
	b := new(breaker)
	first := b.enter(false)
	b.yield(first)
	alone := b.enter(true)
	if alone.wait > 0 {
		t.Fatal("a turn that rests keeps another from being alone")
	}
	if b.resume(first) {
		t.Error("a turn goes on while another is alone")
	}
	b.yield(alone)
	if !b.resume(first) {
		t.Error("a turn does not go on although nobody publishes")
	}
	if b.resume(alone) {
		t.Error("a turn is alone beside another")
	}
	b.leave(first)
	b.leave(alone)
	if next := b.enter(true); next.wait > 0 {
		t.Error("turns are left over")
	}
}

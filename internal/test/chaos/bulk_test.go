package chaos

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/outboxrelay/outbox/outboxtest"
)

// bulk is many events, written by one statement. They are counted as they arrive and not kept: to
// compare them takes a byte an event. Event n, from 1, has key n modulo keys, so the one before it
// in its key is n - keys.
type bulk struct {
	size, keys int

	arrived                          []bool // by n
	received, duplicated, disordered int
}

const bulkID = "b0000000-0000-7000-8000-"

// bulk writes size events of so many keys. The subscriber counts them.
func (w *world) bulk(size, keys int) *bulk {
	w.t.Helper()
	b := &bulk{size: size, keys: keys, arrived: make([]bool, size+1)}
	w.heard.mu.Lock()
	w.heard.bulk = b
	w.heard.mu.Unlock()
	w.exec(`INSERT INTO outbox_events (id, event_topic, occurred_at, source_bc, aggregate_type, aggregate_id, payload)
		SELECT ('`+bulkID+`' || lpad(to_hex(n), 12, '0'))::uuid, 'order.changed', now(), 'chaos', 'Bulk', 'b' || n % $2, '{}'
		  FROM generate_series(1, $1::int) n`, size, keys)
	return b
}

// take tells whether the event is one of the bulk, and counts it. The subscriber calls it, under
// its lock.
func (b *bulk) take(id string) bool {
	if b == nil || !strings.HasPrefix(id, bulkID) {
		return false
	}
	n, err := strconv.ParseInt(id[len(bulkID):], 16, 64)
	if err != nil || n < 1 || int(n) > b.size {
		return false // the checker will call it invented
	}
	b.received++
	switch before := int(n) - b.keys; {
	case b.arrived[n]:
		b.duplicated++
	case before > 0 && !b.arrived[before]:
		b.disordered++
	}
	b.arrived[n] = true
	return true
}

// came is how many of the bulk have come.
func (w *world) came() int {
	w.heard.mu.Lock()
	defer w.heard.mu.Unlock()
	return w.heard.bulk.received
}

// add adds the bulk to what was found about the other events, all of it acknowledged. The
// subscriber is quiet by now.
func (b *bulk) add(r *outboxtest.Report) {
	if b == nil {
		return
	}
	r.Acknowledged += b.size
	r.Received += b.received
	lost := b.size - (b.received - b.duplicated)
	for _, kind := range []struct {
		*outboxtest.Finding
		count int
	}{{&r.Lost, lost}, {&r.Duplicated, b.duplicated}, {&r.OutOfOrder, b.disordered}} {
		if kind.count > 0 {
			kind.Count += kind.count
			kind.Examples = append(kind.Examples, fmt.Sprint(kind.count, " of the bulk"))
		}
	}
}

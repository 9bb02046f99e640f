package relay

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
)

// While there is a backlog every second claim is for all tenants; a probe and a claim after an
// outage are small whatever the claims before have learnt.
func TestClaimLimits(t *testing.T) {
	t.Parallel()
	r, err := relayOf(nil, nil, Config{BatchRecords: 100, RecoveryRate: 500})
	if err != nil {
		t.Fatal(err)
	}
	w := r.workers[0]
	for i := range 6 {
		if got := w.pacer.limit(&ticket{}, &w.cfg); got.Fair != (i%2 == 1) {
			t.Errorf("claim %d of a backlog: %+v", i, got)
		}
		w.pacer.adapt(true, time.Millisecond, time.Millisecond)
	}
	w.pacer.adapt(true, time.Millisecond, time.Millisecond)
	for range 10 {
		w.pacer.adapt(true, time.Second, time.Millisecond)
	}
	if got := w.pacer.limit(&ticket{}, &w.cfg); got.Records != 100*maxBatchesPerClaim {
		t.Errorf("after claims that cost more than the rest: %+v", got)
	}
	for _, c := range []struct {
		what string
		pass ticket
		want int
	}{
		{"a probe", ticket{probe: true, limit: probeRecords}, probeRecords},
		{"a large one", ticket{probe: true, limit: wholeClaim}, 100 * maxBatchesPerClaim},
		{"after an outage", ticket{outage: 1}, 500 / recoveryClaims},
	} {
		if got := w.pacer.limit(&c.pass, &w.cfg); got.Records != c.want {
			t.Errorf("%s: %+v, want %d", c.what, got, c.want)
		}
	}
	w.pacer.adapt(false, time.Second, 0)
	if got := w.pacer.limit(&ticket{}, &w.cfg); got.Fair || got.Records != 100*batchesPerClaim {
		t.Errorf("with no backlog: %+v", got)
	}
}

// A claim that ran out of time at a database that answers others has the next one wait for as long
// as any may, and one that was answered for as long as that took. What made it long may be a row
// that it ended before. At a database that answers nobody a longer wait changes nothing.
func TestClaimPatience(t *testing.T) {
	t.Parallel()
	p, cfg := newPacer(), tableConfig{Config: Config{DatabaseTimeout: 5 * time.Second}}
	const away, out = -1, 0 // ran out of time, the database away or not
	for _, c := range []struct{ took, want time.Duration }{
		{away, 5 * time.Second}, {out, 160 * time.Second}, {away, 160 * time.Second}, {out, 160 * time.Second},
		{25 * time.Second, 40 * time.Second},
		{15 * time.Second, 20 * time.Second},
		{time.Second, 5 * time.Second},
		{away, 5 * time.Second},
	} {
		if c.took <= 0 {
			p.failed(context.DeadlineExceeded, true, c.took == out)
		} else {
			p.relax(&cfg, c.took)
		}
		if got := p.timeout(&cfg); got != c.want {
			t.Errorf("after one of %s the next claim may take %s, want %s", c.took, got, c.want)
		}
	}
}

// A claim of 50 s is answered at the second try, and at the third where nobody could renew the lease
// during the first.
func TestClaimLongerThanItsTime(t *testing.T) {
	t.Parallel()
	const long, limit = 50 * time.Second, 10 * time.Second
	for _, c := range []struct {
		away time.Duration // until when no lease is renewed
		want []time.Duration
	}{
		{0, []time.Duration{limit, long}}, {15 * time.Second, []time.Duration{limit, limit, long}},
	} {
		m, tries := &memory{}, []time.Duration{}
		var first time.Time
		m.leaseErr = func() error {
			if !first.IsZero() && time.Since(first) < c.away {
				return errors.New("connection refused")
			}
			return nil
		}
		m.claimHook = func(ctx context.Context) {
			began := time.Now()
			m.locked(func() { first = cmp.Or(first, began) })
			select {
			case <-ctx.Done():
			case <-time.After(long):
			}
			m.locked(func() { tries = append(tries, time.Since(began)) })
		}
		inBubble(t, m, Config{Workers: 1}, func(t *testing.T, _ *tableRelay) {
			pass(100 * time.Second)
		})
		if len(tries) < len(c.want) || !slices.Equal(tries[:len(c.want)], c.want) {
			t.Errorf("away until %s: claims took %s, want %s", c.away, tries, c.want)
		}
	}
}

// A claim walks over what it leaves out. How long it took says how dear that is, and how soon the
// next may be made.
func TestClaimRests(t *testing.T) {
	t.Parallel()
	paused := outbox.Paused{Topics: []string{"order.*"}}
	for _, c := range []struct {
		what             string
		paused           outbox.Paused
		waiting, records int
		took, want       time.Duration
	}{
		{"nothing waits", outbox.Paused{}, 0, 10, 10 * time.Millisecond, 0},
		{"a full one", outbox.Paused{}, 1, 100, 10 * time.Millisecond, 0},
		{"behind one that waits", outbox.Paused{}, 1, 10, 10 * time.Millisecond, 30 * time.Millisecond},
		{"behind very many", outbox.Paused{}, 100, 0, time.Second, maxWaitingRest},
		{"all is paused", paused, 0, 0, 100 * time.Millisecond, time.Second},
		{"little is paused", paused, 0, 0, 10 * time.Millisecond, 0},
		{"very much is paused", paused, 1, 0, time.Second, maxPausedRest},
		{"some is paused", paused, 0, 1, time.Second, 0},
	} {
		p := newPacer()
		p.answered(outbox.ClaimLimit{Records: 100, Paused: c.paused}, c.waiting, c.records, c.took)
		if p.rest != c.want {
			t.Errorf("%s: the rest is %s, want %s", c.what, p.rest, c.want)
		}
	}
}

// What a sink owes is asked for again later where nothing was found, by what that has cost; others
// at once.
func TestEmptyClaimLulls(t *testing.T) {
	t.Parallel()
	owed, others := newPacer(), newPacer()
	owed.lulls = lullsPerEmpty
	for _, c := range []struct {
		records    int
		took, want time.Duration
	}{
		{0, 6 * time.Millisecond, 60 * time.Millisecond},
		{1, 6 * time.Millisecond, 0},
		{0, time.Second, maxWaitingRest},
	} {
		for _, p := range []*pacer{&owed, &others} {
			p.answered(outbox.ClaimLimit{Records: 100}, 0, c.records, c.took)
		}
		if owed.lull != c.want || others.lull != 0 {
			t.Errorf("%d records in %v: %v, want %v; of another table %v", c.records, c.took, owed.lull, c.want,
				others.lull)
		}
	}
}

// A claim brings what a sink gets through, of keys enough; all that it can where one key is all
// that holds the sink up; and all there is once the sink gets through what it asked for.
func TestClaimOfASlowSinkIsSmall(t *testing.T) {
	p, cfg := newPacer(), &tableConfig{}
	cfg.BatchRecords = 500
	asked := func() int { return p.limit(&ticket{}, cfg).Records }
	all := asked()
	for _, tt := range []struct{ claimed, keys, used, want int }{
		{2000, 200, 2000, all},
		{2000, 200, 85, 170}, {170, 170, 85, 170}, {170, 170, 160, 340}, {340, 200, 80, 160},
		{160, 160, 0, all}, {2000, 200, 10, leastClaim}, {100, 100, 100, 200},
		{200, 200, 200, 400}, {399, 200, 399, all},
		{2000, 1, 20, all}, {2000, 20, 20, all}, {2000, 2000, 300, 600}, {600, 30, 30, all},
	} {
		records := make([]*outbox.Record, tt.claimed)
		for i := range records {
			records[i] = &outbox.Record{Keyed: true, OrderKey: int64(i % tt.keys)}
		}
		if p.got(records, tt.used); asked() != tt.want {
			t.Errorf("after %d of %d with %d keys the next claim asks for %d, want %d", tt.used, tt.claimed, tt.keys,
				asked(), tt.want)
		}
	}
}

// Where one key's events stand before the others', so many are asked for that others are among
// them.
func TestClaimPassesAKeyOfManyEvents(t *testing.T) {
	p, cfg := newPacer(), &tableConfig{}
	cfg.BatchRecords = 500
	var records []*outbox.Record
	for i := range int64(2000) {
		records = append(records, &outbox.Record{Keyed: true, OrderKey: max(i-1500, 0)})
	}
	if p.got(records, 40); p.limit(&ticket{}, cfg).Records != 1580 {
		t.Errorf("the next claim asks for %d, want 80 keys", p.limit(&ticket{}, cfg).Records)
	}
}

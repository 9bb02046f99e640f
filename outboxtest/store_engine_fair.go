package outboxtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

func fairTests() []storeTest {
	return []storeTest{
		{name: "a flood of one tenant does not hold back another's trickle", run: reachesBehindFlood, notInLog: noTurns},
		{name: "tenants take turns where there are more than one claim can serve", run: goesRoundTenants, notInLog: noTurns},
		{name: "a fair claim is limited in bytes and still serves every tenant", run: limitsFairClaims, notInLog: noTurns},
	}
}

// ofTenant makes n events for each tenant, tenant by tenant, over five keys each.
func ofTenant(n int, tenants ...string) (events []outbox.Event) {
	for _, tenant := range tenants {
		for i := range n {
			e := keyed(fmt.Sprintf("%s/%d", tenant, i), fmt.Sprint(i%5))
			e.TenantID = tenant
			events = append(events, e)
		}
	}
	return events
}

// fairly claims and counts by tenant. It fails if a key's records are not the first that the table
// has of it, in their order.
func fairly(t *testing.T, r *server, limit outbox.ClaimLimit) (records []*outbox.Record, of map[string]int) {
	t.Helper()
	limit.Fair = true
	records = r.claimLimited(r.lanes, limit)
	if len(records) > limit.Records {
		t.Errorf("claimed %d records, the limit is %d", len(records), limit.Records)
	}
	inOrder := map[int64][]uuid.UUID{}
	for _, rec := range r.claim() {
		inOrder[rec.OrderKey] = append(inOrder[rec.OrderKey], rec.ID)
	}
	of = map[string]int{}
	for _, rec := range records {
		of[rec.TenantID]++
		if next := inOrder[rec.OrderKey]; len(next) == 0 || next[0] != rec.ID {
			t.Fatalf("%s comes out of turn, or twice", rec.Topic)
		}
		inOrder[rec.OrderKey] = inOrder[rec.OrderKey][1:]
	}
	return records, of
}

func reachesBehindFlood(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	limit := outbox.ClaimLimit{Records: 300, Bytes: 64 << 20}
	s.commits(t, ofTenant(2000, "flood")...)
	s.commits(t, ofTenant(5, "trickle", "blocked")...)
	r.settles(outbox.Settled{Retried: 1}, retried(r.claim()[2005])) // the head of one of blocked's five keys
	if plain := r.claimLimited(r.lanes, limit); plain[len(plain)-1].TenantID != "flood" {
		t.Fatal("the flood is none")
	}
	records, of := fairly(t, r, limit)
	if of["trickle"] != 5 || of["blocked"] != 4 || of["flood"] < 100 {
		t.Errorf("got %v, want the 5 of trickle, the 4 of blocked whose key does not wait, and a third or more for the flood",
			of)
	}
	for i, rec := range records {
		if rec.TenantID != "flood" && i > 20 {
			t.Errorf("%s is at %d of %d: it would wait for the flood's share", rec.Topic, i, len(records))
		}
	}
	if got := r.settle(delivered(records...)...); got.Delivered != len(records) {
		t.Fatalf("settled %+v", got)
	}
	if _, of = fairly(t, r, limit); of["flood"] < limit.Records/2 {
		t.Errorf("once the others have been served: got %v; the flood must not be slowed by tenants that have nothing", of)
	}
}

func goesRoundTenants(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	s.commits(t, ofTenant(500, "flood")...)
	for i := range 100 {
		s.commits(t, ofTenant(2, fmt.Sprintf("Tenant %d ü", i))...)
	}
	all := map[string]bool{}
	for _, lanes := range [][]outbox.Lane{r.lanes, r.lanes[:20], r.lanes[20:]} {
		part, reached, want := *r, map[string]bool{}, map[string]bool{}
		part.lanes = lanes
		for range 4 {
			_, of := fairly(t, &part, outbox.ClaimLimit{Records: 200, Bytes: 64 << 20})
			for tenant := range of {
				reached[tenant] = true
			}
		}
		for _, rec := range part.claim() {
			want[rec.TenantID], all[rec.TenantID] = true, true
		}
		if !maps.Equal(reached, want) {
			t.Errorf("four claims from %d lanes reach %d tenants, want %d", len(lanes), len(reached), len(want))
		}
	}
	if len(all) != 101 {
		t.Errorf("the lanes have events of %d tenants, want 101", len(all))
	}
}

func limitsFairClaims(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	big := ofTenant(30, "flood")
	for i := range big {
		big[i].Payload = json.RawMessage(`"` + strings.Repeat("x", 20_000) + `"`)
	}
	s.commits(t, big...)
	s.commits(t, ofTenant(2, "trickle")...)
	limit := outbox.ClaimLimit{Records: 200, Bytes: 200_000}
	fairly(t, r, limit) // a store may have to learn how large the rows are
	records, of := fairly(t, r, limit)
	size := 0
	for _, rec := range records {
		size += len(rec.Payload)
	}
	if of["trickle"] != 2 || of["flood"] < 4 || size > limit.Bytes {
		t.Errorf("got %v, %d bytes; want both of trickle and at most %d bytes", of, size, limit.Bytes)
	}
}

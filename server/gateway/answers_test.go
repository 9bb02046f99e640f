package gateway

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxrelay/outbox/server/crawl"
)

// One tenant's answers leave room for another's, and what an answer does not need is given back.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const all = 2 * tenantsPart * crawl.PageBytes // two pages a tenant
		a := newAnswers(all)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		take := func(tenant string) *reservation {
			t.Helper()
			r, err := a.reserve(ctx, tenant, crawl.PageBytes)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		first, second := take("a"), take("a")
		if _, err := a.reserve(ctx, "a", 1); !errors.Is(err, errTenantBusy) {
			t.Errorf("a third page of a tenant: %v", err)
		}
		ctx = t.Context()
		other := take("b")
		first.shrink(10)
		third, err := a.reserve(ctx, "a", crawl.PageBytes-10)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []*reservation{first, second, third, other} {
			r.release()
		}
		if !a.total.TryAcquire(all) {
			t.Error("bytes are missing")
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.reserve(short, "c", 1); !errors.Is(err, errBusy) {
			t.Errorf("more than all: %v", err)
		}
	})
}

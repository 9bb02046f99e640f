package crawl

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A tenant waits for its own share alone, and one without users is forgotten.
func TestShares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewShares(2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		take := func(tenant string, n int64) *Part {
			t.Helper()
			p, err := s.Take(ctx, tenant, n)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		both, other := take("a", 2), take("b", 2)
		if _, err := s.Take(ctx, "a", 1); err == nil {
			t.Error("a third of two")
		}
		both.Shrink(1)
		ctx = t.Context()
		one := take("a", 1)
		for _, p := range []*Part{both, other, one} {
			p.Release()
		}
		if len(s.tenants) != 0 {
			t.Errorf("%d tenants are left", len(s.tenants))
		}
	})
}

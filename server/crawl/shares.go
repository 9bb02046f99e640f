package crawl

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Shares bound how much of something a tenant has at a time, so that those of one do not keep the
// others out. It is safe for concurrent use.
type Shares struct {
	each int64

	mu      sync.Mutex
	tenants map[string]*share
}

// share is a tenant's.
type share struct {
	room  *semaphore.Weighted
	users int // guarded by Shares.mu; the last one takes the share away
}

// NewShares returns shares of that size.
func NewShares(each int64) *Shares { return &Shares{each: each, tenants: map[string]*share{}} }

// Take waits for n of the tenant's share, as long as ctx lasts.
func (s *Shares) Take(ctx context.Context, tenant string, n int64) (*Part, error) {
	s.mu.Lock()
	of := s.tenants[tenant]
	if of == nil {
		of = &share{room: semaphore.NewWeighted(s.each)}
		s.tenants[tenant] = of
	}
	of.users++
	s.mu.Unlock()
	p := &Part{shares: s, tenant: tenant, of: of}
	if err := of.room.Acquire(ctx, n); err != nil {
		p.Release()
		return nil, err
	}
	p.n = n
	return p, nil
}

// Part is what one user has of a share.
type Part struct {
	shares *Shares
	tenant string
	of     *share
	n      int64
}

// Shrink gives back what is above n.
func (p *Part) Shrink(n int64) {
	if excess := p.n - n; excess > 0 {
		p.of.room.Release(excess)
		p.n = n
	}
}

// Release gives all back.
func (p *Part) Release() {
	p.Shrink(0)
	p.shares.mu.Lock()
	defer p.shares.mu.Unlock()
	if p.of.users--; p.of.users == 0 {
		delete(p.shares.tenants, p.tenant)
	}
}

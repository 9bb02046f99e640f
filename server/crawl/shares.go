package crawl

import (
	"context"
	"sync"

	"github.com/google/uuid"
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

// sharing is a store of which a tenant has a share of the calls.
type sharing struct {
	Store
	shares *Shares
}

// shared makes a call with one place of the tenant's.
func shared[T any](ctx context.Context, s sharing, tenant string, call func() (T, error)) (v T, err error) {
	p, err := s.shares.Take(ctx, tenant, 1)
	if err != nil {
		return v, ErrBusy // whatever the others of the tenant wait for
	}
	defer p.Release()
	return call()
}

func (s sharing) CreateRun(ctx context.Context, tenant string, n NewRun, most int) (r Run, created bool, err error) {
	r, err = shared(ctx, s, tenant, func() (_ Run, err error) {
		r, created, err = s.Store.CreateRun(ctx, tenant, n, most)
		return r, err
	})
	return r, created, err
}

func (s sharing) GetRun(ctx context.Context, tenant string, run uuid.UUID) (Run, error) {
	return shared(ctx, s, tenant, func() (Run, error) { return s.Store.GetRun(ctx, tenant, run) })
}

func (s sharing) ListRuns(ctx context.Context, tenant string, f RunFilter) (runs []Run, more bool, err error) {
	runs, err = shared(ctx, s, tenant, func() (_ []Run, err error) {
		runs, more, err = s.Store.ListRuns(ctx, tenant, f)
		return runs, err
	})
	return runs, more, err
}

func (s sharing) ListEvents(
	ctx context.Context, tenant string, run uuid.UUID, after int64, limit int,
) ([]Event, error) {
	return shared(ctx, s, tenant, func() ([]Event, error) { return s.Store.ListEvents(ctx, tenant, run, after, limit) })
}

func (s sharing) Change(ctx context.Context, tenant string, run uuid.UUID, c Change) (Changed, error) {
	return shared(ctx, s, tenant, func() (Changed, error) { return s.Store.Change(ctx, tenant, run, c) })
}

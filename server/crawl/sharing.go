package crawl

import (
	"context"

	"github.com/google/uuid"
)

// sharing is a store of which a tenant has a share of the calls.
type sharing struct {
	Store
	shares *Shares
}

func (s sharing) CreateRun(ctx context.Context, tenant string, n NewRun, most int) (Run, bool, error) {
	p, err := s.take(ctx, tenant)
	if err != nil {
		return Run{}, false, err
	}
	defer p.Release()
	return s.Store.CreateRun(ctx, tenant, n, most)
}

func (s sharing) GetRun(ctx context.Context, tenant string, run uuid.UUID) (Run, error) {
	p, err := s.take(ctx, tenant)
	if err != nil {
		return Run{}, err
	}
	defer p.Release()
	return s.Store.GetRun(ctx, tenant, run)
}

func (s sharing) ListRuns(ctx context.Context, tenant string, f RunFilter) ([]Run, bool, error) {
	p, err := s.take(ctx, tenant)
	if err != nil {
		return nil, false, err
	}
	defer p.Release()
	return s.Store.ListRuns(ctx, tenant, f)
}

func (s sharing) ListEvents(
	ctx context.Context, tenant string, run uuid.UUID, after int64, limit int,
) ([]Event, error) {
	p, err := s.take(ctx, tenant)
	if err != nil {
		return nil, err
	}
	defer p.Release()
	return s.Store.ListEvents(ctx, tenant, run, after, limit)
}

func (s sharing) Change(ctx context.Context, tenant string, run uuid.UUID, c Change) (Changed, error) {
	p, err := s.take(ctx, tenant)
	if err != nil {
		return Changed{}, err
	}
	defer p.Release()
	return s.Store.Change(ctx, tenant, run, c)
}

func (s sharing) take(ctx context.Context, tenant string) (*Part, error) {
	p, err := s.shares.Take(ctx, tenant, 1)
	if err != nil {
		return nil, ErrBusy // whatever the others of the tenant wait for
	}
	return p, nil
}

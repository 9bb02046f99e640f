package crawl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// DefaultMaxSteps is how many nodes a run may visit if its creator does not say (FR-006).
const DefaultMaxSteps = 100

// Of lists.
const (
	defaultRuns, maxRuns     = 50, 500
	defaultEvents, maxEvents = 500, 1000
)

// ServiceConfig configures a Service. Zero means the default in parentheses, negative no limit.
type ServiceConfig struct {
	Crawlers    []string // that some worker has, beside External: "demo", "script:checkout"
	MaxEvents   int      // of one Append (500)
	MaxPayload  int      // bytes of JSON of one event (outbox.DefaultMaxPayload)
	MaxMaxSteps int      // that a run may ask for (100,000)
	MaxWaiting  int      // runs of one tenant that wait to be started or for a worker (1,000)
}

// Service is what anybody may do with runs: it refuses what is invalid before the store sees it. It
// is safe for concurrent use.
//
// A refusal is one or several (errors.Join) *FieldError, a *StateError, a *QuotaError, ErrNotFound,
// ErrKeyReused or ErrEventReused, and nothing was changed. Any other error is the store's.
type Service struct {
	store Store
	cfg   ServiceConfig
}

// NewService returns a service of the runs in store.
func NewService(store Store, cfg ServiceConfig) *Service {
	cfg.Crawlers = append([]string{External}, cfg.Crawlers...)
	slices.Sort(cfg.Crawlers[1:])
	cfg.Crawlers = slices.Compact(cfg.Crawlers)
	cfg.MaxEvents = bound(cfg.MaxEvents, 500)
	cfg.MaxPayload = bound(cfg.MaxPayload, outbox.DefaultMaxPayload)
	cfg.MaxMaxSteps = bound(cfg.MaxMaxSteps, 100_000)
	if cfg.MaxWaiting == 0 {
		cfg.MaxWaiting = 1000
	}
	return &Service{store: store, cfg: cfg}
}

// Crawlers returns the names that a new run may have as its crawler: External, then the others in
// order.
func (s *Service) Crawlers() []string { return slices.Clone(s.cfg.Crawlers) }

// Create makes a PENDING run, unless MaxWaiting of the tenant's wait already. With an idempotency
// key that was used before, it returns the run of that time and created false.
func (s *Service) Create(ctx context.Context, tenant string, n NewRun) (r Run, created bool, err error) {
	if n.Crawler == "" {
		n.Crawler = External
	}
	if n.MaxSteps == 0 {
		n.MaxSteps = DefaultMaxSteps
	}
	if len(n.DeviceConfig) == 0 || bytes.Equal(bytes.TrimSpace(n.DeviceConfig), []byte("null")) {
		n.DeviceConfig = nil
	}
	if err := s.checkRun(tenant, n); err != nil {
		return Run{}, false, err
	}
	return s.store.CreateRun(ctx, tenant, n, s.cfg.MaxWaiting)
}

// Get returns a run.
func (s *Service) Get(ctx context.Context, tenant string, run uuid.UUID) (Run, error) {
	return s.store.GetRun(ctx, tenant, run)
}

// List returns runs, newest first, fewer than asked for where they are large. next is the cursor
// for those after them; zero: there are no more.
func (s *Service) List(ctx context.Context, tenant string, f RunFilter) (runs []Run, next Cursor, err error) {
	problems := []error{
		checkText("appPackage", f.AppPackage, MaxAppPackage, false),
		checkPage("limit", &f.Limit, defaultRuns, maxRuns),
	}
	if f.Status != "" && !slices.Contains(Statuses, f.Status) {
		problems = append(problems, &FieldError{Field: "status",
			Problem: fmt.Sprintf("%.50q is none of %v", f.Status, Statuses)})
	}
	if err := errors.Join(problems...); err != nil {
		return nil, Cursor{}, err
	}
	runs, more, err := s.store.ListRuns(ctx, tenant, f)
	if err != nil || !more {
		return runs, Cursor{}, err
	}
	last := runs[len(runs)-1]
	return runs, Cursor{CreatedAt: last.CreatedAt, ID: last.ID}, nil
}

// Events returns events of a run with a greater number than after, in order. They are at most limit
// (500 if 0, 1000 at most), fewer where they are large, and none only where there are no more.
func (s *Service) Events(ctx context.Context, tenant string, run uuid.UUID, after int64, limit int) ([]Event, error) {
	err := checkPage("limit", &limit, defaultEvents, maxEvents)
	if after < 0 {
		err = errors.Join(&FieldError{Field: "after", Problem: fmt.Sprintf("is %d, must not be negative", after)}, err)
	}
	if err != nil {
		return nil, err
	}
	return s.store.ListEvents(ctx, tenant, run, after, limit)
}

func checkPage(field string, v *int, def, most int) error {
	if *v == 0 {
		*v = def
	}
	if *v < 1 || *v > most {
		return &FieldError{Field: field, Problem: fmt.Sprintf("is %d, must be between 1 and %d", *v, most)}
	}
	return nil
}

// Start makes a PENDING run RUNNING and appends RUN_STARTED. One that a worker crawls is taken by a
// worker then, as it would have been anyway. A RUNNING run is returned as it is.
func (s *Service) Start(ctx context.Context, tenant string, run uuid.UUID) (Run, error) {
	r, err := s.store.GetRun(ctx, tenant, run)
	if err != nil || r.Status == Running {
		return r, err
	}
	return s.become(ctx, tenant, run, Change{From: []Status{Pending}, To: Running, Events: []NewEvent{startedEvent(r)}})
}

// Complete makes a RUNNING run of an external crawler COMPLETED and appends RUN_COMPLETED. A
// COMPLETED run is returned as it is.
func (s *Service) Complete(ctx context.Context, tenant string, run uuid.UUID) (Run, error) {
	if err := s.checkExternal(ctx, tenant, run, "completes it"); err != nil {
		return Run{}, err
	}
	return s.become(ctx, tenant, run,
		Change{From: []Status{Running}, To: Completed, Events: []NewEvent{newEvent(RunCompleted, reason{ReasonFinished})}})
}

// Fail makes a RUNNING run FAILED for the reason message, and appends RUN_FAILED. A worker that
// crawls it stops. A FAILED run is returned as it is.
func (s *Service) Fail(ctx context.Context, tenant string, run uuid.UUID, message string) (Run, error) {
	if err := checkText("error", message, MaxError, true); err != nil {
		return Run{}, err
	}
	return s.become(ctx, tenant, run,
		Change{From: []Status{Running}, To: Failed, Error: message,
			Events: []NewEvent{newEvent(RunFailed, failure{message})}})
}

// Cancel makes a PENDING or RUNNING run CANCELLED and appends RUN_CANCELLED. A worker that crawls
// it stops within about a second, and none of its events come after. A CANCELLED run is returned as
// it is.
func (s *Service) Cancel(ctx context.Context, tenant string, run uuid.UUID) (Run, error) {
	return s.become(ctx, tenant, run,
		Change{From: []Status{Pending, Running}, To: Cancelled,
			Events: []NewEvent{newEvent(RunCancelled, reason{ReasonRequested})}})
}

// become makes a change of status. That the run has the status already is the answer to a request
// whose reply was lost, so it is no error.
func (s *Service) become(ctx context.Context, tenant string, run uuid.UUID, c Change) (Run, error) {
	if err := identify(c.Events); err != nil {
		return Run{}, err
	}
	changed, err := s.store.Change(ctx, tenant, run, c)
	if state, ok := errors.AsType[*StateError](err); ok && state.Status == c.To {
		return s.store.GetRun(ctx, tenant, run)
	}
	return changed.Run, err
}

// Append appends events to a RUNNING run of an external crawler: all of them, in their order, or
// none. Events whose ids the run has already, with the same content, are not appended again, and if
// it has all of them the run may have ended meanwhile. No payload means {}.
func (s *Service) Append(ctx context.Context, tenant string, run uuid.UUID, events ...NewEvent) (Changed, error) {
	if n := len(events); n == 0 || n > s.cfg.MaxEvents {
		return Changed{}, &FieldError{Field: "events",
			Problem: fmt.Sprintf("has %d, must have between 1 and %d", n, s.cfg.MaxEvents)}
	}
	events = slices.Clone(events)
	if err := complete(events, s.cfg.MaxPayload); err != nil {
		return Changed{}, err
	}
	if err := s.checkExternal(ctx, tenant, run, "appends its events"); err != nil {
		return Changed{}, err
	}
	return s.store.Change(ctx, tenant, run, Change{From: []Status{Running}, Events: events})
}

// checkExternal refuses to do a worker's work for it: its own next step would not know of it. A
// run's crawler never changes, so no lock is needed.
func (s *Service) checkExternal(ctx context.Context, tenant string, run uuid.UUID, does string) error {
	r, err := s.store.GetRun(ctx, tenant, run)
	if err != nil || r.Crawler == External {
		return err
	}
	return &FieldError{Field: "crawler", Problem: fmt.Sprintf("of run %s is %s: only the worker %s", run, r.Crawler, does)}
}

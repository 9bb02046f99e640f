package crawl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
)

// memory is the least that fulfils Store, so that the rules of service and worker can be watched in
// fake time. What PostgreSQL makes of them is tested in internal/test/integration.
type memory struct {
	mu    sync.Mutex
	runs  []*stored
	fault func(method string) error // asked before each method; nil: all is well
	calls map[string]int
}

type stored struct {
	Run
	events  []Event
	hold    Hold
	expires time.Time // zero: no lease
	at      Progress
	key     string
}

// enter locks m and asks fault.
func (m *memory) enter(method string) (leave func(), err error) {
	m.mu.Lock()
	if m.calls == nil {
		m.calls = map[string]int{}
	}
	m.calls[method]++
	if m.fault != nil {
		err = m.fault(method)
	}
	return m.mu.Unlock, err
}

func (m *memory) find(tenant string, id uuid.UUID) *stored {
	for _, r := range m.runs {
		if r.ID == id && (tenant == "" || r.Tenant == tenant) {
			return r
		}
	}
	return nil
}

func (m *memory) CreateRun(_ context.Context, tenant string, n NewRun, most int) (Run, bool, error) {
	leave, err := m.enter("CreateRun")
	defer leave()
	if err != nil {
		return Run{}, false, err
	}
	for _, r := range m.runs {
		if n.IdempotencyKey != "" && r.key == n.IdempotencyKey && r.Tenant == tenant {
			return r.Run, false, nil
		}
	}
	waiting := 0
	for _, r := range m.runs {
		if r.Tenant == tenant && r.Status == Pending {
			waiting++
		}
	}
	if most > 0 && waiting >= most {
		return Run{}, false, &QuotaError{Most: most}
	}
	r := &stored{key: n.IdempotencyKey,
		Run: Run{ID: uuid.New(), Tenant: tenant, Status: Pending, AppPackage: n.AppPackage, DeviceConfig: n.DeviceConfig,
			MaxSteps: n.MaxSteps,
			Goal:     n.Goal, Crawler: n.Crawler, CreatedAt: time.Now()}}
	m.runs = append(m.runs, r)
	return r.Run, true, nil
}

func (m *memory) GetRun(_ context.Context, tenant string, id uuid.UUID) (Run, error) {
	leave, err := m.enter("GetRun")
	defer leave()
	if err != nil {
		return Run{}, err
	}
	if r := m.find(tenant, id); r != nil {
		return r.Run, nil
	}
	return Run{}, ErrNotFound
}

func (m *memory) ListRuns(_ context.Context, tenant string, f RunFilter) (runs []Run, more bool, err error) {
	leave, err := m.enter("ListRuns")
	defer leave()
	for _, r := range slices.Backward(m.runs) {
		switch {
		case r.Tenant != tenant, f.Status != "" && r.Status != f.Status:
		case f.Before.ID != uuid.Nil && !r.CreatedAt.Before(f.Before.CreatedAt): // the tests' runs are apart
		case len(runs) == f.Limit:
			more = true
		default:
			runs = append(runs, r.Run)
		}
	}
	return runs, more, err
}

func (m *memory) ListEvents(_ context.Context, tenant string, run uuid.UUID, after int64, limit int) ([]Event, error) {
	leave, err := m.enter("ListEvents")
	defer leave()
	r := m.find(tenant, run)
	if err != nil || r == nil {
		return nil, errors.Join(err, ErrNotFound)
	}
	events := r.events[min(int(after), len(r.events)):]
	return slices.Clone(events[:min(limit, len(events))]), nil
}

func (m *memory) LastSeqs(context.Context, string, []uuid.UUID) (map[uuid.UUID]int64, error) {
	return nil, errors.New("not asked for by this package")
}

func (m *memory) EndedRuns(context.Context, string, []uuid.UUID) (map[uuid.UUID]int64, error) {
	return nil, errors.New("not asked for by this package")
}

func (m *memory) Change(ctx context.Context, tenant string, run uuid.UUID, c Change) (Changed, error) {
	leave, err := m.enter("Change")
	defer leave()
	if err := errors.Join(err, ctx.Err()); err != nil {
		return Changed{}, err
	}
	r := m.find(tenant, run)
	if r == nil {
		return Changed{}, ErrNotFound
	}
	var fresh []NewEvent
	for _, e := range c.Events {
		if !slices.ContainsFunc(r.events, func(old Event) bool { return old.ID == e.ID }) {
			fresh = append(fresh, e)
		}
	}
	repeated := c.To == "" && len(c.Events) > 0 && len(fresh) == 0
	switch {
	case c.From != nil && !slices.Contains(c.From, r.Status) && !repeated:
		return Changed{}, fmt.Errorf("change: %w", &StateError{Run: run, Status: r.Status, From: c.From})
	case c.Hold != nil && *c.Hold != r.hold:
		return Changed{}, fmt.Errorf("change: %w", ErrLeaseLost)
	}
	r.append(fresh)
	if c.To != "" {
		r.Status, r.Error = c.To, c.Error
	}
	if c.Hold != nil {
		r.at = c.Progress
		r.at.Attempts = 0
	}
	if r.Status.Ended() {
		r.hold = Hold{Epoch: r.hold.Epoch}
	}
	return Changed{Run: r.Run, Last: r.LastSeq, Appended: len(fresh)}, nil
}

// append numbers events, and breaks the test if one follows a terminal one: the database would
// refuse it.
func (r *stored) append(events []NewEvent) {
	for _, e := range events {
		if n := len(r.events); n > 0 && Terminal(r.events[n-1].Type) {
			panic("an event after the terminal one")
		}
		if e.ID == uuid.Nil {
			e.ID = uuid.New()
		}
		r.LastSeq++
		r.events = append(r.events, Event{Run: r.ID, Tenant: r.Tenant, Seq: r.LastSeq, ID: e.ID, Type: e.Type,
			CreatedAt: time.Now(), Payload: e.Payload})
	}
}

func (m *memory) ClaimRun(
	_ context.Context, owner uuid.UUID, crawlers []string, ttl time.Duration, events func(Run) []NewEvent,
) (Claim, error) {
	leave, err := m.enter("ClaimRun")
	defer leave()
	if err != nil {
		return Claim{}, err
	}
	for _, r := range m.runs {
		if r.Status.Ended() || !slices.Contains(crawlers, r.Crawler) || time.Now().Before(r.expires) {
			continue
		}
		if r.Status == Pending {
			r.Status = Running
			r.append(events(r.Run))
		}
		r.hold = Hold{Owner: owner, Epoch: r.hold.Epoch + 1}
		r.expires = time.Now().Add(ttl)
		r.at.Attempts++
		return Claim{Run: r.Run, Hold: r.hold, Progress: r.at, Resumed: r.hold.Epoch > 1}, nil
	}
	return Claim{}, fmt.Errorf("claim: %w", ErrNoRun)
}

func (m *memory) RenewRun(_ context.Context, run uuid.UUID, hold Hold, ttl time.Duration) (Status, bool, error) {
	leave, err := m.enter("RenewRun")
	defer leave()
	if err != nil {
		return "", false, err
	}
	r := m.find("", run)
	held := r.Status == Running && r.hold == hold
	if held {
		r.expires = time.Now().Add(ttl)
	}
	return r.Status, held, nil
}

func (m *memory) ReleaseRun(_ context.Context, run uuid.UUID, hold Hold) error {
	leave, err := m.enter("ReleaseRun")
	defer leave()
	if r := m.find("", run); err == nil && r.hold == hold {
		r.expires = time.Time{}
	}
	return err
}

// history is the log of a run as one text: types, with what tells one from the next of its type.
func (m *memory) history(run uuid.UUID) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var words []string
	for _, e := range m.find("", run).events {
		word := e.Type
		if e.Type != RunStarted && e.Type != ActionExecuted && e.Type != Processing {
			word += string(e.Payload)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// has creates a run.
func (m *memory) has(t *testing.T, crawler string, change ...func(*stored)) Run {
	t.Helper()
	r, _, err := m.CreateRun(t.Context(), DefaultTenant,
		NewRun{AppPackage: "com.example", MaxSteps: 100, Crawler: crawler}, 0)
	if err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.find("", r.ID)
	for _, f := range change {
		f(s)
	}
	return s.Run
}

func (m *memory) get(run Run) stored {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *m.find("", run.ID)
}

func (m *memory) failing(f func(method string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = f
}

package crawl

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Store keeps runs and their events. Packages pgstore and sqlitestore have one each.
//
// Each method is one transaction, and sees and changes only what belongs to the tenant it names. A
// run of another tenant does not exist: ErrNotFound.
type Store interface {
	// CreateRun inserts a run that is valid. With an idempotency key that the tenant has used
	// before it returns that run and created false, if the content was the same, else ErrKeyReused.
	// Where most of the tenant's runs wait already it inserts none: *QuotaError; 0 or less is no
	// limit. What waits is PENDING, or was started by hand for a worker and has not been claimed.
	// However many of one process create runs at once, there are never more.
	CreateRun(ctx context.Context, tenant string, run NewRun, most int) (r Run, created bool, err error)
	// GetRun returns a run.
	GetRun(ctx context.Context, tenant string, id uuid.UUID) (Run, error)
	// ListRuns returns at most f.Limit runs (50 if 0), newest first, and whether there are more.
	// They may be fewer where they are large, but are none only where there are no more.
	ListRuns(ctx context.Context, tenant string, f RunFilter) (runs []Run, more bool, err error)
	// ListEvents returns at most limit events with a greater number than after, in order. They may
	// be fewer where they are large, but are none only where there are no more.
	ListEvents(ctx context.Context, tenant string, run uuid.UUID, after int64, limit int) ([]Event, error)
	// LastSeqs returns the number of the last event of each of these runs. A run without events,
	// unknown, or of another tenant is left out.
	LastSeqs(ctx context.Context, tenant string, runs []uuid.UUID) (map[uuid.UUID]int64, error)
	// EndedRuns returns those of these runs of the tenant that have a final status, with the number
	// of the last event, or 0.
	EndedRuns(ctx context.Context, tenant string, runs []uuid.UUID) (map[uuid.UUID]int64, error)
	// Change does all of c or nothing, under the lock of the run's row.
	Change(ctx context.Context, tenant string, run uuid.UUID, c Change) (Changed, error)

	// The methods of a Worker are for the runs of all tenants.

	// ClaimRun leases a run whose crawler is one of crawlers and that is PENDING, or RUNNING
	// without a lease or with one that has lapsed. It is the oldest of the tenant of whose runs the
	// fewest are held, so that nobody's queue is another's wait. Tenants with as many take turns. A
	// PENDING run becomes RUNNING, and events are appended to it. It does not wait for a run that
	// another transaction has locked, if the store can lock one run. No run: ErrNoRun.
	ClaimRun(ctx context.Context, owner uuid.UUID, crawlers []string, ttl time.Duration,
		events func(Run) []NewEvent) (Claim, error)
	// RenewRun extends the lease and tells the run's status. Held is false if the lease is
	// another's by now or the run has ended.
	RenewRun(ctx context.Context, run uuid.UUID, hold Hold, ttl time.Duration) (status Status, held bool, err error)
	// ReleaseRun gives the lease up, so that another worker may go on with the run at once.
	ReleaseRun(ctx context.Context, run uuid.UUID, hold Hold) error
}

// Change is one step of a run.
type Change struct {
	From   []Status   // the run must be in one of these; nil: in any
	To     Status     // what it becomes; "": it stays
	Error  string     // with To FAILED
	Events []NewEvent // appended to log and outbox in this order

	// Hold, if not nil, is the lease under which a worker makes the change; without it
	// ErrLeaseLost. Progress is saved with it.
	Hold     *Hold
	Progress Progress
}

// Changed is what a Change made.
type Changed struct {
	Run Run
	// Numbers of the first and last of the change's events, those that were there before included;
	// 0: it had none.
	First, Last int64
	Appended    int // how many of the events were new
}

// Hold is the right to work on a run: the lease's owner, and its epoch, which rises with each
// claim.
type Hold struct {
	Owner uuid.UUID
	Epoch int64
}

// Progress is where a worker stands in a run.
type Progress struct {
	Node     string          // that comes next
	State    json.RawMessage // that the nodes keep, or nil
	Steps    int             // nodes finished
	Attempts int             // claims since the last finished node; counted by ClaimRun, begun again by Change
}

// Claim is a run that a worker has been given.
type Claim struct {
	Run      Run
	Hold     Hold
	Progress Progress
	Resumed  bool // another worker had begun it
}

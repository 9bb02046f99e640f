package crawl

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Status is where a run stands.
type Status string

// The values of crawl_status (docs/seeds.md#fr-006).
const (
	Pending   Status = "PENDING"
	Running   Status = "RUNNING"
	Completed Status = "COMPLETED"
	Failed    Status = "FAILED"
	Cancelled Status = "CANCELLED"
)

// Statuses are all of them, in the order of a run's life.
var Statuses = []Status{Pending, Running, Completed, Failed, Cancelled}

// Ended tells whether a run with this status stays as it is.
func (s Status) Ended() bool { return s == Completed || s == Failed || s == Cancelled }

// External is the crawler of a run that is driven from outside, over the API: no worker claims it.
const External = "external"

// DefaultTenant owns the runs of an installation that knows no tenants (ADR-004: the default of
// tenant_id).
const DefaultTenant = "default"

// PageBytes is about how much of texts and payloads a page of a list has, beside one run or event
// more. 500 of them may be megabytes, for each of those who ask at once.
const PageBytes = 2 << 20

// Run is one crawl of an application. The tags describe it to callers of the API too.
type Run struct {
	ID           uuid.UUID       `json:"runId" format:"uuid"`
	Tenant       string          `json:"tenant"`
	Status       Status          `json:"status" enum:"PENDING,RUNNING,COMPLETED,FAILED,CANCELLED"`
	AppPackage   string          `json:"appPackage"`
	DeviceConfig json.RawMessage `json:"deviceConfig,omitempty"`
	MaxSteps     int             `json:"maxSteps"`
	Goal         string          `json:"goal,omitempty"`
	Crawler      string          `json:"crawler" doc:"Who crawls it: external is whoever appends its events over this API."`
	CreatedAt    time.Time       `json:"createdAt"`
	StartedAt    *time.Time      `json:"startedAt,omitempty"`
	CompletedAt  *time.Time      `json:"completedAt,omitempty" doc:"When it became COMPLETED or FAILED."`
	CancelledAt  *time.Time      `json:"cancelledAt,omitempty"`
	Error        string          `json:"error,omitempty" doc:"Why it FAILED."`
	LastSeq      int64           `json:"lastSeq" doc:"Number of its last event so far; 0: it has none."`
}

// Size is how many bytes of a list's page the run takes.
func (r *Run) Size() int {
	return len(r.AppPackage) + len(r.DeviceConfig) + len(r.Goal) + len(r.Error) + runOverhead
}

// runOverhead is about what a run takes besides its texts.
const runOverhead = 512

// NewRun is what the creator of a run decides.
type NewRun struct {
	AppPackage   string          // required, at most 255 characters
	DeviceConfig json.RawMessage // a JSON object, or nil
	MaxSteps     int             // nodes a worker runs before it ends the run; 0: 100 (FR-006), at most MaxMaxSteps
	Goal         string
	Crawler      string // who crawls it; "": External

	// IdempotencyKey makes a second Create with the same key and the same content return the run of
	// the first. "": each Create makes a run.
	IdempotencyKey string
}

// RunFilter chooses runs. The zero value chooses all of a tenant.
type RunFilter struct {
	Status     Status
	AppPackage string
	// Before continues a list: the runs after this one in it, which are older. The zero Cursor
	// begins with the newest.
	Before Cursor
	Limit  int // 0: 50, at most 500
}

// Cursor is the place of a run in a list, newest first.
type Cursor struct {
	CreatedAt time.Time
	ID        uuid.UUID
}

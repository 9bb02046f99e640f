package gateway

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/server/crawl"
)

// answers bounds the bytes of the answers that are being made, or wait for their clients to receive
// them. Sixty clients that ask for the largest list and read nothing would else cost gigabytes.
type answers struct {
	total  *semaphore.Weighted
	shares *crawl.Shares
}

// tenantsPart is how much of the whole a tenant may use.
const tenantsPart = 8

func newAnswers(bytes int64) *answers {
	bytes = max(bytes, tenantsPart*crawl.PageBytes) // the largest answer must fit
	return &answers{total: semaphore.NewWeighted(bytes), shares: crawl.NewShares(bytes / tenantsPart)}
}

var (
	errTenantBusy = errors.New("the answers that this tenant is receiving are as large as they may be together: " +
		"receive them, then ask again")
	errBusy = errors.New("the answers that are being received are as large as they may be together: try again")
)

// reserve waits for room for an answer of so many bytes, as long as ctx lasts.
func (a *answers) reserve(ctx context.Context, tenant string, bytes int64) (*reservation, error) {
	part, err := a.shares.Take(ctx, tenant, bytes)
	if err != nil {
		return nil, errTenantBusy
	}
	if a.total.Acquire(ctx, bytes) != nil {
		part.Release()
		return nil, errBusy
	}
	return &reservation{answers: a, part: part, bytes: bytes}, nil
}

// reservation is the room of one answer.
type reservation struct {
	answers *answers
	part    *crawl.Part
	bytes   int64
}

// shrink gives back what the answer turned out not to need.
func (r *reservation) shrink(bytes int64) {
	if excess := r.bytes - bytes; excess > 0 {
		r.answers.total.Release(excess)
		r.part.Shrink(bytes)
		r.bytes = bytes
	}
}

// release gives everything back.
func (r *reservation) release() {
	r.shrink(0)
	r.part.Release()
}

type answerKey struct{}

// answer is the one that a request gets. guard gives its room back when it has been written.
type answer struct {
	room   *reservation
	tenant string
	calls  *crawl.Shares // nil: no limit
	place  *crawl.Part   // of calls, while the handler runs

	patience time.Duration // how long a request waits for its place
}

// size counts what of a page takes room.
type size int64

// The most that one run, and one event, can take.
const (
	runSize   = size(4*(crawl.MaxGoal+crawl.MaxError) + crawl.MaxDeviceConfig + 1024)
	eventSize = size(outbox.DefaultMaxPayload + 1024)
)

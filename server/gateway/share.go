package gateway

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outboxrelay/outbox/server/crawl"
)

// Register adds an operation to the API of a gateway. At most Config.MaxCalls requests of one
// tenant are in their handlers at a time, so that no tenant holds all database connections. The
// others wait; when their time is over, they are answered with 429, which the description of every
// operation names. Writing the answer does not count.
func Register[I, O any](api huma.API, op huma.Operation, do func(context.Context, *I) (*O, error)) {
	op.Errors = append(op.Errors, http.StatusTooManyRequests)
	huma.Register(api, op, func(ctx context.Context, in *I) (out *O, err error) {
		if failed := InShare(ctx, func() { out, err = do(ctx, in) }); failed != nil {
			return nil, failed
		}
		return out, err
	})
}

// InShare calls fn as one of the requests that the tenant may have at a time, or returns the answer
// that refuses it. It is for what a request still asks of the database after its handler has
// returned, such as the pages of a replay.
func InShare(ctx context.Context, fn func()) error {
	a, ok := ctx.Value(answerKey{}).(*answer)
	if !ok || a.calls == nil {
		fn()
		return nil
	}
	if err := a.take(ctx); err != nil {
		return err
	}
	defer a.yield()
	fn()
	return nil
}

// take waits for a place of the tenant's share, at most Config.Timeout.
func (a *answer) take(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, a.patience)
	defer cancel()
	if a.place, err = a.calls.Take(ctx, a.tenant, 1); err != nil {
		a.place = nil
		return later(http.StatusTooManyRequests, "5",
			"this tenant has as many requests in progress as it may have at a time: try again")
	}
	return nil
}

// yield gives the place back.
func (a *answer) yield() {
	if a.place != nil {
		a.place.Release()
		a.place = nil
	}
}

// outsideShare gives back the request's place, calls fn, and takes a place again. It is for an fn
// that waits for something other than the database, so that the wait keeps no other request of the
// tenant from its place.
func outsideShare(ctx context.Context, fn func()) error {
	a, ok := ctx.Value(answerKey{}).(*answer)
	if !ok || a.place == nil {
		fn()
		return nil
	}
	a.yield()
	fn()
	return a.take(ctx)
}

// newCalls returns the shares of the tenants; nil: there is no limit.
func newCalls(most int) *crawl.Shares {
	if most <= 0 {
		return nil
	}
	return crawl.NewShares(int64(most))
}

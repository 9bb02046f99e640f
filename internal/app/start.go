package app

import (
	"context"
	"log/slog"
	"time"
)

// openLimit bounds one attempt to open something, so that a server that takes connections and says nothing is noticed
// too.
const openLimit = 15 * time.Second

// await calls open until it succeeds, ctx ends, or it fails in a way that waiting does not cure: a daemon is often
// started before its servers are. what is named in the log and in the part's readiness report.
func await(ctx context.Context, log *slog.Logger, p *part, what string, open func(context.Context) error) error {
	return tryOpening(ctx, open, func(err error, pause time.Duration) (again bool) {
		if !passing(err) {
			return false
		}
		p.wait("waiting for " + what + ": " + err.Error())
		log.Warn("waiting for "+what, "part", p.name, "error", err, "retry_in", pause.String())
		return true
	})
}

// tryOpening calls open until it succeeds, ctx ends, or failed, which is told each failure and the pause after it, does
// not want it again.
func tryOpening(
	ctx context.Context, open func(context.Context) error, failed func(err error, pause time.Duration) (again bool),
) error {
	for pause := 500 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		attempt, cancel := context.WithTimeout(ctx, openLimit)
		err := open(attempt)
		cancel()
		if err == nil || ctx.Err() != nil || !failed(err, pause) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

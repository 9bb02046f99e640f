package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/outboxrelay/outbox/server/token"
)

// live lists every answer in progress by the token of its request. If a token expires or is
// revoked, its answers end: streams, requests that wait, and replays of dead letters.
type live struct {
	mu      sync.Mutex
	byToken map[string]map[*answering]struct{}
}

// answering is an answer in progress.
type answering struct {
	cancel context.CancelCauseFunc
	w      *watched // nil only in a test
}

// errTokenOver is the cause with which the context of such an answer ends.
var errTokenOver = fmt.Errorf("%w: it has expired or was revoked", token.ErrUnauthorized)

// lastWrite limits the writes of an answer whose token is no longer valid, so that a client that
// receives slowly does not delay the end.
const lastWrite = 500 * time.Millisecond

// begin records who makes a request, or why it is refused, for the log line. The returned context
// ends when the token expires or is revoked. Every authenticated request passes here.
func (g gate) begin(
	ctx context.Context, w http.ResponseWriter, who token.Principal, err error,
) (context.Context, context.CancelFunc) {
	note(w, who, err)
	if err != nil || who.Token == "" {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	a := &answering{cancel: cancel}
	a.w, _ = w.(*watched)
	g.live.mu.Lock()
	defer g.live.mu.Unlock()
	if g.live.byToken[who.Token] == nil {
		g.live.byToken[who.Token] = map[*answering]struct{}{}
	}
	g.live.byToken[who.Token][a] = struct{}{}
	return ctx, func() {
		cancel(nil)
		g.live.mu.Lock()
		defer g.live.mu.Unlock()
		if delete(g.live.byToken[who.Token], a); len(g.live.byToken[who.Token]) == 0 {
			delete(g.live.byToken, who.Token)
		}
	}
}

// tokens returns the ids of the tokens that have answers in progress.
func (l *live) tokens() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.byToken))
}

// end ends the answers of a token and returns their number.
func (l *live) end(id string) (answers int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for a := range l.byToken[id] {
		a.cancel(errTokenOver)
		if a.w != nil {
			a.w.endBy(time.Now().Add(lastWrite))
		}
	}
	return len(l.byToken[id])
}

// endRevoked is Gateway.Run.
func (g gate) endRevoked(ctx context.Context) error {
	if g.cfg.Auth == nil {
		<-ctx.Done()
		return nil
	}
	timer := time.NewTicker(g.cfg.Streams.TokenCheck)
	defer timer.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		err := g.checkTokens(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			g.log.WarnContext(ctx, "cannot check the tokens of answers in progress, trying again", "error", err)
		}
		failing = err != nil
	}
}

// tokensAtOnce bounds one question.
const tokensAtOnce = 1000

// checkTokens asks for all tokens with answers in progress, and ends the answers of those that are
// no longer valid.
func (g gate) checkTokens(ctx context.Context) error {
	var problems []error
	for some := range slices.Chunk(g.live.tokens(), tokensAtOnce) {
		valid, err := g.validTokens(ctx, some)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for _, id := range some {
			if !slices.Contains(valid, id) {
				n := g.live.end(id)
				g.log.InfoContext(ctx, "ended the answers of a token that is no longer valid", "token", id, "answers", n)
			}
		}
	}
	return errors.Join(problems...)
}

func (g gate) validTokens(ctx context.Context, ids []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.Streams.TokenCheck)
	defer cancel()
	return g.cfg.Auth.Store.ValidTokens(ctx, ids)
}

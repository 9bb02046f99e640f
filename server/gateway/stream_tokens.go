package gateway

import (
	"context"
	"errors"
	"time"
)

// Run ends streams whose tokens have expired or were revoked, until ctx ends. Without it they last as long as their
// connections.
func (g *Gateway) Run(ctx context.Context) error {
	if g.cfg.Auth == nil {
		<-ctx.Done()
		return nil
	}
	timer := time.NewTicker(g.streams.cfg.TokenCheck)
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
			g.log.WarnContext(ctx, "cannot ask which tokens of open streams are valid still, trying again", "error", err)
		}
		failing = err != nil
	}
}

// tokensAtOnce bounds one question.
const tokensAtOnce = 1000

// checkTokens asks for all tokens with open streams, and ends the streams of those that are not valid any more.
func (g *Gateway) checkTokens(ctx context.Context) error {
	open := g.streams.connections.byToken()
	ids := make([]string, 0, len(open))
	for id := range open {
		ids = append(ids, id)
	}
	var problems []error
	for len(ids) > 0 {
		some := ids[:min(len(ids), tokensAtOnce)]
		ids = ids[len(some):]
		valid, err := g.validTokens(ctx, some)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		over := make(map[string]bool, len(some))
		for _, id := range some {
			over[id] = true
		}
		for _, id := range valid {
			delete(over, id)
		}
		for id := range over {
			g.log.InfoContext(ctx, "ending the streams of a token that is not valid any more", "token", id, "streams",
				len(open[id]))
			for _, c := range open[id] {
				c.end()
			}
		}
	}
	return errors.Join(problems...)
}

func (g *Gateway) validTokens(ctx context.Context, ids []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, g.streams.cfg.TokenCheck)
	defer cancel()
	return g.cfg.Auth.Store.ValidTokens(ctx, ids)
}

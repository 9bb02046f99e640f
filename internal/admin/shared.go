package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Aged is of requests that pages send again and again. Many who look at the same share one answer.
type Aged struct {
	CacheControl string `header:"Cache-Control" json:"-" maxLength:"100" doc:"max-age=SECONDS takes an answer of that age, too."`
}

// oldest is the longest that an answer is kept for others.
const oldest = 15 * time.Second

// mostShared is of how many different requests answers are kept.
const mostShared = 100

// age is how old an answer may be (RFC 9111, 5.2.1.1).
func (a Aged) age() time.Duration {
	for directive := range strings.SplitSeq(a.CacheControl, ",") {
		seconds, ok := strings.CutPrefix(strings.TrimSpace(directive), "max-age=")
		if n, err := strconv.Atoi(seconds); ok && err == nil {
			return min(time.Duration(n)*time.Second, oldest)
		}
	}
	return 0
}

// shared is an answer that others may have too. out and err are there when done is closed.
type shared struct {
	asked time.Time
	done  chan struct{}
	out   any
	err   error
}

// sharing answers a request that takes an older answer with that of the same request of the same
// tenant.
func sharing[I interface{ age() time.Duration }, O any](
	d *Desk, operation string, ask func(context.Context, *I) (*O, error),
) func(context.Context, *I) (*O, error) {
	return func(ctx context.Context, in *I) (*O, error) {
		age := (*in).age()
		asked, err := json.Marshal(in)
		if age == 0 || err != nil {
			return ask(ctx, in)
		}
		s := d.share(fmt.Sprintf("%s %q %s", operation, tenantOf(ctx), asked), age, func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), oldest) // whoever asked first may leave
			defer cancel()
			return ask(ctx, in)
		})
		select {
		case <-s.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		out, _ := s.out.(*O)
		return out, s.err
	}
}

// share returns an answer that was asked for within age, or asks.
func (d *Desk) share(request string, age time.Duration, ask func() (any, error)) *shared {
	d.mu.Lock()
	defer d.mu.Unlock()
	for r, s := range d.shared {
		if time.Since(s.asked) > oldest {
			delete(d.shared, r)
		}
	}
	if s, ok := d.shared[request]; ok && time.Since(s.asked) <= age {
		return s
	}
	s := &shared{asked: time.Now(), done: make(chan struct{})}
	if len(d.shared) < mostShared {
		d.shared[request] = s
	}
	go func() {
		defer close(s.done)
		s.out, s.err = ask()
	}()
	return s
}

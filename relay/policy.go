package relay

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/backoff"
)

// Backoff is how long to wait before the next attempt: Base after the first failure, Factor times
// longer after each further one, never more than Cap. Each is spread by ± Jitter (a fraction) so
// that what failed together does not return together.
type Backoff struct {
	Base   time.Duration
	Factor float64
	Cap    time.Duration
	Jitter float64
}

func (b Backoff) delay(failures int) time.Duration { return backoff.Backoff(b).Delay(failures) }

// RetryPolicy is how often and how fast to try again at some destinations.
type RetryPolicy struct {
	// Destination is a name, or a pattern as of path.Match: orders.* fits orders.created. A * does
	// not match a slash.
	Destination string
	MaxAttempts int     // (the relay's)
	Backoff     Backoff // each field that is zero is the relay's
}

// complete returns policies whose gaps are filled from def. The caller's own stay as they are.
func complete(policies []RetryPolicy, of string, def RetryPolicy, problems *[]error) []RetryPolicy {
	policies = slices.Clone(policies)
	for i := range policies {
		p, field := &policies[i], fmt.Sprintf("%sPolicies[%d]", of, i)
		add := func(format string, args ...any) {
			*problems = append(*problems, fmt.Errorf(field+"."+format, args...))
		}
		if _, err := path.Match(p.Destination, ""); err != nil || p.Destination == "" {
			wanted := errors.New("want a name or a pattern such as orders.*")
			add("Destination is %q: %w", p.Destination, errors.Join(err, wanted))
		}
		if p.MaxAttempts = cmp.Or(p.MaxAttempts, def.MaxAttempts); p.MaxAttempts < 0 {
			add("MaxAttempts is %d, must be positive", p.MaxAttempts)
		}
		p.Backoff = p.Backoff.withDefaults(def.Backoff)
		p.Backoff.check(field+".Backoff", problems)
	}
	return policies
}

// withDefaults returns b with its zero fields taken from def. A negative Jitter is none.
func (b Backoff) withDefaults(def Backoff) Backoff {
	b.Base, b.Cap = cmp.Or(b.Base, def.Base), cmp.Or(b.Cap, def.Cap)
	b.Factor, b.Jitter = cmp.Or(b.Factor, def.Factor), max(cmp.Or(b.Jitter, def.Jitter), 0)
	return b
}

func (b Backoff) check(field string, problems *[]error) {
	add := func(format string, args ...any) {
		*problems = append(*problems, fmt.Errorf(field+"."+format, args...))
	}
	if b.Base < 0 {
		add("Base is %s, must be positive", b.Base)
	}
	if b.Cap < 0 {
		add("Cap is %s, must be positive", b.Cap)
	}
	if b.Factor < 1 {
		add("Factor is %g, must be at least 1", b.Factor)
	}
	if b.Jitter > 1 {
		add("Jitter is %g, must be at most 1 (a delay would be negative)", b.Jitter)
	}
}

// completeRetention returns r with its zero fields taken from def.
func completeRetention(r, def outbox.Retention) outbox.Retention {
	r.After, r.Archive = cmp.Or(r.After, def.After), cmp.Or(r.Archive, def.Archive)
	r.Batch, r.Every = cmp.Or(r.Batch, def.Batch), cmp.Or(r.Every, def.Every)
	r.Logger = cmp.Or(r.Logger, def.Logger)
	if r.Observer == nil {
		r.Observer = def.Observer
	}
	return r
}

func checkRetention(r outbox.Retention, field string, problems *[]error) {
	if r.Batch < 0 {
		*problems = append(*problems, fmt.Errorf("%s.Batch is %d, must be positive", field, r.Batch))
	}
	if r.Every < 0 {
		*problems = append(*problems, fmt.Errorf("%s.Every is %s, must be positive", field, r.Every))
	}
}

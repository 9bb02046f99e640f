package relay

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
)

func TestPolicyOfADestination(t *testing.T) {
	t.Parallel()
	given := []RetryPolicy{
		{Destination: "orders.vip", MaxAttempts: 1},
		{Destination: "orders.*", MaxAttempts: 9, Backoff: Backoff{Base: time.Minute}},
		{Destination: "https://*/hook", Backoff: Backoff{Jitter: -1, Cap: time.Hour}},
	}
	r, err := relayOf(nil, nil, Config{MaxAttempts: 3,
		Backoff: Backoff{Base: time.Second, Factor: 3, Cap: time.Minute, Jitter: 0.1}, Policies: given})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		destination string
		attempts    int
		backoff     Backoff
	}{
		{"orders.vip", 1, Backoff{time.Second, 3, time.Minute, 0.1}},
		{"orders.created", 9, Backoff{time.Minute, 3, time.Minute, 0.1}},
		{"https://example.org/hook", 3, Backoff{time.Second, 3, time.Hour, 0}},
		{"https://example.org/deep/hook", 3, Backoff{time.Second, 3, time.Minute, 0.1}},
		{"", 3, Backoff{time.Second, 3, time.Minute, 0.1}},
		{"[", 3, Backoff{time.Second, 3, time.Minute, 0.1}},
	} {
		if p := r.cfg.table.policy(c.destination); p.MaxAttempts != c.attempts || p.Backoff != c.backoff {
			t.Errorf("%s: %+v", c.destination, p)
		}
	}
	if given[0].Backoff != (Backoff{}) {
		t.Error("the caller's policies were filled in")
	}
}

func TestPolicyProblemsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := relayOf(nil, nil, Config{Policies: []RetryPolicy{
		{},
		{Destination: "[a", MaxAttempts: -1},
		{Destination: "a", Backoff: Backoff{Base: -1, Cap: -1, Factor: 0.5, Jitter: 2}},
	}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Policies[0].Destination", "Policies[1].Destination", "Policies[1].MaxAttempts",
		"Policies[2].Backoff.Base", "Policies[2].Backoff.Cap",
		"Policies[2].Backoff.Factor", "Policies[2].Backoff.Jitter"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing about %s in: %v", want, err)
		}
	}
}

// Of several destinations the longest wait counts, and the record lives as long as one of them may
// be tried again.
func TestJudgeBySeveralPolicies(t *testing.T) {
	t.Parallel()
	r, err := relayOf(nil, nil, Config{MaxAttempts: 5, Backoff: Backoff{Base: time.Second, Jitter: -1},
		Policies: []RetryPolicy{
			{Destination: "once", MaxAttempts: 1},
			{Destination: "slow", MaxAttempts: 2, Backoff: Backoff{Base: time.Minute}},
		}})
	if err != nil {
		t.Fatal(err)
	}
	failed := outbox.Result{Err: errors.New("broken")}
	for _, c := range []struct {
		to       []string
		attempts int
		want     outbox.State
		wait     time.Duration
	}{
		{[]string{"once"}, 0, outbox.Dead, 0},
		{[]string{"slow"}, 0, outbox.Retry, time.Minute},
		{[]string{"slow"}, 1, outbox.Dead, 0},
		{[]string{"once", "slow"}, 0, outbox.Retry, time.Minute},
		{[]string{"once", "slow"}, 1, outbox.Dead, 0},
		{[]string{"once", "other", "slow"}, 1, outbox.Retry, 2 * time.Minute},
		{[]string{"once", "other", "slow"}, 4, outbox.Dead, 0},
	} {
		rec := &outbox.Record{Event: outbox.Event{Topic: "t", Destinations: c.to}, Attempts: c.attempts}
		batch, owner, _ := r.route([]*outbox.Record{rec}, outbox.HeldKeys{})
		results := make([]outbox.Result, len(batch))
		for i := range results {
			results[i] = failed
		}
		v := r.verdict([]*outbox.Record{rec}, batch, owner, results, nil, false)
		if len(v.outcomes) != 1 || v.outcomes[0].State != c.want || v.outcomes[0].RetryIn != c.wait ||
			len(v.outcomes[0].Failures) != len(c.to) {
			t.Errorf("%v after %d attempts: %+v", c.to, c.attempts, v.outcomes)
		}
	}
}

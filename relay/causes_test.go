package relay

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
)

func TestCausesAreLoggedOnceAMinute(t *testing.T) {
	var c causes
	now := time.Now()
	full, refused := cause{"orders", "full"}, cause{"orders", "refused"}
	for _, step := range []struct {
		of    cause
		after time.Duration
		want  int
	}{
		{full, 0, 1}, {full, time.Second, 0}, {full, time.Second, 0}, {refused, 0, 1}, {full, 58 * time.Second, 3},
		{full, 0, 0},
		{refused, 10 * time.Minute, 1},
	} {
		now = now.Add(step.after)
		if got := c.failure(step.of, now); got != step.want {
			t.Errorf("%v after %s: %d, want %d", step.of, step.after, got, step.want)
		}
	}
}

// A cause for each of many destinations is no reason to keep, or log, as many.
func TestCausesAreBounded(t *testing.T) {
	var c causes
	now := time.Now()
	lines := 0
	for n := range 10 * causesKnown {
		if c.failure(cause{fmt.Sprint("run:", n), "refused"}, now) > 0 {
			lines++
		}
	}
	if len(c.known) > causesKnown+1 || lines > causesKnown+1 {
		t.Errorf("%d causes kept, %d lines", len(c.known), lines)
	}
	for n := range causesKnown { // each strikes no more: they make room
		now = now.Add(causeEvery)
		c.failure(cause{fmt.Sprint("later:", n), "refused"}, now)
	}
	if _, ok := c.known[cause{fmt.Sprint("later:", causesKnown-1), "refused"}]; !ok {
		t.Error("a new cause is not known although the old ones are over")
	}
}

func TestFailuresAreLogged(t *testing.T) {
	var log bytes.Buffer
	r := &tableRelay{cfg: tableConfig{table: Table{Layout: outbox.Layout{Table: "orders"}}}}
	r.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	record := &outbox.Record{Event: outbox.Event{Topic: "order.placed"}}
	failed := outbox.Outcome{Record: record, State: outbox.Retry, Attempts: 1, RetryIn: time.Second,
		Failures: []outbox.Failure{{Destination: "a", Error: "no"}}}
	dead := outbox.Outcome{Record: record, State: outbox.Dead, Attempts: 5,
		Failures: []outbox.Failure{{Destination: "a", Error: "no", Reason: outbox.ReasonDeliveryFailed}}}
	r.logFailures(
		[]outbox.Outcome{
			failed,
			failed,
			{Record: record, State: outbox.Delivered},
			{Record: record, State: outbox.Retry},
			dead,
			dead,
		},
		nil,
	)
	if text := log.String(); strings.Count(text, "delivery failed") != 1 || strings.Count(text, `"dead letter"`) != 2 ||
		!strings.Contains(text, `destination=a`) || !strings.Contains(text, "error=no") ||
		!strings.Contains(text, "reason=DeliveryFailed") {
		t.Errorf("logged\n%s", text)
	}
}

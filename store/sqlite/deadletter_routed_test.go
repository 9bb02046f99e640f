package sqlite

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/relay"
)

// Letters of a routed table are of outbox_deliveries. Nobody need name it.
func TestLettersOfRoutedTables(t *testing.T) {
	t.Parallel()
	db := filled(t)
	manyEvents(t, db, 1, "a")
	takes := outbox.SinkFunc(func(context.Context, outbox.Delivery) error { return nil })
	refuses := outbox.SinkFunc(func(context.Context, outbox.Delivery) error {
		return outbox.Permanent(errors.New("too large"))
	})
	relay, err := relay.New(db, nil, relay.Config{Logger: slog.New(slog.DiscardHandler),
		Sinks: map[string]outbox.Sink{"a": takes, "b": refuses},
		Tables: []relay.Table{{Layout: outbox.OutboxEvents(),
			Routes: []relay.Route{{To: []relay.Target{{Sink: "a"}, {Sink: "b"}}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- relay.Run(ctx) }()
	for deadline := time.Now().Add(tier.Patience()); value(t, db, "SELECT count(*) FROM job_dlq") != "1" &&
		time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for name, layouts := range map[string][]outbox.Layout{
		"not named": {outbox.OutboxEvents()}, "none named": nil, "named": {outbox.DeliveriesOf("", "")},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := OpenDeadLetters(t.Context(), db, DeadLettersConfig{Layouts: layouts})
			if err != nil {
				t.Fatal(err)
			}
			sum, err := deadletter.Replay(t.Context(), d, deadletter.ReplayOptions{
				Selection: deadletter.Selection{All: true}, Operator: deadletter.Operator{Actor: "test"}})
			if err != nil || sum.Letters != 1 || sum.Skipped != 0 {
				t.Errorf("replayed %+v, %v, want the one letter", sum, err)
			}
			exec(t, db, "UPDATE outbox_deliveries SET status = 'dead'")
			exec(t, db, "UPDATE job_dlq SET replayed_at = NULL")
		})
	}
}

package app

import (
	"log/slog"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/config"
)

// The settings of the command that the library has under other names reach it.
func TestRelaySettings(t *testing.T) {
	c := config.Config{PollMax: time.Second, RouteTimeout: 2 * time.Second, LeaseTTL: 3 * time.Second}
	got, err := newRelay(newProcess(c, slog.New(slog.DiscardHandler), partRelay), &waker{}).config(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.PollMax != time.Second || got.RouteTimeout != 2*time.Second || got.LeaseTTL != 3*time.Second {
		t.Errorf("the library is given %+v", got)
	}
}

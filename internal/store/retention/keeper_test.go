package retention

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/backoff"
)

// slow is a table of which each page takes a second to remove. (What a real one does is tested
// beside store/postgres.)
type slow struct {
	pages    int
	downTill time.Time
	busyTill time.Time
	leases   []time.Time
	released []Done
}

func (s *slow) Lease(context.Context, LeaseRequest) (Lease, error) {
	s.leases = append(s.leases, time.Now())
	if time.Now().Before(s.downTill) {
		return Lease{}, errors.New("down")
	}
	return Lease{Held: !time.Now().Before(s.busyTill), SinceSweep: 25 * time.Hour}, nil
}

func (s *slow) Release(_ context.Context, _ uuid.UUID, done Done) error {
	s.released = append(s.released, done)
	return nil
}

func (s *slow) Find(_ context.Context, search Search, row func(Row) error) (string, error) {
	s.pages--
	if s.pages < 0 {
		return "", nil
	}
	return "next", row(Row{})
}

func (s *slow) Remove(ctx context.Context, _ Removal) (Removed, error) {
	backoff.Wait(ctx, time.Second)
	return Removed{Rows: 1}, ctx.Err()
}

func newSlow(t *testing.T, pages int) (*slow, *Keeper, *bytes.Buffer) {
	t.Helper()
	s := &slow{pages: pages}
	var log bytes.Buffer
	k, err := New(s, Config{Table: "t", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return s, k, &log
}

// A run rests as long as it works, keeps its lease, and says every ten seconds how far it is.
func TestRunIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, k, log := newSlow(t, 30)
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		if err := k.Run(ctx); err != nil {
			t.Fatal(err)
		}
		for i, asked := range s.leases[1:6] {
			if apart := asked.Sub(s.leases[i]); apart > k.cfg.LeaseTTL/2 {
				t.Errorf("lease asked for after %s of %s", apart, k.cfg.LeaseTTL)
			}
		}
		text := log.String()
		if n := strings.Count(text, "removing old rows"); n != 5 { // in 60 s
			t.Errorf("%d lines on the way, want 5:\n%s", n, text)
		}
		if !strings.Contains(text, `"removed old rows" table=t action=archived rows=30 took=1m0s`) {
			t.Errorf("30 batches of a second each did not take a minute:\n%s", text)
		}
		if len(s.released) != 1 || s.released[0] != (Done{Rows: 30, Swept: true}) {
			t.Errorf("released %+v, want once, as a sweep", s.released)
		}
	})
}

func TestRunStopsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, k, _ := newSlow(t, 1000)
		ctx, cancel := context.WithTimeout(t.Context(), 10500*time.Millisecond)
		defer cancel()
		start := time.Now()
		if err := k.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 10500*time.Millisecond || len(s.released) != 1 || s.released[0].Swept {
			t.Errorf("ended after %s, released %+v, want at once, and not as a whole sweep", took, s.released)
		}
	})
}

func TestRunFailureIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, k, log := newSlow(t, 0)
		s.downTill = time.Now().Add(5*time.Minute + time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute+30*time.Second)
		defer cancel()
		if err := k.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if text := log.String(); strings.Count(text, "cannot remove old rows") != 1 ||
			strings.Count(text, "can be removed again") != 1 || strings.Count(text, "\n") != 2 {
			t.Errorf("the log has:\n%s", text)
		}
		if len(s.leases) != 10 {
			t.Errorf("%d attempts in ten minutes", len(s.leases))
		}
	})
}

// By hand one waits for a relay's run, but not for ever.
func TestPurgeWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, k, _ := newSlow(t, 1)
		start := time.Now()
		s.busyTill = start.Add(4 * time.Second)
		if _, err := k.Purge(t.Context(), 3*time.Second, nil); !errors.Is(err, ErrBusy) ||
			time.Since(start) != 3*time.Second {
			t.Errorf("got error %v after %s, want ErrBusy after 3s", err, time.Since(start))
		}
		if report, err := k.Purge(t.Context(), 3*time.Second, nil); err != nil || report.Rows != 1 {
			t.Errorf("got %+v, error %v, want its turn", report, err)
		}
	})
}

package deadletter_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/deadletter"
)

// pile is letters to replay, every tenth of which cannot be. The stores' own tests show that a real
// one keeps the promises.
type pile struct {
	deadletter.Store
	left    int
	pages   []deadletter.ReplayRequest
	at      []time.Time
	takes   time.Duration
	failing error
}

func (p *pile) ReplayPage(ctx context.Context, r deadletter.ReplayRequest) (deadletter.ReplayPage, error) {
	p.pages, p.at = append(p.pages, r), append(p.at, time.Now())
	time.Sleep(p.takes)
	if ctx.Err() != nil || p.failing != nil {
		return deadletter.ReplayPage{}, errors.Join(ctx.Err(), p.failing)
	}
	page := deadletter.ReplayPage{Replayed: map[string]int{}}
	for range min(r.Limit, p.left) {
		if p.left%10 == 0 {
			page.Skipped = append(page.Skipped, deadletter.Skipped{ID: uuid.New(), Why: "tenth"})
		} else {
			page.Replayed["t"]++
		}
		p.left--
	}
	if p.left > 0 {
		page.Next = fmt.Sprint(p.left)
	}
	return page, nil
}

func TestReplayKeepsItsRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &pile{left: 1000, takes: 10 * time.Millisecond}
		began := time.Now()
		sum, err := deadletter.Replay(t.Context(), p,
			deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}, Rate: 100})
		if err != nil || sum.Letters != 900 || sum.Tables["t"] != 900 || sum.Skipped != 100 || len(sum.Reasons) != 1 ||
			sum.Reasons[0].Count != 100 || len(sum.Reasons[0].First) != 10 {
			t.Fatalf("got %+v, error %v", sum, err)
		}
		// The last page needs no pause after it.
		if took := time.Since(began); took < 8500*time.Millisecond || took > 9100*time.Millisecond {
			t.Errorf("900 letters at 100 a second took %s", took)
		}
		for i, r := range p.pages {
			if r.Limit != 25 || r.Run != p.pages[0].Run || r.Run == uuid.Nil || (r.After == "") != (i == 0) {
				t.Fatalf("page %d was %+v", i, r)
			}
			if i > 0 && p.at[i].Sub(p.at[i-1]) > 300*time.Millisecond {
				t.Errorf("page %d came %s after the one before: it should flow", i, p.at[i].Sub(p.at[i-1]))
			}
		}
	})
}

func TestReplayStopsBetweenPages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &pile{left: 2000, takes: time.Second}
		// In the middle of the second page, which is finished.
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		sum, err := deadletter.Replay(ctx, p, deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}})
		if !errors.Is(err, context.DeadlineExceeded) || sum.Letters != 900 || len(p.pages) != 2 {
			t.Errorf("got %+v after %d pages, error %v", sum, len(p.pages), err)
		}
		p.failing = errors.New("disk full")
		if sum, err := deadletter.Replay(t.Context(), p,
			deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}}); !errors.Is(err, p.failing) ||
			sum.Letters != 0 {
			t.Errorf("got %+v, error %v", sum, err)
		}
	})
}

func TestFilterInTheRecord(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(deadletter.Selection{Filter: deadletter.Filter{Type: "t", Limit: 7, After: "x"}})
	if err != nil || string(text) != `{"type":"t"}` {
		t.Errorf("got %s, error %v: it should say how letters were chosen and no more", text, err)
	}
}

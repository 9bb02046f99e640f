package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/server/crawl"
)

// gated is a log whose pages are read when they are let to.
type gated struct {
	crawl.Store
	reading chan struct{} // told of each page
	let     chan struct{}
	ended   chan error // the context's, after each page
}

func (g *gated) ListEvents(ctx context.Context, _ string, _ uuid.UUID, _ int64, _ int) ([]crawl.Event, error) {
	g.reading <- struct{}{}
	select {
	case <-g.let:
	case <-ctx.Done():
	}
	g.ended <- ctx.Err()
	return nil, ctx.Err()
}

func TestPagesAreReadAFewAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gated{reading: make(chan struct{}, 9), let: make(chan struct{}), ended: make(chan error, 9)}
		log := Log(g, 2)
		returned := make(chan error, 9)
		ctx, leave := context.WithCancel(t.Context())
		deadline, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		for range 3 {
			go func() {
				_, err := log.Page(deadline, "acme", uuid.Nil, 0, 500)
				returned <- err
			}()
		}
		synctest.Wait()
		if len(g.reading) != 2 {
			t.Fatalf("%d pages are being read, want 2", len(g.reading))
		}
		leave() // the one that waits goes; the others have a query under way
		synctest.Wait()
		if len(returned) != 1 || !errors.Is(<-returned, context.Canceled) || len(g.ended) != 0 {
			t.Fatalf("%d more pages returned, %d queries ended", len(returned), len(g.ended))
		}
		g.let <- struct{}{}
		if err := <-g.ended; err != nil || <-returned != nil {
			t.Errorf("the query's context ended with its client: %v", err)
		}
		time.Sleep(time.Minute) // the deadline holds all the same
		synctest.Wait()
		if len(g.ended) != 1 || !errors.Is(<-g.ended, context.DeadlineExceeded) {
			t.Error("a page has no time limit")
		}
	})
}

// A hub keeps the last messages of a page. It must not keep the page's megabytes with them.
func TestMessagesOfALargePageDoNotHoldIt(t *testing.T) {
	t.Parallel()
	events := make([]crawl.Event, 8)
	for i := range events {
		events[i] = crawl.Event{Run: uuid.New(), Tenant: "acme", Seq: int64(i + 1), ID: uuid.New(), Type: "A",
			CreatedAt: time.Now(), Payload: json.RawMessage(`"` + strings.Repeat("x", 100_000) + `"`)}
	}
	for _, c := range []struct {
		events int
		shared bool
	}{{2, true}, {8, false}} {
		got := messages(events[:c.events])
		for i, m := range got {
			if string(m.Payload) != string(events[i].Payload) || m.Seq != events[i].Seq || !json.Valid(m.Event) {
				t.Errorf("message %d of %d: %.200s", i, c.events, m.Event)
			}
		}
		first, second := got[0].Event, got[1].Event
		end := reflect.ValueOf(first).Pointer() + uintptr(len(first))
		if shared := end == reflect.ValueOf(second).Pointer(); shared != c.shared {
			t.Errorf("%d messages share one block: %t, want %t", c.events, shared, c.shared)
		}
	}
}

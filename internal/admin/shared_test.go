package admin

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

type listing struct {
	Aged
	Key string
}

// Requests that take an older answer share it; one that does not, and one for something else, are
// asked.
func TestSharing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		failing := false
		list := sharing(NewDesk(DeskConfig{}), "list", func(_ context.Context, in *listing) (*out[string], error) {
			time.Sleep(time.Second)
			asked.Add(1)
			if failing {
				return nil, errors.New("away")
			}
			return &out[string]{in.Key}, nil
		})
		get := func(cache, key string) {
			t.Helper()
			got, err := list(t.Context(), &listing{Aged{cache}, key})
			if failing != (err != nil) || err == nil && got.Body != key {
				t.Errorf("the answer of %s is %v, %v", key, got, err)
			}
		}
		expect := func(when string, n int32) {
			t.Helper()
			if got := asked.Swap(0); got != n {
				t.Errorf("%s: asked %d times, want %d", when, got, n)
			}
		}
		for range 10 {
			go get("max-age=5", "a")
		}
		gone, leave := context.WithCancel(t.Context())
		go func() { _, _ = list(gone, &listing{Aged{"max-age=5"}, "left"}) }()
		synctest.Wait()
		leave() // nobody who waits for the same is left without an answer
		go get("max-age=5", "left")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		expect("ten at once, and one who leaves", 2)
		get("max-age=5", "a")
		get("max-age=5", "b")
		expect("another key", 1)
		get("", "a")
		get("no-cache", "a")
		get("max-age=x", "a")
		expect("no older answer is taken", 3)
		time.Sleep(6 * time.Second)
		get("max-age=5", "a")
		expect("too old", 1)
		failing = true
		get("max-age=5", "c")
		get("max-age=60", "c")
		expect("a refusal is shared as well", 1)
		time.Sleep(oldest + time.Second)
		get("max-age=60", "c")
		expect("no answer is older than 15 s", 1)
	})
}

package crawl

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A worker whose claims fail says so, even while the runs that it has go on well; and which runs it
// began and ended.
func TestWorkerHealth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := false
		m := &memory{}
		m.fault = func(method string) error {
			if method == "ClaimRun" && down {
				return errors.New("permission denied")
			}
			return nil
		}
		m.has(t, "chain")
		var log bytes.Buffer
		w, err := NewWorker(m, []Crawler{chain(takes(time.Minute, nil))},
			WorkerConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		ready := func(want bool) WorkerHealth {
			t.Helper()
			h := w.Health()
			if ok, why := h.Ready(time.Now(), 12*time.Second); ok != want || !ok &&
				!strings.Contains(why, ": permission denied") {
				t.Errorf("ready %t: %s", ok, why)
			}
			return h
		}
		pass(5 * time.Second)
		if h := ready(true); h.Crawling != 1 || h.LastError != "" {
			t.Errorf("got %+v", h)
		}
		m.mu.Lock()
		down = true
		m.mu.Unlock()
		pass(10 * time.Second)
		ready(true)
		pass(10 * time.Second)
		ready(false)
		m.mu.Lock()
		down = false
		m.mu.Unlock()
		pass(time.Minute)
		if h := ready(true); h.Crawling != 0 || !h.FailingSince.IsZero() {
			t.Errorf("got %+v", h)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for _, line := range []string{`msg="claimed a run"`, `msg="run ended"`,
			"crawler=chain resumed=false status=COMPLETED steps=1 took=1m0s"} {
			if !strings.Contains(log.String(), line) {
				t.Errorf("%s is missing in the log:\n%s", line, &log)
			}
		}
	})
}

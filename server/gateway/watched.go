package gateway

import (
	"net/http"
	"sync"
	"time"
)

// watched counts what is answered, and sees to it that a large answer is received. What it wraps
// stays reachable for http.ResponseController, which streams need.
type watched struct {
	http.ResponseWriter
	rc     *http.ResponseController
	until  time.Time     // when all must have been received
	stall  time.Duration // what a part of it may take
	status int
	bytes  int64

	mu  sync.Mutex
	cut time.Time // when the answer ends although it is not complete; zero: not yet known

	// Whoever asks who makes the request sets them.
	token   string // its id
	refused string // why
}

// answerPart is what of a large answer must be received within Config.WriteTimeout. The writes of
// streams are smaller, and have a limit of their own.
const answerPart = 64 << 10

func (w *watched) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *watched) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	written := 0
	for {
		part := b[written:]
		if len(b) > writeSize {
			part = part[:min(len(part), answerPart)]
			_ = w.SetWriteDeadline(earlier(time.Now().Add(w.stall), w.until)) // only a recorder of a test has none
		}
		n, err := w.ResponseWriter.Write(part)
		w.bytes += int64(n)
		if written += n; err != nil || written >= len(b) {
			return written, err
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// SetWriteDeadline is for http.ResponseController. A deadline after the end of the answer is not
// set.
func (w *watched) SetWriteDeadline(at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.cut.IsZero() {
		at = earlier(at, w.cut)
	}
	return w.rc.SetWriteDeadline(at)
}

// endBy has each write of the answer fail after a time, the one in progress too.
func (w *watched) endBy(at time.Time) {
	w.mu.Lock()
	w.cut = at
	w.mu.Unlock()
	_ = w.SetWriteDeadline(at) // only a recorder of a test has none
}

// Unwrap is for http.ResponseController.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

package app

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notifyEvery is how often systemd is told something, if there is something to tell.
const notifyEvery = time.Second

// notify tells systemd of this process until ctx ends, where a unit of Type=notify has started it:
// READY=1 once every part has its database and serves, and STATUS= with what it waits for. A sink
// that is away is in the status alone, since others may be served. WATCHDOG=1 says that the relay's
// loops turn, be it in vain: a server that is away is no reason to begin anew, a loop that stands
// still is one.
func (h *Health) notify(ctx context.Context, log *slog.Logger) {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return
	}
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("systemd expects no sign of life: WATCHDOG_USEC cannot be read", "error", err)
	}
	tell := func(states ...string) {
		if len(states) == 0 {
			return
		}
		if _, err := daemon.SdNotify(false, strings.Join(states, "\n")); err != nil {
			log.Debug("systemd is not told how this process does", "error", err)
		}
	}
	interval := notifyEvery
	if limit > 0 {
		interval = min(interval, limit/4)
	}
	ready, said := false, ""
	every(ctx, interval, func() {
		var states []string
		if !ready && h.opened() {
			ready, states = true, append(states, daemon.SdNotifyReady)
		}
		if status := "STATUS=" + h.Report().line(); status != said {
			said, states = status, append(states, status)
		}
		if now := time.Now(); limit > 0 && now.Sub(h.turned(now)) < limit/2 {
			states = append(states, daemon.SdNotifyWatchdog)
		}
		tell(states...)
	})
	tell(daemon.SdNotifyStopping)
}

// line is the report for who has one line.
func (r Report) line() string {
	if r.Ready {
		return "serving"
	}
	return "not ready: " + strings.Join(strings.Fields(r.Reason), " ")
}

// opened tells whether no part waits for what it needs to begin.
func (h *Health) opened() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !slices.ContainsFunc(h.parts, func(p *part) bool { return p.waiting != "" })
}

// turned is when each of the relay's loops has come by lately, however its turn ended; now, where
// there is none.
func (h *Health) turned(now time.Time) time.Time {
	oldest := now
	for _, t := range h.ofRelay().Tables {
		if !t.Turned.IsZero() && t.Turned.Before(oldest) {
			oldest = t.Turned
		}
	}
	return oldest
}

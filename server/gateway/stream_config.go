package gateway

import (
	"math/rand/v2"
	"time"
)

// StreamConfig holds the settings of streams. Zero values are the defaults.
type StreamConfig struct {
	// Heartbeat is how often a comment is sent when there is nothing else, so that proxies keep the connection and a
	// dead one is noticed (15 s).
	Heartbeat time.Duration
	// WriteTimeout is how long a client may take to receive one write, of at most 16 KiB (10 s). One that takes longer
	// is cut off; it comes back with its cursor.
	WriteTimeout time.Duration
	// Retry is how long a browser waits before it connects again (1 s, up to half as much longer by chance).
	Retry time.Duration
	// MaxAge is how long a connection lives before the client has to connect again, give or take a fifth. So connections
	// spread over gateways again after one was restarted (30 min).
	MaxAge time.Duration
	// DrainWindow is over how long DrainStreams spreads the ends of the connections, so that the clients do not all
	// connect again at once (5 s). Fewer than 500 take less: 10 ms each.
	DrainWindow time.Duration
	// TokenCheck is how often the store is asked which tokens of open streams are valid still (5 s). The streams of one
	// that is not end then.
	TokenCheck time.Duration
	// Connections at a time, of a run, a tenant and the process. More are answered with status 429 (1,000 or a fifth of
	// the tenant's, if that is more; 5,000 and 20,000).
	MaxPerRun, MaxPerTenant, MaxConnections int
	// Topics that the streams of a tenant, and of the process, follow at a time, each counted once. More are answered with
	// status 429 (1,000 and 4,000, or a fifth of the connections, if that is more). Each is a subscription at the broker,
	// and has a memory of its last messages.
	MaxTopicsPerTenant, MaxTopicsFollowed int
	// MaxTopics is how many topics one stream may have (50).
	MaxTopics int
}

func (c StreamConfig) withDefaults() StreamConfig {
	for _, d := range []struct {
		value *time.Duration
		zero  time.Duration
	}{
		{&c.Heartbeat, 15 * time.Second}, {&c.WriteTimeout, 10 * time.Second}, {&c.Retry, time.Second},
		{&c.MaxAge, 30 * time.Minute}, {&c.DrainWindow, 5 * time.Second},
		{&c.TokenCheck, 5 * time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.zero
		}
	}
	for _, n := range []struct {
		value *int
		zero  int
	}{{&c.MaxPerTenant, 5000}, {&c.MaxConnections, 20_000}, {&c.MaxTopics, 50},
		{&c.MaxPerRun, max(1000, c.MaxPerTenant/5)}, {&c.MaxTopicsPerTenant, max(1000, c.MaxPerTenant/5)},
		{&c.MaxTopicsFollowed, max(4000, c.MaxConnections/5)}} {
		if *n.value <= 0 {
			*n.value = n.zero
		}
	}
	return c
}

// drainWindow returns over how long that many connections end.
func (c StreamConfig) drainWindow(open int) time.Duration {
	return min(c.DrainWindow, time.Duration(open)*10*time.Millisecond)
}

// jitter returns d, give or take up to a part of it.
func jitter(d time.Duration, part float64) time.Duration {
	return d + time.Duration((2*rand.Float64()-1)*part*float64(d))
}

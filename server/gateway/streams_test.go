package gateway

import (
	"testing"
	"time"
)

// Who raises the limits of streams has raised those of one run and of topics too. Who lowers them
// has not.
func TestLimitsThatFollowOthers(t *testing.T) {
	t.Parallel()
	for _, f := range []struct {
		tenant, process                   int
		perRun, perTenant, topicsFollowed int
	}{
		{0, 0, 1000, 1000, 4000}, {10, 10, 1000, 1000, 4000}, {50_000, 200_000, 10_000, 10_000, 40_000},
	} {
		c := StreamConfig{MaxPerTenant: f.tenant, MaxConnections: f.process}.withDefaults()
		if c.MaxPerRun != f.perRun || c.MaxTopicsPerTenant != f.perTenant || c.MaxTopicsFollowed != f.topicsFollowed {
			t.Errorf("%+v: got %+v", f, c)
		}
	}
	c := StreamConfig{MaxPerTenant: 50_000, MaxPerRun: 7, MaxTopicsPerTenant: 8, MaxTopicsFollowed: 9}.withDefaults()
	if c.MaxPerRun != 7 || c.MaxTopicsPerTenant != 8 || c.MaxTopicsFollowed != 9 {
		t.Errorf("what was said does not count: %+v", c)
	}
}

// A stop takes no longer than the streams that there are need.
func TestDrainWindow(t *testing.T) {
	t.Parallel()
	c := StreamConfig{}.withDefaults()
	for open, want := range map[int]time.Duration{
		1: 10 * time.Millisecond, 100: time.Second, 500: 5 * time.Second, 20_000: 5 * time.Second,
	} {
		if got := c.drainWindow(open); got != want {
			t.Errorf("%d streams: got %s, want %s", open, got, want)
		}
	}
}

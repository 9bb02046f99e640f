package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// TestSoak kills relays, PostgreSQL and Redis at random under a load of 1000 events a second: `make
// soak MINUTES=10`.
func TestSoak(t *testing.T) {
	tier.All(t)
	t.Parallel()
	if *lasts == 0 {
		tier.Skip(t, "needs a flag", "needs the flag -soak; run: make soak")
	}
	duration := *lasts
	w := newWorld(t, fault{
		name: "soak", postgres: &testenv.PostgresConfig{}, redis: redisOnDisk,
		load: load{producers: 8, perSecond: 1000, keys: 200},
	})
	s := &soak{world: w, proxy: w.proxied(), struck: map[string]int{}}
	for range 3 {
		s.running = append(s.running, w.relay(nil))
	}
	w.produce()
	w.arrive(100)
	end, progress := time.Now().Add(duration), time.Now().Add(10*time.Second)
	total := 0
	for time.Now().Before(end) {
		s.strike()
		total++
		w.pause(500*time.Millisecond, 4*time.Second)
		if time.Now().After(progress) {
			progress = progress.Add(10 * time.Second)
			s.progress()
		}
	}
	if len(s.struck) < 4 && duration >= time.Minute {
		t.Errorf("struck only %v in %s", s.struck, duration)
	}
	w.healed(outage)
	w.finish("soak", total)
}

type soak struct {
	*world
	proxy   *proxy
	running []*relayProcess
	struck  map[string]int
}

// strike does one of the things that a soak is made of. Relays suffer most of them, since they are
// what is on trial.
func (s *soak) strike() {
	s.t.Helper()
	i := s.rng.IntN(len(s.running))
	switch n := s.rng.IntN(10); {
	case n < 4:
		s.struck["relay killed"]++
		s.running[i].kill(s.t)
		s.running[i] = s.relay(nil)
	case n < 6:
		s.struck["relay stopped"]++
		s.running[i].terminate(s.t)
		s.running[i] = s.relay(nil)
	case n < 8:
		s.struck["PostgreSQL killed"]++
		s.must(s.pg.Kill())
		s.pause(0, time.Second)
		s.must(s.pg.Restart())
	default:
		s.struck["Redis killed"]++
		s.killRedis(s.proxy)
	}
}

func (s *soak) progress() {
	fmt.Printf("%5.0f s  acknowledged %7d  received %7d", time.Since(s.began).Seconds(), s.acknowledged(), s.heard.count())
	for _, kind := range []string{"relay killed", "relay stopped", "PostgreSQL killed", "Redis killed"} {
		fmt.Printf("  %s %d", kind, s.struck[kind])
	}
	fmt.Println()
}

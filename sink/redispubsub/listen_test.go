package redispubsub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// ear is an outbox.Listener that remembers what it was told.
type ear struct {
	mu   sync.Mutex
	told []string
}

const (
	wasLost    = "(lost)"
	wasResumed = "(resumed)"
)

func (e *ear) Message(payload []byte) { e.tell(string(payload)) }
func (e *ear) Lost()                  { e.tell(wasLost) }
func (e *ear) Resumed()               { e.tell(wasResumed) }

func (e *ear) tell(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, what)
}

func (e *ear) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.told)
}

// wants waits until e was told exactly this.
func (e *ear) wants(t *testing.T, want ...string) {
	t.Helper()
	deadline := time.Now().Add(tier.Patience())
	for !slices.Equal(e.all(), want) {
		if time.Now().After(deadline) {
			t.Fatalf("was told %.300q, want %.300q", e.all(), want)
		}
		time.Sleep(time.Millisecond)
	}
}

// startListener runs a listener until the test ends.
func startListener(t testing.TB, url string, cfg ListenerConfig) *listener {
	t.Helper()
	l, err := newListener(url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	runListener(t, l)
	return l
}

func runListener(t testing.TB, l *listener) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// hear subscribes, which must be acknowledged.
func hear(t testing.TB, l *listener, channel string, listener outbox.Listener) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), tier.Patience())
	defer cancel()
	ok, stop := l.Subscribe(ctx, channel, listener)
	if !ok {
		// Not Fatalf: also called by other goroutines.
		t.Errorf("the subscription of %s was not acknowledged: %+v", channel, l.State())
	}
	return stop
}

func say(t testing.TB, admin *redis.Client, channel, message string) {
	t.Helper()
	if err := admin.Publish(t.Context(), channel, message).Err(); err != nil {
		t.Error(err)
	}
}

// 10,000 viewers of 100 runs are one connection and 100 subscriptions.
func TestListenerShares(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	l := startListener(t, server.URL(), ListenerConfig{})
	const channels, viewers = 100, 100
	name := func(i int) string { return fmt.Sprintf("run:%d", i) }
	var ears [channels * viewers]ear
	var stops [channels * viewers]func()
	var subscribing sync.WaitGroup
	var refused atomic.Int64
	for i := range ears {
		subscribing.Go(func() {
			var ok bool
			if ok, stops[i] = l.Subscribe(t.Context(), name(i%channels), &ears[i]); !ok {
				refused.Add(1)
			}
		})
	}
	if subscribing.Wait(); refused.Load() > 0 {
		t.Fatalf("%d subscriptions were not acknowledged: %+v", refused.Load(), l.State())
	}
	subscriptions := func() (connections, channels int64, names int) {
		for _, n := range admin.PubSubNumSub(t.Context(), admin.PubSubChannels(t.Context(), "*").Val()...).Val() {
			channels += n
		}
		list := admin.ClientList(t.Context()).Val()
		return int64(strings.Count(list, "\n") - strings.Count(list, " sub=0 ")), channels,
			len(admin.PubSubChannels(t.Context(), "*").Val())
	}
	if c, n, names := subscriptions(); c != 1 || n != channels || names != channels {
		t.Errorf("%d connections with %d subscriptions of %d channels", c, n, names)
	}
	if s := l.State(); s.Channels != channels || !s.Up || s.Err != nil {
		t.Errorf("%+v", s)
	}
	for i := range channels {
		say(t, admin, name(i), name(i))
	}
	for i := range ears {
		ears[i].wants(t, name(i%channels))
	}

	for i := channels; i < len(stops); i++ { // all but one of each
		stops[i]()
	}
	hear(t, l, "sync", &ear{})() // what was asked for before is done
	if _, n, _ := subscriptions(); n < channels {
		t.Errorf("%d subscriptions are left, of %d channels that somebody listens to", n, channels)
	}
	for i := range channels {
		stops[i]()
		stops[i]() // does nothing
	}
	eventually(t, func() bool { _, n, _ := subscriptions(); return n == 0 })
	if s := l.State(); s.Channels != 0 || l.messages.Load() != channels {
		t.Errorf("%+v", s)
	}
}

// Each channel's messages arrive in Redis's order, all of them.
func TestListenerOrder(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	l := startListener(t, server.URL(), ListenerConfig{})
	var ears [4]ear
	var want [len(ears)][]string
	var publishing sync.WaitGroup
	for i := range ears {
		channel := fmt.Sprint(i)
		hear(t, l, channel, &ears[i])
		publishing.Go(func() {
			for batch := range 20 {
				pipe := admin.Pipeline()
				for n := range 100 {
					message := fmt.Sprint(channel, ":", batch*100+n, strings.Repeat(" ", n))
					want[i] = append(want[i], message)
					pipe.Publish(t.Context(), channel, message)
				}
				if _, err := pipe.Exec(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	publishing.Wait()
	for i := range ears {
		ears[i].wants(t, want[i]...)
	}
}

// Whatever the order in which many come and go, who is there in the end hears, and nobody else is
// subscribed.
func TestListenerComingAndGoing(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	l := startListener(t, server.URL(), ListenerConfig{})
	var going sync.WaitGroup
	for range 20 {
		going.Go(func() {
			for range 200 {
				channel := fmt.Sprint(rand.N(5))
				e := &ear{}
				if rand.N(3) > 0 {
					stop := hear(t, l, channel, e)
					say(t, admin, channel, "m")
					for began := time.Now(); len(e.all()) == 0; time.Sleep(time.Millisecond) {
						if time.Since(began) > tier.Patience() {
							t.Errorf("nothing is heard on %s", channel)
							break
						}
					}
					stop()
					continue
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_, stop := l.Subscribe(ctx, channel, e) // gone before the server has answered
				stop()
			}
		})
	}
	going.Wait()
	eventually(t, func() bool { return len(admin.PubSubChannels(t.Context(), "*").Val()) == 0 })
	eventually(t, func() bool { // once the last answer is here, nothing is remembered
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.channels)+len(l.changed) == 0
	})
}

// Nobody is told that a channel is heard before the server has said so, not even one who comes when
// another already waits.
func TestListenerWaitsForTheServer(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	l := startListener(t, server.URL(), ListenerConfig{DeadAfter: tier.Patience()})
	hear(t, l, "other", &ear{})
	if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var waiting sync.WaitGroup
	var patient, impatient ear
	waiting.Go(func() { hear(t, l, "c", &patient) })
	eventually(t, func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.sent) > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if ok, _ := l.Subscribe(ctx, "c", &impatient); ok {
		t.Error("acknowledged by a server that is stopped")
	}
	if err := syscall.Kill(server.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	waiting.Wait()
	impatient.wants(t, wasResumed)
	patient.wants(t)
}

// Somebody comes, goes and comes again before the server has answered anything: of the three
// answers only the last counts.
func TestListenerLastAnswerCounts(t *testing.T) {
	t.Parallel()
	l, err := newListener("redis://h", ListenerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	l.connected()
	first, second := &member{listener: &ear{}}, &member{listener: &ear{}}
	l.join("c", first)
	asked := l.take()
	l.leave("c", first)
	asked = append(asked, l.take()...)
	decided := l.join("c", second)
	asked = append(asked, l.take()...)
	for i, r := range asked {
		select {
		case <-decided:
			t.Fatalf("decided after %d answers", i)
		default:
		}
		kind := map[bool]string{true: "subscribe", false: "unsubscribe"}[r.subscribe]
		if err := l.answer(&redis.Subscription{Kind: kind, Channel: "c"}); err != nil {
			t.Fatal(err)
		}
	}
	<-decided
	if !second.live || len(asked) != 3 {
		t.Errorf("live is %v after %v", second.live, asked)
	}
	if err := l.answer(&redis.Subscription{Kind: "subscribe", Channel: "c"}); !errors.Is(err, errOutOfStep) {
		t.Errorf("an answer to nothing: %v", err)
	}
}

// After stop has returned, nothing more is heard, however much comes.
func TestListenerStopDuringFlood(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	l := startListener(t, server.URL(), ListenerConfig{})
	hear(t, l, "c", &ear{}) // keeps the channel subscribed
	flood, enough := context.WithCancel(t.Context())
	var flooding sync.WaitGroup
	flooding.Go(func() {
		for flood.Err() == nil {
			pipe := admin.Pipeline()
			for range 100 {
				pipe.Publish(t.Context(), "c", "m")
			}
			if _, err := pipe.Exec(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	for range 300 {
		e := &strict{t: t}
		stop := hear(t, l, "c", e)
		eventually(t, func() bool { return e.heard.Load() > 3 })
		stop()
		e.stopped.Store(true)
	}
	enough()
	flooding.Wait()
}

// strict is an outbox.Listener that may hear nothing once it is stopped, and one thing at a time.
type strict struct {
	t                *testing.T
	heard            atomic.Int64
	stopped, calling atomic.Bool
}

func (s *strict) Message([]byte) {
	if s.stopped.Load() {
		s.t.Error("called after stop")
	}
	if s.calling.Swap(true) {
		s.t.Error("called twice at once")
	}
	s.heard.Add(1)
	s.calling.Store(false)
}
func (s *strict) Lost()    { s.t.Error("lost") }
func (s *strict) Resumed() { s.t.Error("resumed") }

// The rights that the doc comment names are enough; a channel without them is refused alone, and
// heard once they are given.
func TestListenerRefused(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	do(t, admin, "ACL", "SETUSER", "gateway", "on", ">hunter2", "resetkeys", "resetchannels", "&run:*", "-@all",
		"+subscribe", "+unsubscribe", "+ping")
	var log logged
	l, err := newListener("redis://gateway:hunter2@"+server.Addr()+"/3",
		ListenerConfig{Logger: log.logger(), PingEvery: 100 * time.Millisecond, DeadAfter: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	// All are asked for in one command.
	now, cancel := context.WithCancel(t.Context())
	cancel()
	var allowed, refused [3]ear
	for i := range allowed {
		for name, e := range map[string]*ear{"run:": &allowed[i], "secret:": &refused[i]} {
			if ok, _ := l.Subscribe(now, fmt.Sprint(name, i), e); ok {
				t.Error("acknowledged before Run")
			}
		}
	}
	runListener(t, l)
	for i := range allowed {
		allowed[i].wants(t, wasResumed)
	}
	hear(t, l, "run:0", &ear{})
	eventually(t, func() bool { return l.State().Err != nil })
	if err := l.State().Err; !strings.Contains(err.Error(), "NOPERM") || !strings.Contains(err.Error(), "secret:") {
		t.Errorf("the last error is %v", err)
	}
	waits, stopWaiting := context.WithTimeout(t.Context(), tier.Patience())
	defer stopWaiting()
	if ok, stop := l.Subscribe(waits, "secret:0", &refused[0]); ok || waits.Err() != nil {
		t.Errorf("a refused channel: %v, %v", ok, waits.Err())
	} else {
		stop()
	}
	if ok, stop := l.Subscribe(t.Context(), "secret:new", &ear{}); ok {
		t.Error("a channel without rights is acknowledged")
	} else {
		stop()
	}
	if n := strings.Count(log.String(), "refuses"); n != 1 {
		t.Errorf("logged %d times: %s", n, &log)
	}
	do(t, admin, "ACL", "SETUSER", "gateway", "&secret:*")
	for i := range refused {
		refused[i].wants(t, wasResumed)
		say(t, admin, fmt.Sprint("secret:", i), "now")
		refused[i].wants(t, wasResumed, "now")
	}
	if s := l.State(); s.Err != nil || s.Reconnects != 0 || s.Channels != 6 {
		t.Errorf("%+v", s)
	}
}

func TestOpenListenerProblems(t *testing.T) {
	t.Parallel()
	_, err := newListener("redis://u:hunter2@h:port", ListenerConfig{PingEvery: -1, DeadAfter: -1})
	if err == nil || !strings.Contains(err.Error(), "PingEvery") || !strings.Contains(err.Error(), "DeadAfter is") ||
		!errors.Is(err, sinkurl.ErrPort) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("OpenListener: %v", err)
	}
	if _, err = newListener("redis://h", ListenerConfig{PingEvery: 2 * time.Second}); err == nil ||
		!strings.Contains(err.Error(), "three times") {
		t.Errorf("OpenListener: %v", err)
	}
}

// logged is a log to look into.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

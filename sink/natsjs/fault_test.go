package natsjs

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/sink"
)

// feed publishes events of some keys as a relay does: what failed is published again, from the first of its key on.
type feed struct {
	sink        sink.Sink
	keys        [][]outbox.Delivery // what is left of each
	sent        map[int][]string    // by key: ids
	unavailable int
	duplicates  int
}

func newFeed(t *testing.T, s sink.Sink, subject string, keys, events int) *feed {
	f := &feed{sink: s, sent: map[int][]string{}}
	for key := range keys {
		var all []outbox.Delivery
		for range events {
			d := newEvent(t, subject, key)
			all = append(all, d)
			f.sent[key] = append(f.sent[key], d.ID.String())
		}
		f.keys = append(f.keys, all)
	}
	return f
}

// turn publishes up to three events of each key, and tells whether something is left.
func (f *feed) turn(t *testing.T) bool {
	t.Helper()
	var batch []outbox.Delivery
	var of []int
	for round := range 3 {
		for key, left := range f.keys {
			if round < len(left) {
				batch, of = append(batch, left[round]), append(of, key)
			}
		}
	}
	if len(batch) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	failed := map[int]bool{}
	for i, res := range f.sink.Publish(ctx, batch) {
		class, _ := outbox.Classify(res.Err)
		switch {
		case res.Err == nil && failed[of[i]]:
			t.Errorf("key %d: an event went out behind a failed one", of[i])
		case res.Err == nil:
			f.keys[of[i]] = f.keys[of[i]][1:]
			if res.Duplicate {
				f.duplicates++
			}
		case class == outbox.ClassUnavailable || class == outbox.ClassNotAttempted:
			failed[of[i]] = true
			f.unavailable++
		default:
			t.Fatalf("answered %+v", res)
		}
	}
	return true
}

// check wants each event stored once, in the order of its key.
func (f *feed) check(t *testing.T, js jetstream.JetStream, name, subject string) {
	t.Helper()
	n := 0
	of := map[string]int{}
	for key, ids := range f.sent {
		n += len(ids)
		for _, id := range ids {
			of[id] = key
		}
	}
	got := map[int][]string{}
	for _, m := range stored(t, js, name, subject, n) {
		id := m.Header.Get(eventID)
		got[of[id]] = append(got[of[id]], id)
	}
	for key, want := range f.sent {
		if !slices.Equal(got[key], want) {
			t.Errorf("key %d is stored as %q, want %q", key, got[key], want)
		}
	}
	if total := count(t, js, name); total != uint64(n) {
		t.Errorf("%d messages are stored, want %d", total, n)
	}
}

// The server is killed again and again while events are published: each is stored once, in order.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	server := testenv.NATSServer(t, testenv.NATSConfig{NoSync: true})
	s, js := open(t, server, Config{})
	stream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	f := newFeed(t, s, "s", 20, 300)
	stop := make(chan struct{})
	var killing sync.WaitGroup
	var kills atomic.Int64
	killing.Go(func() {
		for kills.Load() < 5 {
			select {
			case <-stop:
				return
			case <-time.After(40 * time.Millisecond): // into whatever is under way
			}
			if err := server.Restart(); err != nil {
				t.Error(err)
				return
			}
			kills.Add(1)
		}
	})
	for f.turn(t) {
	}
	close(stop)
	killing.Wait()
	t.Logf("%d kills, %d answers of a server that was away, %d copies refused", kills.Load(), f.unavailable, f.duplicates)
	if kills.Load() == 0 || f.unavailable == 0 {
		t.Errorf("%d kills made %d events wait: the fault did not strike", kills.Load(), f.unavailable)
	}
	f.check(t, js, "S", "s")
}

// Of three servers the one that leads the stream is killed while events are published. The sink knows one of them by
// its URL, and learns of the others.
func TestLeaderIsKilled(t *testing.T) {
	t.Parallel()
	servers := testenv.NATSCluster(t, 3, testenv.NATSConfig{NoSync: true})
	js := admin(t, servers[0].URL()+","+servers[1].URL()+","+servers[2].URL())
	stream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: 3})
	leads := leader(t, js, "S")
	s := openURL(t, servers[leads].URL(), Config{})
	f := newFeed(t, s, "s", 20, 30)
	for range 3 {
		f.turn(t)
	}
	if f.unavailable > 0 {
		t.Fatal("a healthy cluster makes events wait")
	}
	var killing sync.WaitGroup
	killing.Go(func() {
		if err := servers[leads].Kill(); err != nil {
			t.Error(err)
		}
	})
	for f.turn(t) {
		if f.unavailable > 0 {
			time.Sleep(5 * time.Millisecond) // as a breaker does
		}
	}
	killing.Wait()
	t.Logf("%d answers of a cluster without a leader, %d copies refused", f.unavailable, f.duplicates)
	if f.unavailable == 0 {
		t.Error("no event waited: the fault did not strike")
	}
	f.check(t, js, "S", "s")
}

// proxy passes bytes on. It can swallow what the server says, and cut.
type proxy struct {
	net.Listener
	swallow atomic.Bool
	dropped atomic.Int64 // bytes
	mu      sync.Mutex
	conns   []net.Conn
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: listener}
	var passing sync.WaitGroup
	passing.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, client, server)
			p.mu.Unlock()
			passing.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
			passing.Go(func() { _, _ = io.Copy(filter{p, client}, server); _ = client.Close() })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); p.cut(); passing.Wait() })
	return p
}

// filter is the way from the server.
type filter struct {
	*proxy
	to io.Writer
}

func (f filter) Write(b []byte) (int, error) {
	if f.swallow.Load() {
		f.dropped.Add(int64(len(b)))
		return len(b), nil
	}
	return f.to.Write(b)
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

func (p *proxy) url() string { return "nats://" + p.Addr().String() }

// Acknowledgements are lost, with the connection and without: the events wait, and their copies are refused. Nothing
// later of their keys has gone out.
func TestLostAcknowledgement(t *testing.T) {
	t.Parallel()
	server := testenv.NATSServer(t, testenv.NATSConfig{NoSync: true})
	js := admin(t, server.URL())
	stream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	for _, cut := range []bool{true, false} {
		p := newProxy(t, server.Addr())
		s := openURL(t, p.url(), Config{})
		deliver(t, s, newEvent(t, "s", 1))
		before := count(t, js, "S")

		p.swallow.Store(true)
		batch := []outbox.Delivery{newEvent(t, "s", 1), newEvent(t, "s", 1), newEvent(t, "s", 2)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if cut {
			ctx, cancel = context.WithCancel(t.Context())
			go func() {
				for ctx.Err() == nil { // until the first of each key is stored, and an acknowledgement swallowed
					s, err := js.Stream(ctx, "S")
					if err == nil && s.CachedInfo().State.Msgs >= before+2 && p.dropped.Load() > 0 {
						break
					}
				}
				p.cut()
			}()
		}
		got := s.Publish(ctx, batch)
		cancel()
		class(t, got[0], outbox.ClassUnavailable, "")
		// Where ctx has ended, nobody looks at keys any more.
		if c, _ := outbox.Classify(got[1].Err); c != outbox.ClassNotAttempted && (cut || c != outbox.ClassUnavailable) {
			t.Errorf("behind a lost acknowledgement: %+v", got[1])
		}
		class(t, got[2], outbox.ClassUnavailable, "")
		if p.dropped.Load() == 0 {
			t.Error("no acknowledgement was lost: the fault did not strike")
		}
		eventually(t, func() bool { return count(t, js, "S") == before+2 }) // the first of each key
		p.swallow.Store(false)
		p.cut() // what was swallowed in part makes no sense any more
		eventually(t, func() bool {
			got = s.Publish(t.Context(), batch)
			return got[0].Err == nil
		})
		want := []outbox.Result{{Duplicate: true}, {}, {Duplicate: true}}
		if !slices.Equal(got, want) {
			t.Errorf("cut %v: published again: %+v, want %+v", cut, got, want)
		}
	}
}

// What is published while the server is away is answered at once, and does not go out by itself when it is back.
func TestNothingGoesOutLater(t *testing.T) {
	t.Parallel()
	server := testenv.NATSServer(t, testenv.NATSConfig{NoSync: true})
	s, js := open(t, server, Config{})
	stream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	deliver(t, s, newEvent(t, "s", 1))
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	var lost []outbox.Delivery
	for i := range 10 {
		d := newEvent(t, "s", i)
		lost = append(lost, d)
		class(t, s.Publish(t.Context(), []outbox.Delivery{d})[0], outbox.ClassUnavailable, "")
	}
	if err := s.Abilities().Ping(t.Context()); err == nil {
		t.Error("the ping of a dead server succeeds")
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	last := newEvent(t, "s", 1)
	deliverAtLast(t, s, last)
	eventually(t, func() bool { return js.Conn().IsConnected() })
	if n := count(t, js, "S"); n != 2 {
		t.Errorf("%d messages are stored, want 2", n)
	}
	deliver(t, s, lost...)
	if err := s.Abilities().Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// The window of a stream is the limit of what it refuses.
func TestWindowEnds(t *testing.T) {
	t.Parallel()
	server := testenv.NATSServer(t, testenv.NATSConfig{NoSync: true})
	s, js := open(t, server, Config{})
	stream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s", "s.*"}, Duplicates: 300 * time.Millisecond})
	d := newEvent(t, "s", 1)
	deliver(t, s, d)
	eventually(t, func() bool { return s.Publish(t.Context(), []outbox.Delivery{d})[0] == outbox.Result{} })
}

// The window is the stream's and not a subject's: an event for several destinations, two outboxes with equal ids, and a
// replay are no copies.
func TestWhatIsNoCopy(t *testing.T) {
	t.Parallel()
	server := testenv.NATSServer(t, testenv.NATSConfig{NoSync: true})
	s, js := open(t, server, Config{})
	stream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.*"}})
	d := newEvent(t, "s.a", 1)
	elsewhere, stranger := d, d
	elsewhere.Destination = "s.b"
	stranger.Origin = 7
	again := *d.Record
	again.Generation = 1
	all := []outbox.Delivery{d, elsewhere, stranger, {Record: &again, Destination: "s.a"}}
	deliver(t, s, all...)
	for i, res := range s.Publish(t.Context(), all) {
		if !res.Duplicate || res.Err != nil {
			t.Errorf("copy %d is answered %+v", i, res)
		}
	}
	seen := map[string]bool{}
	for i := range all {
		seen[messageID(&all[i])] = true
	}
	if len(seen) != len(all) || count(t, js, "S") != uint64(len(all)) {
		t.Errorf("%d ids for %d deliveries: %v", len(seen), len(all), seen)
	}
}

// One message that a stream's limits refuse fails alone, in its class, and holds its key back.
func TestLimitsOfAStream(t *testing.T) {
	t.Parallel()
	server := testenv.NATSServer(t, testenv.NATSConfig{NoSync: true})
	s, js := open(t, server, Config{})
	for i, cfg := range []jetstream.StreamConfig{
		{MaxMsgSize: 2000},
		{MaxMsgs: 1, Discard: jetstream.DiscardNew},
		{MaxBytes: 3000, Discard: jetstream.DiscardNew},
		{MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true},
	} {
		cfg.Name, cfg.Subjects = fmt.Sprintf("LIMIT%d", i), []string{fmt.Sprintf("limit%d.*", i)}
		stream(t, js, cfg)
	}
	for i, want := range []struct {
		class outbox.Class
		says  string
	}{
		{outbox.ClassPermanent, "message size exceeds"},
		{outbox.ClassUnavailable, "maximum messages exceeded"},
		{outbox.ClassUnavailable, "maximum bytes exceeded"},
		{outbox.ClassRetryable, "maximum messages per subject exceeded"},
	} {
		subject := fmt.Sprintf("limit%d.a", i)
		first, bad, behind, other := newEvent(t, subject, 1), newEvent(t, subject, 1), newEvent(t, subject, 1),
			newEvent(t, "limit0.b", 2)
		bad.Payload = append(append([]byte(`"`), make([]byte, 2500)...), '"')
		got := s.Publish(t.Context(), []outbox.Delivery{first, bad, behind, other})
		if got[0] != (outbox.Result{}) || got[3] != (outbox.Result{}) {
			t.Errorf("%s: %+v and %+v, want delivered", subject, got[0], got[3])
		}
		class(t, got[1], want.class, want.says)
		class(t, got[2], outbox.ClassNotAttempted, "")
	}
}

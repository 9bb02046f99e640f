package natsjs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// storedIDs returns the ids of the events in a stream, once there are n of its subject.
func storedIDs(t *testing.T, js jetstream.JetStream, name, subject string) func(n int) []string {
	return func(n int) (ids []string) {
		for _, m := range stored(t, js, name, subject, n) {
			ids = append(ids, m.Header.Get(eventID))
		}
		if total := count(t, js, name); total != uint64(n) {
			t.Errorf("%d messages are stored, want %d", total, n)
		}
		return ids
	}
}

// The server is killed again and again while events are published: each is stored once, in order.
func TestServerIsKilled(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := testenv.NATSServer(t, testenv.NATSConfig{NoSync: true})
	s, js := open(t, server, Config{})
	stream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	sinktest.Killed(t, s, "s", server.Restart, storedIDs(t, js, "S", "s"))
}

// Of three servers the one that leads the stream is killed while events are published. The sink
// knows one of them by its URL, and learns of the others.
func TestLeaderIsKilled(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	servers := testenv.NATSCluster(t, 3, testenv.NATSConfig{NoSync: true})
	js := admin(t, servers[0].URL()+","+servers[1].URL()+","+servers[2].URL())
	stream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: 3})
	leads := leader(t, js, "S")
	s := openURL(t, servers[leads].URL(), Config{})
	f := sinktest.NewFeed(t, s, "s", 20, 30)
	for range 3 {
		f.Turn(t)
	}
	if f.Unavailable > 0 {
		t.Fatal("a healthy cluster makes events wait")
	}
	var killing sync.WaitGroup
	killing.Go(func() {
		if err := servers[leads].Kill(); err != nil {
			t.Error(err)
		}
	})
	for f.Turn(t) {
	}
	killing.Wait()
	t.Logf("%d answers of a cluster without a leader, %d copies refused", f.Unavailable, f.Duplicates)
	if f.Unavailable == 0 {
		t.Error("no event waited: the fault did not strike")
	}
	f.Check(t, storedIDs(t, js, "S", "s"))
}

// Acknowledgements are lost, with the connection and without: the events wait, and their copies are
// refused. Nothing later of their keys has gone out.
func TestLostAcknowledgement(t *testing.T) {
	t.Parallel()
	server := testenv.NATSServer(t, testenv.NATSConfig{NoSync: true})
	js := admin(t, server.URL())
	stream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	for _, cut := range []bool{true, false} {
		p := sinktest.NewProxy(t, server.Addr())
		s := openURL(t, "nats://"+p.Addr, Config{})
		deliver(t, s, newEvent(t, "s", 1))
		before := count(t, js, "S")

		p.Swallow.Store(true)
		batch := []outbox.Delivery{newEvent(t, "s", 1), newEvent(t, "s", 1), newEvent(t, "s", 2)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if cut {
			ctx, cancel = context.WithCancel(t.Context())
			go func() {
				for ctx.Err() == nil { // until the first of each key is stored, and an acknowledgement swallowed
					s, err := js.Stream(ctx, "S")
					if err == nil && s.CachedInfo().State.Msgs >= before+2 && p.Dropped.Load() > 0 {
						break
					}
				}
				p.Cut()
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
		if p.Dropped.Load() == 0 {
			t.Error("no acknowledgement was lost: the fault did not strike")
		}
		eventually(t, func() bool { return count(t, js, "S") == before+2 }) // the first of each key
		p.Swallow.Store(false)
		p.Cut() // what was swallowed in part makes no sense any more
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

// What is published while the server is away is answered at once, and does not go out by itself
// when it is back.
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

// The window is the stream's and not a subject's: an event for several destinations, two outboxes
// with equal ids, and a replay are no copies.
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

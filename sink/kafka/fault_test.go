package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outboxrelay/outbox"
)

// The client tries again what a broker may have appended before it said no, and no event comes
// twice or out of order.
func TestRetriesNeitherCopyNorReorder(t *testing.T) {
	t.Parallel()
	for _, says := range []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend,
	} {
		t.Run(says.Message, func(t *testing.T) {
			t.Parallel()
			cluster := newCluster(t)
			topic := newTopic(t, admin(t, cluster.ListenAddrs()), 1)
			s := openURL(t, urlOf(cluster), Config{Envelope: idEnvelope})
			r := read(t, cluster.ListenAddrs(), topic)
			faults := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: says, Count: 2})
			var sent []string
			for range 3 {
				var batch []outbox.Delivery
				for i := range 100 {
					batch = append(batch, event(t, topic, strconv.Itoa(i%10)))
				}
				deliver(t, s, batch...)
				sent = append(sent, ids(batch...)...)
			}
			if faults.Hits() != 2 {
				t.Errorf("the broker said %s %d times, want 2", says.Message, faults.Hits())
			}
			if got := r.ids(s, topic); !slices.Equal(got, sent) {
				t.Errorf("%d events arrived, want these %d in their order", len(got), len(sent))
			}
		})
	}
}

// refusing has a cluster refuse each batch in which refuses finds an event, by its id, in the first
// partitions.
func refusing(
	t *testing.T, cluster *kfake.Cluster, partitions int32, says *kerr.Error, refuses func(id string) bool,
) *kfake.FaultHandle {
	var faults []kfake.Fault
	for partition := range partitions {
		faults = append(faults, kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{partition}, Err: says,
			Count: -1, When: func(request kmsg.Request) bool {
				return slices.ContainsFunc(sentTo(t, request.(*kmsg.ProduceRequest), partition), refuses)
			}})
	}
	return cluster.Fault(faults...)
}

// sentTo returns the ids of the events in a request for the partitions of a number.
func sentTo(t *testing.T, request *kmsg.ProduceRequest, partition int32) (ids []string) {
	for _, topic := range request.Topics {
		for _, p := range topic.Partitions {
			// The client leaves a batch out of a request that it has failed meanwhile.
			if p.Partition != partition || len(p.Records) == 0 {
				continue
			}
			var batch kmsg.RecordBatch
			if err := batch.ReadFrom(p.Records); err != nil {
				t.Error(err)
			}
			records, err := kfake.BatchRecords(batch)
			if err != nil {
				t.Error(err)
			}
			for _, record := range records {
				ids = append(ids, string(record.Value))
			}
		}
	}
	return ids
}

// One event that Kafka refuses fails alone: what is in its batch goes out, but for what is behind
// it in its key.
func TestOneRecordRefused(t *testing.T) {
	t.Parallel()
	for _, transactionalID := range []string{"", "relay-1"} {
		for _, partitions := range []int32{1, 4} {
			t.Run(fmt.Sprintf("id %q, %d partitions", transactionalID, partitions), func(t *testing.T) {
				t.Parallel()
				cluster := newCluster(t)
				topic := newTopic(t, admin(t, cluster.ListenAddrs()), partitions)
				s := openURL(t, urlOf(cluster), Config{Envelope: idEnvelope, TransactionalID: transactionalID})
				var batch []outbox.Delivery
				for i := range 300 {
					batch = append(batch, event(t, topic, strconv.Itoa(i%7)))
				}
				bad := 101 // of key 3
				faults := refusing(t, cluster, partitions, kerr.InvalidRecord,
					func(id string) bool { return id == batch[bad].ID.String() })
				var want []string
				for i, res := range s.Publish(t.Context(), batch) {
					class, _ := outbox.Classify(res.Err)
					switch {
					case i == bad:
						if res.Err == nil || class != outbox.ClassRetryable || !strings.Contains(res.Err.Error(), "compacted") {
							t.Errorf("the refused event is answered %+v", res)
						}
					case i%7 == bad%7 && i > bad:
						if !errors.Is(res.Err, outbox.ErrNotAttempted) {
							t.Errorf("delivery %d, behind the refused one, is answered %+v", i, res)
						}
					case res != (outbox.Result{}):
						t.Errorf("delivery %d is answered %+v", i, res)
					default:
						want = append(want, batch[i].ID.String())
					}
				}
				if faults.Hits() == 0 {
					t.Error("nothing was refused")
				}
				var got []string
				for r := read(t, cluster.ListenAddrs(), topic); len(got) < len(want); {
					got = append(got, idOf(r.next()))
				}
				slices.Sort(got)
				slices.Sort(want) // ids rise
				if !slices.Equal(got, want) {
					t.Errorf("%d events arrived, want the %d that were delivered", len(got), len(want))
				}
			})
		}
	}
}

// While calls of several goroutines append, batches are refused at random: no event follows a
// failed one of its key, and what was answered is what arrives, in order.
func TestNothingFollowsAFailedEvent(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t, kfake.NumBrokers(2))
	client := admin(t, cluster.ListenAddrs())
	topic := newTopic(t, client, 3)
	s := openURL(t, urlOf(cluster), Config{Envelope: idEnvelope})
	r := read(t, cluster.ListenAddrs(), topic)
	refuse := rand.New(rand.NewPCG(1, 2))
	faults := refusing(t, cluster, 3, kerr.PolicyViolation, func(string) bool { return refuse.IntN(60) == 0 })
	const calls, rounds = 4, 15
	delivered := make([]map[string][]string, calls) // ids by key
	var group sync.WaitGroup
	for call := range calls {
		delivered[call] = map[string][]string{}
		group.Go(func() {
			for range rounds {
				var batch []outbox.Delivery
				for i := range 60 {
					batch = append(batch, event(t, topic, fmt.Sprintf("%d-%d", call, i%5)))
				}
				failed := map[string]bool{}
				for i, res := range s.Publish(t.Context(), batch) {
					key := batch[i].AggregateID
					switch {
					case res.Err == nil && failed[key]:
						t.Errorf("an event of key %s is delivered behind one that was not", key)
					case res.Err == nil:
						delivered[call][key] = append(delivered[call][key], batch[i].ID.String())
					case failed[key] != errors.Is(res.Err, outbox.ErrNotAttempted):
						t.Errorf("answered %v", res.Err)
					}
					failed[key] = failed[key] || res.Err != nil
				}
			}
		})
	}
	group.Wait()
	faults.Remove()
	if faults.Hits() < 20 {
		t.Errorf("only %d batches were refused", faults.Hits())
	}
	total := 0
	for _, byKey := range delivered {
		for _, list := range byKey {
			total += len(list)
		}
	}
	arrived := map[string][]string{}
	for range total {
		record := r.next()
		arrived[string(record.Key)] = append(arrived[string(record.Key)], idOf(record))
	}
	for _, byKey := range delivered {
		for key, list := range byKey {
			if !slices.Equal(arrived[key], list) {
				t.Errorf("key %s: %d events arrived, want the %d that were delivered, in order", key, len(arrived[key]), len(list))
			}
		}
	}
	t.Logf("%d events delivered, %d batches refused", total, faults.Hits())
}

// slowly has a client append records with a pause, so that a request can leave between two of them.
type slowly struct{ pauses atomic.Int64 }

// OnProduceRecordPartitioned implements kgo.HookProduceRecordPartitioned.
func (h *slowly) OnProduceRecordPartitioned(*kgo.Record, int32) {
	if h.pauses.Add(1)%100 < 5 {
		time.Sleep(2 * time.Millisecond)
	}
}

// A topic that is refused as a whole, again and again, is forgotten each time by one call while
// others append to it. No event follows a failed one of its key, also where the client takes its
// time between two records.
func TestRefusedTopicKeepsTheOrder(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t)
	topic := newTopic(t, admin(t, cluster.ListenAddrs()), 3)
	pauses := &slowly{}
	s, err := New(Config{Envelope: idEnvelope}, kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.WithHooks(pauses))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	refuse := rand.New(rand.NewPCG(3, 4))
	faults := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1,
		When: func(kmsg.Request) bool { return refuse.IntN(4) == 0 }})
	var behind atomic.Int32
	var group sync.WaitGroup
	for call := range 4 {
		group.Go(func() {
			for range 40 {
				var batch []outbox.Delivery
				for i := range 200 {
					batch = append(batch, event(t, topic, fmt.Sprintf("%d-%d", call, i%5)))
				}
				failed := map[string]bool{}
				for i, res := range s.Publish(t.Context(), batch) {
					key := batch[i].AggregateID
					if res.Err == nil && failed[key] {
						behind.Add(1)
					}
					failed[key] = failed[key] || res.Err != nil
				}
			}
		})
	}
	group.Wait()
	if n := behind.Load(); n > 0 {
		t.Errorf("%d of 32,000 events were delivered behind one of their key that was not", n)
	}
	if faults.Hits() < 20 {
		t.Errorf("the topic was refused only %d times", faults.Hits())
	}
	t.Logf("the topic was refused %d times", faults.Hits())
}

// A topic that takes less than the client sends: what is too large for it fails for good, and what
// is too much at once goes in smaller pieces.
func TestTopicTakesLess(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t)
	topic := newTopic(t, admin(t, cluster.ListenAddrs()), 1, "max.message.bytes", "5000")
	s := openURL(t, urlOf(cluster), Config{})
	var batch []outbox.Delivery
	for i := range 40 {
		d := event(t, topic, strconv.Itoa(i))
		noise := make([]byte, 400) // which does not shrink
		for n := range noise {
			noise[n] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[rand.IntN(62)]
		}
		d.Payload = []byte(`"` + string(noise) + `"`)
		if i == 17 {
			for len(d.Payload) < 20_000 {
				d.Payload = []byte(`"` + strconv.FormatUint(rand.Uint64(), 36) + string(d.Payload[1:]))
			}
		}
		batch = append(batch, d)
	}
	for i, res := range s.Publish(t.Context(), batch) {
		if class, _ := outbox.Classify(res.Err); i == 17 {
			if class != outbox.ClassPermanent || !strings.Contains(res.Err.Error(), "max.message.bytes") {
				t.Errorf("the large event is answered %+v", res)
			}
		} else if res != (outbox.Result{}) {
			t.Errorf("delivery %d is answered %+v", i, res)
		}
	}
}

// A batch that is still on its way when its context ends comes before what the sink sends
// afterwards, or not at all.
func TestBatchThatComesLate(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t)
	topic := newTopic(t, admin(t, cluster.ListenAddrs()), 1)
	s := openURL(t, urlOf(cluster), Config{Envelope: idEnvelope})
	r := read(t, cluster.ListenAddrs(), topic)
	before := event(t, topic, "1")
	deliver(t, s, before)
	held, release, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	first := true
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		if first {
			first = false
			cluster.SleepControl(func() { close(held); <-release })
			close(over)
		}
		return nil, nil, false // the broker handles it now
	})
	ctx, cancel := context.WithCancel(t.Context())
	batch := []outbox.Delivery{event(t, topic, "1"), event(t, topic, "1")}
	go func() { <-held; cancel() }()
	for _, res := range s.Publish(ctx, batch) {
		if !unavailable(res.Err) {
			t.Errorf("answered %+v, want unavailable", res)
		}
	}
	for _, d := range batch {
		deliverAtLast(t, s, d)
	}
	close(release)
	<-over
	after := event(t, topic, "1")
	deliver(t, s, after)
	if got, want := r.ids(s, topic), append(ids(before), ids(append(batch, after)...)...); !slices.Equal(got, want) {
		t.Errorf("arrived %s, want %s", got, want)
	}
}

// A connection that breaks between a batch and its answer is no copy: the broker recognises the
// batch.
func TestAnswerLost(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t)
	topic := newTopic(t, admin(t, cluster.ListenAddrs()), 1)
	var armed, lost atomic.Int64
	s := openURL(t, urlOf(cluster), Config{Envelope: idEnvelope, Dial: func(
		ctx context.Context, network, address string,
	) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return &losing{Conn: c, armed: &armed, lost: &lost}, err
	}})
	deliver(t, s, event(t, topic, "0"))
	r := read(t, cluster.ListenAddrs(), topic)
	r.next()
	var batch []outbox.Delivery
	for i := range 100 {
		batch = append(batch, event(t, topic, strconv.Itoa(i%10)))
	}
	armed.Store(2) // what is sent again loses its answer too
	deliver(t, s, batch...)
	if lost.Load() != 2 {
		t.Errorf("%d answers were lost, want 2", lost.Load())
	}
	if got := r.ids(s, topic); !slices.Equal(got, ids(batch...)) {
		t.Errorf("%d events arrived, want these %d in their order", len(got), len(batch))
	}
}

// losing is a connection that breaks instead of passing on the answer to a batch, while it is
// armed.
type losing struct {
	net.Conn
	produced    atomic.Bool
	armed, lost *atomic.Int64
}

func (c *losing) Write(b []byte) (int, error) {
	if len(b) > 6 && b[4] == 0 && b[5] == byte(kmsg.Produce) { // after the length comes the kind of request
		c.produced.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *losing) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.produced.Load() && c.armed.Add(-1) >= 0 {
		c.lost.Add(1)
		return 0, errors.Join(io.ErrUnexpectedEOF, c.Close())
	}
	return n, err
}

// A topic that goes away while a call has more for it than one batch takes: the call ends.
func TestTopicGoesAway(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t)
	client := admin(t, cluster.ListenAddrs())
	topic := newTopic(t, client, 1)
	s := openURL(t, urlOf(cluster)+"?max_message_bytes=5000", Config{})
	deliver(t, s, event(t, topic, "0"))
	deleteTopic(t, client, topic)
	var batch []outbox.Delivery
	for i := range 50 {
		batch = append(batch, event(t, topic, strconv.Itoa(i)))
	}
	for i, res := range s.Publish(t.Context(), batch) {
		if class, _ := outbox.Classify(res.Err); res.Err == nil || class != outbox.ClassRetryable {
			t.Errorf("delivery %d is answered %+v", i, res)
		}
	}
}

// A partition without a leader delays neither the others of a call nor other calls, and what was
// waiting for it when its call ended is not published afterwards.
func TestPartitionWithoutLeader(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t)
	client := admin(t, cluster.ListenAddrs())
	lame, well := newTopic(t, client, 1), newTopic(t, client, 1)
	s := openURL(t, urlOf(cluster), Config{Envelope: idEnvelope})
	r := read(t, cluster.ListenAddrs(), lame)
	deliver(t, s, event(t, well, "0"), event(t, lame, "0"))
	r.next()
	faults := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: lame, Err: kerr.NotLeaderForPartition,
		Count: -1})
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan []outbox.Result)
	go func() { answers <- s.Publish(ctx, []outbox.Delivery{event(t, lame, "1"), event(t, well, "2")}) }()
	if err := faults.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	deliver(t, s, event(t, well, "3"))
	cancel()
	if got := <-answers; !unavailable(got[0].Err) || got[1] != (outbox.Result{}) {
		t.Errorf("answered %+v, want unavailable and delivered", got)
	}
	faults.Remove()
	after := event(t, lame, "1")
	deliverAtLast(t, s, after)
	if got := r.ids(s, lame); !slices.Equal(got, ids(after)) {
		t.Errorf("arrived %s, want %s alone", got, after.ID)
	}
}

// A key whose events go to several topics: one topic knows nothing of what another refuses.
func TestKeyOfSeveralTopics(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t)
	client := admin(t, cluster.ListenAddrs())
	a, b := newTopic(t, client, 1), newTopic(t, client, 1)
	s := openURL(t, urlOf(cluster), Config{Envelope: idEnvelope})
	to := func(d outbox.Delivery, topic string) outbox.Delivery { d.Destination = topic; return d }
	first, second, third := event(t, a, "1"), event(t, a, "1"), event(t, b, "1")
	batch := []outbox.Delivery{first, to(first, b), second, to(second, b), third, event(t, b, "2")}
	deliver(t, s, event(t, a, "0"), event(t, b, "0"))
	faults := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: a, Err: kerr.InvalidRecord, Count: 1})
	got := s.Publish(t.Context(), batch)
	if class, _ := outbox.Classify(got[0].Err); got[0].Err == nil || class != outbox.ClassRetryable || faults.Hits() != 1 {
		t.Errorf("the refused delivery is answered %+v", got[0])
	}
	for _, i := range []int{1, 5} { // the event's other destination, and another key
		if got[i] != (outbox.Result{}) {
			t.Errorf("delivery %d is answered %+v", i, got[i])
		}
	}
	for _, i := range []int{2, 3, 4} {
		if !errors.Is(got[i].Err, outbox.ErrNotAttempted) {
			t.Errorf("delivery %d, behind the refused one, is answered %+v", i, got[i])
		}
	}
	deliver(t, s, batch[0], batch[2], batch[3], batch[4])
	r := read(t, cluster.ListenAddrs(), a)
	r.next()
	if got := r.ids(s, a); !slices.Equal(got, ids(first, second)) {
		t.Errorf("in the topic that refused arrived %s, want %s", got, ids(first, second))
	}
}

// What is written while a gate is closed waits until all is appended.
func TestGate(t *testing.T) {
	t.Parallel()
	var g gate
	ours, theirs := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	var mu sync.Mutex
	var order []string
	note := func(what string) { mu.Lock(); defer mu.Unlock(); order = append(order, what) }
	var written sync.WaitGroup
	g.closed(func() {
		written.Go(func() {
			_, _ = conn{ours, &g}.Write([]byte("x"))
			note("written")
		})
		for range 1000 {
			runtime.Gosched()
		}
		note("appended")
	})
	written.Wait()
	if err := ours.Close(); err != nil {
		t.Error(err)
	}
	if !slices.Equal(order, []string{"appended", "written"}) {
		t.Errorf("got %s", order)
	}
}

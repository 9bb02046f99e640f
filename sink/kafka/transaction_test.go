package kafka

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outboxrelay/outbox"
)

// The later of two producers of an id has it; the earlier is told, and leaves it alone for a while.
func TestZombieIsFenced(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t)
	topic := newTopic(t, admin(t, cluster.ListenAddrs()), 1)
	cfg := Config{Envelope: idEnvelope, TransactionalID: "relay-1"}
	zombie := openURL(t, urlOf(cluster), cfg)
	first := event(t, topic, "1")
	deliver(t, zombie, first)
	// It stops in the middle of a transaction, and the other takes over.
	stopped, resume := make(chan struct{}), make(chan struct{})
	begun := true
	cluster.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
		if begun {
			begun = false
			cluster.SleepControl(func() { close(stopped); <-resume })
		}
		return nil, nil, false
	})
	second := event(t, topic, "1")
	answers := make(chan []outbox.Result)
	go func() { answers <- zombie.Publish(t.Context(), []outbox.Delivery{second}) }()
	<-stopped
	heir := openURL(t, urlOf(cluster), cfg)
	third := event(t, topic, "1")
	deliver(t, heir, second, third)
	close(resume)
	if err := (<-answers)[0].Err; !unavailable(err) || !errors.Is(err, errFenced) {
		t.Errorf("the zombie's COMMIT is answered %v", err)
	}
	if err := zombie.Publish(t.Context(), []outbox.Delivery{event(t, topic, "1")})[0].Err; !errors.Is(err, errFenced) {
		t.Errorf("the zombie's next call is answered %v", err)
	}
	fourth := event(t, topic, "1")
	deliver(t, heir, fourth)
	zombie.transacting.fenced = time.Now().Add(-fencedFor) // the heir is gone
	got, want := read(t, cluster.ListenAddrs(), topic).ids(zombie, topic), ids(first, second, third, fourth)
	if !slices.Equal(got, want) {
		t.Errorf("committed are %s, want %s", got, want)
	}
}

// What a transaction without an end has published is not read, and the next call ends it.
func TestTransactionWithoutEnd(t *testing.T) {
	t.Parallel()
	for _, key := range []kmsg.Key{kmsg.Produce, kmsg.EndTxn} {
		t.Run(key.Name(), func(t *testing.T) {
			t.Parallel()
			cluster := newCluster(t)
			topic := newTopic(t, admin(t, cluster.ListenAddrs()), 1)
			s := openURL(t, urlOf(cluster), Config{Envelope: idEnvelope, TransactionalID: "relay-1"})
			deliver(t, s, event(t, topic, "0"))
			r := read(t, cluster.ListenAddrs(), topic)
			r.next()
			ctx, cancel := context.WithCancel(t.Context())
			faults := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.NotEnoughReplicas, Count: -1,
				TopLevel: key == kmsg.EndTxn})
			batch := []outbox.Delivery{event(t, topic, "1"), event(t, topic, "1")}
			go func() {
				if err := faults.Wait(t.Context(), 1); err != nil {
					t.Error(err)
				}
				cancel()
			}()
			for _, res := range s.Publish(ctx, batch) {
				if !unavailable(res.Err) {
					t.Errorf("answered %+v, want unavailable", res)
				}
			}
			faults.Remove()
			deliver(t, s, batch...)
			if got := r.ids(s, topic); !slices.Equal(got, ids(batch...)) {
				t.Errorf("committed are %s, want %s", got, ids(batch...))
			}
		})
	}
}

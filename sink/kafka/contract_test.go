package kafka

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/outboxtest"
)

// realBrokers names the brokers of a cluster that may be written to, as a kafka:// URL has them.
const realBrokers = "OUTBOX_KAFKA_BROKERS"

var forbidden = []string{"orders.*", "orders>", "or ders", "orders\r\nx", "ünter", ".", "..", strings.Repeat("x", 250)}

func TestSinkContract(t *testing.T) {
	t.Parallel()
	t.Run("in process", func(t *testing.T) {
		t.Parallel()
		features := outboxtest.SinkFeatures{Headers: attributePrefix, LargestMessage: defaultMaxMessageBytes}
		outboxtest.SinkSuite(t, features, func(t *testing.T) outboxtest.SinkHarness {
			cluster := newCluster(t)
			h := harness(t, cluster.ListenAddrs(), "")
			h.Stall = func(*testing.T) func() { return stall(cluster) }
			return h
		})
	})
	t.Run("transactions", func(t *testing.T) {
		tier.Full(t)
		t.Parallel()
		features := outboxtest.SinkFeatures{Headers: attributePrefix, LargestMessage: defaultMaxMessageBytes}
		outboxtest.SinkSuite(t, features, func(t *testing.T) outboxtest.SinkHarness {
			cluster := newCluster(t)
			h := harness(t, cluster.ListenAddrs(), "relay-1")
			h.Stall = func(*testing.T) func() { return stall(cluster) }
			return h
		})
	})
	t.Run("a process that keeps its data", func(t *testing.T) {
		t.Parallel()
		features := outboxtest.SinkFeatures{Headers: attributePrefix, LargestMessage: defaultMaxMessageBytes, Durable: true}
		b := startBroker(t)
		outboxtest.SinkSuite(t, features, func(t *testing.T) outboxtest.SinkHarness {
			h := harness(t, []string{b.address}, "")
			h.Restart = func(t *testing.T) { b.kill(t); b.start(t) }
			return h
		})
	})
	if brokers := os.Getenv(realBrokers); brokers != "" {
		t.Run("cluster", func(t *testing.T) {
			features := outboxtest.SinkFeatures{Headers: attributePrefix, LargestMessage: defaultMaxMessageBytes}
			outboxtest.SinkSuite(t, features, func(t *testing.T) outboxtest.SinkHarness {
				return harness(t, strings.Split(brokers, ","), "")
			})
		})
	}
}

func harness(t *testing.T, brokers []string, transactionalID string) outboxtest.SinkHarness {
	url := "kafka://" + strings.Join(brokers, ",")
	client := admin(t, brokers)
	binary := Config{Binary: true}
	if transactionalID != "" {
		binary.TransactionalID = transactionalID + "-binary"
	}
	return outboxtest.SinkHarness{
		Sink:   openURL(t, url, Config{TransactionalID: transactionalID}),
		Binary: openURL(t, url, binary),
		Listen: func(t *testing.T) (string, <-chan outboxtest.Arrived) {
			topic := newTopic(t, client, 1)
			return topic, listen(t, brokers, topic)
		},
		Stored: func(t *testing.T, topic string, n int) (stored []outboxtest.Arrived) {
			r := read(t, brokers, topic)
			for range n {
				stored = append(stored, arrived(r.next()))
			}
			return stored
		},
		Refusing:  "missing",
		Forbidden: forbidden,
	}
}

func listen(t *testing.T, brokers []string, topic string) <-chan outboxtest.Arrived {
	r := read(t, brokers, topic)
	// More than any test sends: the forwarder never waits for a test that is over.
	messages := make(chan outboxtest.Arrived, 20000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(messages)
		for {
			fetches := r.client.PollFetches(t.Context())
			if fetches.IsClientClosed() || t.Context().Err() != nil {
				return // the test is over
			}
			for _, record := range fetches.Records() {
				messages <- arrived(record)
			}
		}
	}()
	t.Cleanup(func() { r.client.Close(); <-done })
	return messages
}

func arrived(r *kgo.Record) outboxtest.Arrived {
	a := outboxtest.Arrived{Body: r.Value, Headers: map[string]string{}}
	for _, h := range r.Headers {
		a.Headers[h.Key] = string(h.Value)
	}
	return a
}

// stall has the cluster answer no request to produce until resume is called.
func stall(cluster *kfake.Cluster) (resume func()) {
	resumed := make(chan struct{})
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.SleepControl(func() {
			select {
			case <-resumed:
			case <-time.After(tier.Patience()):
			}
		})
		return nil, nil, false
	})
	return func() { close(resumed) }
}

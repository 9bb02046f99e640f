package natsjs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/outboxtest"
)

func TestSinkContract(t *testing.T) {
	for _, tt := range []struct {
		name     string
		servers  int
		noSync   bool
		cfg      Config
		features outboxtest.SinkFeatures
	}{
		{"window", 1, false, Config{}, outboxtest.SinkFeatures{RefusesDuplicates: true}},
		{"window off", 1, true, Config{Window: -1}, outboxtest.SinkFeatures{}},
		{"cluster", 3, true, Config{}, outboxtest.SinkFeatures{RefusesDuplicates: true}},
	} {
		tt.features.Durable, tt.features.Headers, tt.features.LargestMessage = true, "ce-", 1<<20
		t.Run(tt.name, func(t *testing.T) {
			if tt.name != "window" {
				tier.Full(t)
			}
			t.Parallel()
			// One set of servers for all tests of a mode: a cluster takes seconds until it has its
			// leaders.
			b := &broker{servers: testenv.NATSCluster(t, tt.servers, testenv.NATSConfig{NoSync: tt.noSync})}
			b.js = admin(t, b.url())
			stream(t, b.js, jetstream.StreamConfig{Name: "SUITE", Subjects: []string{"suite.>"}, Replicas: tt.servers})
			outboxtest.SinkSuite(t, tt.features, func(t *testing.T) outboxtest.SinkHarness {
				binary := tt.cfg
				binary.Binary = true
				return outboxtest.SinkHarness{
					Sink:     openURL(t, b.url(), tt.cfg),
					Binary:   openURL(t, b.url(), binary),
					Listen:   b.listen,
					Stored:   b.stored,
					Restart:  b.restart,
					Refusing: "nobody.has.a.stream.for.this",
					Forbidden: []string{"", "suite.*", "suite.>", "suite.a b", "suite.a\r\nPUB x 1", "suite..a", ".suite", "suite.",
						"$JS.API.STREAM.DELETE.SUITE", "_INBOX.a", "suite.\xff", "suite." + strings.Repeat("x", maxSubject)},
					Stall: b.stall,
				}
			})
		})
	}
}

type broker struct {
	servers  []*testenv.NATS
	js       jetstream.JetStream
	subjects atomic.Int64
}

func (b *broker) url() string {
	var hosts []string
	for _, s := range b.servers {
		hosts = append(hosts, s.Addr())
	}
	return "nats://" + strings.Join(hosts, ",")
}

// listen reads what is in the stream, and not what core NATS passes on: copies that were refused
// are not in it.
func (b *broker) listen(t *testing.T) (string, <-chan outboxtest.Arrived) {
	subject := fmt.Sprintf("suite.%d", b.subjects.Add(1))
	var consumer jetstream.Consumer
	eventually(t, func() bool { // a request is lost with the server that was to answer it
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var err error
		consumer, err = b.js.OrderedConsumer(ctx, "SUITE",
			jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
		return err == nil
	})
	messages := make(chan outboxtest.Arrived, 10000) // more than any test sends
	reading, err := consumer.Consume(func(m jetstream.Msg) { messages <- arrived(m.Data(), m.Headers()) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reading.Stop(); <-reading.Closed() })
	return subject, messages
}

func arrived(body []byte, header nats.Header) outboxtest.Arrived {
	headers := map[string]string{}
	for name, values := range header {
		headers[name] = strings.Join(values, ", ")
	}
	return outboxtest.Arrived{Body: body, Headers: headers}
}

func (b *broker) stored(t *testing.T, subject string, n int) (all []outboxtest.Arrived) {
	for _, m := range stored(t, b.js, "SUITE", subject, n) {
		all = append(all, arrived(m.Data, m.Header))
	}
	return all
}

// restart kills the only server, or of a cluster one that does not lead the stream:
// TestLeaderIsKilled has the other.
func (b *broker) restart(t *testing.T) {
	s := b.servers[0]
	if n := len(b.servers); n > 1 {
		s = b.servers[(leader(t, b.js, "SUITE")+1)%n]
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
}

func (b *broker) stall(t *testing.T) func() {
	signal := func(which syscall.Signal) {
		for _, s := range b.servers {
			if err := syscall.Kill(s.PID(), which); err != nil {
				t.Error(err)
			}
		}
	}
	signal(syscall.SIGSTOP)
	for _, s := range b.servers {
		eventually(t, func() bool { return stopped(s.PID()) })
	}
	return func() { signal(syscall.SIGCONT) }
}

// stopped tells whether no thread of a process runs any more, which on a busy machine is a while
// after the signal. Where there is no /proc it believes so.
func stopped(pid int) bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err == nil && !strings.Contains(string(text), ") T ") {
			return false
		}
	}
	return true
}

package kafka

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/sink"
)

// A child of this binary with these variables is a broker that keeps its data, see startBroker.
const (
	brokerDir  = "OUTBOX_TEST_KAFKA_DIR"
	brokerPort = "OUTBOX_TEST_KAFKA_PORT"
)

func TestMain(m *testing.M) {
	if os.Getenv(brokerDir) != "" {
		serve()
		return
	}
	os.Exit(m.Run())
}

// serve is a broker until its standard input ends: with the process that started it, whatever ends
// that.
func serve() {
	port, err := strconv.Atoi(os.Getenv(brokerPort))
	if err != nil {
		panic(err)
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.DataDir(os.Getenv(brokerDir)),
		kfake.SyncWrites())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer cluster.Close()
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// broker is a child process that keeps its data.
type broker struct {
	dir, address string
	port         string
	process      *exec.Cmd
	input        io.Closer
}

func startBroker(t testing.TB) *broker {
	t.Helper()
	port := sinktest.FreePort(t)
	b := &broker{dir: t.TempDir(), address: "127.0.0.1:" + port, port: port}
	b.start(t)
	t.Cleanup(func() { b.kill(t) })
	return b
}

func (b *broker) start(t testing.TB) {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b.process = exec.Command(executable)
	b.process.Env = append(os.Environ(), brokerDir+"="+b.dir, brokerPort+"="+b.port)
	b.process.Stderr = os.Stderr
	output, err := b.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if b.input, err = b.process.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := b.process.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(output).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the broker says %q, %v", line, err)
	}
}

// kill ends the broker as a crash does. A second call does nothing.
func (b *broker) kill(t testing.TB) {
	t.Helper()
	if b.process == nil {
		return
	}
	if err := b.process.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = b.process.Wait() // it was killed
	_ = b.input.Close()
	b.process = nil
}

// newCluster returns brokers in this process.
func newCluster(t testing.TB, options ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}

func urlOf(cluster *kfake.Cluster) string {
	return "kafka://" + strings.Join(cluster.ListenAddrs(), ",")
}

var (
	event, ids, idEnvelope = sinktest.Event, sinktest.IDs, sinktest.IDEnvelope
	deliver, unavailable   = sinktest.Deliver, sinktest.Unavailable
)

func openURL(t testing.TB, url string, cfg Config) *Sink {
	t.Helper()
	s, err := Open(t.Context(), url, cfg)
	return sinktest.Closing(t, s, err)
}

// admin is a client that is not the sink's.
func admin(t testing.TB, brokers []string, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(brokers...))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

var topics atomic.Int64

// newTopic makes a topic that nobody else uses.
func newTopic(t testing.TB, client *kgo.Client, partitions int32, configs ...string) string {
	t.Helper()
	name := fmt.Sprintf("outbox-%d-%d", os.Getpid(), topics.Add(1))
	createTopic(t, client, name, partitions, configs...)
	return name
}

func createTopic(t testing.TB, client *kgo.Client, name string, partitions int32, configs ...string) {
	t.Helper()
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = name, partitions, 1
	for i := 0; i < len(configs); i += 2 {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = configs[i], kmsg.StringPtr(configs[i+1])
		wanted.Configs = append(wanted.Configs, config)
	}
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics = append(request.Topics, wanted)
	answer, err := request.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(answer.Topics[0].ErrorCode); err != nil {
		t.Fatal(err)
	}
}

func deleteTopic(t testing.TB, client *kgo.Client, name string) {
	t.Helper()
	request := kmsg.NewPtrDeleteTopicsRequest()
	doomed := kmsg.NewDeleteTopicsRequestTopic()
	doomed.Topic = kmsg.StringPtr(name)
	request.Topics, request.TopicNames = append(request.Topics, doomed), []string{name}
	answer, err := request.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(answer.Topics[0].ErrorCode); err != nil {
		t.Fatal(err)
	}
}

// reader reads a topic from its beginning, committed records only.
type reader struct {
	t      testing.TB
	client *kgo.Client
	left   []*kgo.Record
}

func read(t testing.TB, brokers []string, topic string) *reader {
	t.Helper()
	return &reader{t: t, client: admin(t, brokers, kgo.ConsumeTopics(topic), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))}
}

// next returns the next record.
func (r *reader) next() *kgo.Record {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), tier.Patience())
	defer cancel()
	for len(r.left) == 0 {
		fetches := r.client.PollFetches(ctx)
		if ctx.Err() != nil {
			r.t.Fatalf("nothing for %s", tier.Patience())
		}
		r.left = fetches.Records()
	}
	record := r.left[0]
	r.left = r.left[1:]
	return record
}

// ids returns the ids of all events that are there when an event published now is: it comes last of
// a topic with one partition.
func (r *reader) ids(s sink.Sink, topic string) (ids []string) {
	r.t.Helper()
	end := event(r.t, topic, "the end")
	deliverAtLast(r.t, s, end)
	for {
		id := idOf(r.next())
		if id == end.ID.String() {
			return ids
		}
		ids = append(ids, id)
	}
}

// idOf is the id of an event that idEnvelope has written.
func idOf(r *kgo.Record) string { return string(r.Value) }

// deliverAtLast publishes until the answer is no longer that the cluster is unavailable.
func deliverAtLast(t testing.TB, s sink.Sink, d outbox.Delivery) {
	t.Helper()
	for end := time.Now().Add(tier.Patience()); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		res := s.Publish(ctx, []outbox.Delivery{d})[0]
		cancel()
		if res.Err == nil {
			return
		}
		if !unavailable(res.Err) || time.Now().After(end) {
			t.Fatalf("answered %+v", res)
		}
	}
}

package readers

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/sink"
	"github.com/outboxrelay/outbox/sink/kafka"
)

const (
	records  = 20
	patience = 2 * time.Minute
)

// codecs are those of Config.Compression, with their number in a batch (Kafka protocol guide,
// "Record Batch").
var codecs = map[string]uint16{"": 0, "none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

// published returns a broker and a topic with records of the sink that this option of the URL
// makes.
func published(t *testing.T, compression string) (broker, topic string, want []string) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	broker, topic = cluster.ListenAddrs()[0], "orders"
	url := "kafka://" + broker + "?create=1:1"
	if compression != "" {
		url += "&compression=" + compression
	}
	s := open(t, kafka.Driver(), url)
	batch := deliveries(t, topic, records)
	send(t, s, batch)
	for i := range batch {
		want = append(want, string(batch[i].AppendMessage(nil, outbox.CloudEvent)))
	}
	return broker, topic, want
}

func same(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%d records were read, %d sent; the first read is %.300q", len(got), len(want), append(got, "")[0])
	}
}

// kafkajs has gzip by itself and needs a package for each of the others.
func TestKafkaJS(t *testing.T) {
	t.Parallel()
	for _, compression := range []string{"", "none", "gzip"} {
		broker, topic, want := published(t, compression)
		same(t, valuesOf(t, run(t, "node", "kafkajs/read.js", broker, topic, fmt.Sprint(records))), want)
	}
}

func TestKcat(t *testing.T) {
	t.Parallel()
	for compression := range codecs {
		broker, topic, want := published(t, compression)
		output := run(t, "kcat", "-b", broker, "-C", "-t", topic, "-o", "beginning", "-c", fmt.Sprint(records), "-e", "-q", "-f",
			"%s\n")
		same(t, strings.Split(strings.TrimSuffix(output, "\n"), "\n"), want)
	}
}

func TestSarama(t *testing.T) {
	t.Parallel()
	for compression := range codecs {
		broker, topic, want := published(t, compression)
		consumer, err := sarama.NewConsumer([]string{broker}, sarama.NewConfig())
		if err != nil {
			t.Fatal(err)
		}
		partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for range records {
			select {
			case m := <-partition.Messages():
				got = append(got, string(m.Value))
			case err := <-partition.Errors():
				t.Fatal(err)
			case <-time.After(patience):
				t.Fatalf("%d of %d records", len(got), records)
			}
		}
		same(t, got, want)
		_ = partition.Close()
		_ = consumer.Close()
	}
}

// What Kafka's Java client checks of a batch (DefaultRecordBatch): the format, its length, its
// checksum and the codec.
func TestBatchFormat(t *testing.T) {
	t.Parallel()
	for compression, codec := range codecs {
		broker, topic, _ := published(t, compression)
		batch := fetch(t, broker, topic)
		length, magic := int(binary.BigEndian.Uint32(batch[8:])), batch[16]
		if magic != 2 || length+12 > len(batch) {
			t.Fatalf("%q: magic %d, length %d of %d bytes", compression, magic, length, len(batch))
		}
		batch = batch[:length+12]
		crc, attributes := binary.BigEndian.Uint32(batch[17:]), binary.BigEndian.Uint16(batch[21:])
		if sum := crc32.Checksum(batch[21:], crc32.MakeTable(crc32.Castagnoli)); sum != crc {
			t.Errorf("%q: checksum %x, want %x", compression, crc, sum)
		}
		if attributes&7 != codec {
			t.Errorf("%q: codec %d, want %d", compression, attributes&7, codec)
		}
		data := batch[61:]
		if codec == 1 {
			unpacked, err := gzip.NewReader(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			if data, err = io.ReadAll(unpacked); err != nil {
				t.Fatal(err)
			}
		}
		if codec < 2 && !bytes.Contains(data, []byte(`"total":0`)) {
			t.Errorf("%q: no payload in %.200q", compression, data)
		}
	}
}

func fetch(t *testing.T, broker, topic string) []byte {
	t.Helper()
	p := kmsg.NewFetchRequestTopicPartition()
	p.PartitionMaxBytes = 10 << 20
	of := kmsg.NewFetchRequestTopic()
	of.Topic, of.Partitions = topic, append(of.Partitions, p)
	request := kmsg.NewPtrFetchRequest()
	request.MaxBytes, request.MinBytes, request.MaxWaitMillis = 10<<20, 1, 1000
	request.Topics = append(request.Topics, of)
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.MaxVersions(kversion.V2_8_0())) // before topics had ids here
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	answer, err := request.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Topics[0].Partitions[0].RecordBatches
}

// run returns what a program prints.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, name, args...)
	var problem bytes.Buffer
	command.Stderr = &problem
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, problem.String())
	}
	return string(output)
}

func valuesOf(t *testing.T, lines string) (values []string) {
	for line := range strings.Lines(lines) {
		var record struct{ Key, Value string }
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		values = append(values, record.Value)
	}
	return values
}

func open(t *testing.T, d sink.Driver, url string) sink.Sink {
	t.Helper()
	s, err := d.Open(t.Context(), url, sink.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func send(t *testing.T, s sink.Sink, batch []outbox.Delivery) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, r := range s.Publish(ctx, batch) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

func deliveries(t *testing.T, destination string, n int) (all []outbox.Delivery) {
	t.Helper()
	for i := range n {
		id, err := outbox.NewID()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, outbox.Delivery{Destination: destination, Record: &outbox.Record{
			OrderKey: 42, Keyed: true,
			RawMetadata: []byte(`{"correlation_id":"c-1","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`),
			Event: outbox.Event{ID: id, Topic: "order.placed", AggregateType: "Order", AggregateID: "42", TenantID: "acme",
				Source: "shop", OccurredAt: time.Now(), Payload: fmt.Appendf(nil, `{"total":%d,"name":"Zoë"}`, i)},
		}})
	}
	return all
}

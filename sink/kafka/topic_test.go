package kafka

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outboxrelay/outbox"
)

// A topic that is not there fails the events for it, with what to do; when it is there they go out.
func TestMissingTopic(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t)
	client := admin(t, cluster.ListenAddrs())
	s := openURL(t, urlOf(cluster), Config{Envelope: idEnvelope})
	d := event(t, "orders", "1")
	err := s.Publish(t.Context(), []outbox.Delivery{d})[0].Err
	if class, _ := outbox.Classify(err); err == nil || class != outbox.ClassRetryable ||
		!strings.Contains(err.Error(), "kafka-topics.sh --create --topic orders") ||
		!strings.Contains(err.Error(), "create=") {
		t.Errorf("answered %v", err)
	}
	createTopic(t, client, "orders", 1)
	deliver(t, s, d)
	// Made anew, it is another topic, which has nothing of what was published.
	deleteTopic(t, client, "orders")
	gone := event(t, "orders", "1")
	if err := s.Publish(t.Context(), []outbox.Delivery{gone})[0].Err; err == nil {
		t.Error("an event for a topic that is gone is answered as delivered")
	}
	createTopic(t, client, "orders", 1)
	for { // it may take the client some time to believe it
		again := s.Publish(t.Context(), []outbox.Delivery{gone})[0]
		if again.Err == nil {
			break
		}
		t.Log(again.Err)
	}
	if got := read(t, cluster.ListenAddrs(), "orders").ids(s, "orders"); !slices.Equal(got, ids(gone)) {
		t.Errorf("arrived %s, want %s", got, gone.ID)
	}
}

func TestCreatesTopic(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t, kfake.NumBrokers(3))
	for name, id := range map[string]string{"made": "", "made-too": "&transactional_id=relay-1"} {
		s := openURL(t, urlOf(cluster)+"?create=6:3"+id, Config{})
		deliver(t, s, event(t, name, "1"), event(t, name, "2"))
		if info := cluster.TopicInfo(name); info == nil || len(cluster.PartitionInfos(name)) != 6 {
			t.Errorf("topic %s: %+v", name, info)
		}
	}
	s := openURL(t, urlOf(cluster)+"?create=6:9", Config{})
	err := s.Publish(t.Context(), []outbox.Delivery{event(t, "wide", "1")})[0].Err
	if class, _ := outbox.Classify(err); err != nil && class == outbox.ClassUnavailable {
		t.Errorf("a refused creation is answered %v", err)
	}
}

// Events of a key have a partition, that of Kafka's own client; events without a key have no key
// there.
func TestKeysAndPartitions(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t)
	client := admin(t, cluster.ListenAddrs())
	topic := newTopic(t, client, 12)
	s := openURL(t, urlOf(cluster), Config{Envelope: idEnvelope})
	var batch []outbox.Delivery
	for _, key := range []string{"42", "43", "Ärger", "a b"} {
		batch = append(batch, event(t, topic, key), event(t, topic, key))
	}
	free := event(t, topic, "44")
	free.Keyed = false
	deliver(t, s, append(batch, free)...)
	r := read(t, cluster.ListenAddrs(), topic)
	byKafka := kgo.StickyKeyPartitioner(nil).ForTopic(topic)
	for range len(batch) + 1 {
		record := r.next()
		if idOf(record) == free.ID.String() {
			if record.Key != nil {
				t.Errorf("an event without a key has the key %q", record.Key)
			}
			continue
		}
		at := slices.Index(ids(batch...), idOf(record))
		if want := batch[at].AggregateID; string(record.Key) != want {
			t.Errorf("the key is %q, want %q", record.Key, want)
		}
		if want := byKafka.Partition(record, 12); int(record.Partition) != want {
			t.Errorf("key %s is in partition %d, want %d", record.Key, record.Partition, want)
		}
	}
}

// A topic gets more partitions while the sink publishes to it.
func TestMorePartitions(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t)
	client := admin(t, cluster.ListenAddrs())
	topic := newTopic(t, client, 1)
	s := openURL(t, urlOf(cluster), Config{Envelope: idEnvelope})
	deliver(t, s, event(t, topic, "1"))
	request := kmsg.NewPtrCreatePartitionsRequest()
	more := kmsg.NewCreatePartitionsRequestTopic()
	more.Topic, more.Count = topic, 5
	request.Topics = append(request.Topics, more)
	if _, err := request.RequestWith(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	s.current().client.ForceMetadataRefresh()
	for range 50 {
		var batch []outbox.Delivery
		for key := range 20 {
			batch = append(batch, event(t, topic, string(rune('a'+key))))
		}
		deliver(t, s, batch...)
	}
}

// A user who may not write to a topic cannot, and may to others.
func TestForbiddenTopic(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "hunter2"),
		kfake.SeedTopics(1, "mine", "theirs"),
		kfake.User("PLAIN", "relay", "hunter2", kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "mine", Allow: true,
			Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationWrite},
			kfake.ACL{Resource: kmsg.ACLResourceTypeCluster, Name: "kafka-cluster", Allow: true,
				Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationIdempotentWrite}))
	s := openURL(t, strings.Replace(urlOf(cluster), "://", "://relay:hunter2@", 1), Config{})
	got := s.Publish(t.Context(), []outbox.Delivery{event(t, "theirs", "1"), event(t, "mine", "2"), event(t, "mine", "1")})
	if class, _ := outbox.Classify(got[0].Err); got[0].Err == nil || class != outbox.ClassRetryable ||
		!strings.Contains(got[0].Err.Error(), "kafka-acls.sh") {
		t.Errorf("the topic of others: %v", got[0].Err)
	}
	if got[1].Err != nil || !errors.Is(got[2].Err, outbox.ErrNotAttempted) {
		t.Errorf("answered %+v", got[1:])
	}
}

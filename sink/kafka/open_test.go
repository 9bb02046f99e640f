package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
)

func TestURLs(t *testing.T) {
	t.Parallel()
	sinktest.URLs{
		Check: map[string]string{
			"kafka://h": "", "kafka://h:9092/": "", "kafkas://u:p@h1:9093,h2,[::1]:9092?sasl=scram-sha-512": "",
			"kafka://h?cloudevents=binary&create=6:3&transactional_id=a-1&max_message_bytes=5000000": "", "kafka://[::1]": "",
			"kafka://u:hunter2%2F@h": "", "kafka://u:hunt/er2@h": "%2F", "kafka://": "not of the form",
			"kafka://u:hunter2@h:x": "not of the form", "kafka://u:hunter2@h:0": "none of 1 to 65535",
			"kafka://:hunter2@h": "not of the form", "kafka://u:hunter2@h/topic": "not of the form",
			"kafka://u:hunter2@h1,,h2": "not of the form", "kafka://h#x": "not of the form", "kafka:h": "not of the form",
			"kafka://h?sasl=plain": "needs a user", "kafka://u:hunter2@h?sasl=gssapi": "sasl is none of",
			"kafka://h?cloudevents=xml": "structured, binary, watermill", "kafka://h?create=6": "create must be",
			"kafka://h?create=0:1": "create must be", "kafka://h?hunter2=1": "an option that is none of",
			"kafka://h?compression=zstd&cloudevents=watermill": "",
			"kafka://h?compression=brotli":                     "none, gzip, snappy, lz4 or zstd",
			"kafka://h?max_message_bytes=x":                    "max_message_bytes is none of",
			"kafka://h?max_message_bytes=9":                    "MaxMessageBytes is 9",
			"kafka://h?a=%zz":                                  "not of the form",
		},
		Plaintext: map[string]string{
			"kafka://broker": "broker", "kafka://u:p@10.0.0.7:9092": "10.0.0.7", "kafka://a:1,localhost:2,b:3": "a b",
			"kafka://127.0.0.1": "", "kafka://[::1]:9092": "", "kafkas://broker": "",
		},
		Encrypted: map[string]string{"kafkas://u:p@a,b:1": "a:9092 b:1", "kafka://a": ""},
		Mask:      map[string]string{"kafkas://u:hunter2@h1,h2?transactional_id=x": "kafkas://h1,h2"},
	}.Test(t, Driver())
}

func TestConfigProblems(t *testing.T) {
	t.Parallel()
	_, err := New(Config{MaxMessageBytes: 1, Create: &Creation{}, TransactionalID: strings.Repeat("x", 20_000)})
	for _, says := range []string{"MaxMessageBytes", "Create.Partitions", "Create.Replication", "TransactionalID"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got error %v, want %s in it", err, says)
		}
	}
	if _, err := Open(t.Context(), "kafka://h", Config{TLS: &tls.Config{}}); err == nil {
		t.Error("TLS goes with kafka://")
	}
}

func TestDriver(t *testing.T) {
	t.Parallel()
	address := func(options ...kfake.Opt) string { return newCluster(t, options...).ListenAddrs()[0] }
	known := []kfake.Opt{kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "hunter2"),
		kfake.Superuser("SCRAM-SHA-256", "u", "hunter2"), kfake.Superuser("SCRAM-SHA-512", "u", "hunter2")}
	guarded, open := address(known...), address()
	// kfake hangs up on who has a wrong password; Kafka says so.
	speaking := newCluster(t, known...)
	speaking.ControlKey(int16(kmsg.SASLAuthenticate), func(request kmsg.Request) (kmsg.Response, error, bool) {
		speaking.KeepControl()
		answer := request.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		answer.ErrorCode = kerr.SaslAuthenticationFailed.Code
		answer.ErrorMessage = kmsg.StringPtr("Authentication failed: Invalid username or password hunter2x")
		return answer, nil, true
	})
	strict := speaking.ListenAddrs()[0]
	_, certificate := authority(t)
	secured := address(kfake.TLS(&tls.Config{Certificates: []tls.Certificate{certificate}}))
	sinktest.Opens(t, Driver(), map[string]sinktest.Opening{
		"kafka://" + open:                                          {Opens: true},
		"kafka://127.0.0.1:1," + open:                              {Opens: true},
		"kafka://u:hunter2@" + guarded:                             {Opens: true},
		"kafka://u:hunter2@" + guarded + "?sasl=scram-sha-256":     {Opens: true},
		"kafka://u:hunter2@" + guarded + "?sasl=scram-sha-512":     {Opens: true},
		"kafka://u:hunter2@" + guarded + "?transactional_id=relay": {Opens: true},
		"kafka://u:hunter2x@" + strict:                             {Hint: "password"},
		"kafka://u:hunter2x@" + strict + "?sasl=scram-sha-512":     {Hint: "password"},
		"kafka://u:hunter2x@" + guarded:                            {Waits: true, Hint: "is Kafka running"},
		"kafka://stranger:hunter2@" + strict + "?sasl=plain":       {Hint: "password"},
		"kafka://" + guarded:                                       {Waits: true, Hint: "is Kafka running"},
		"kafka://127.0.0.1:1":                                      {Waits: true, Hint: "is Kafka running"},
		"kafka://" + secured:                                       {Waits: true, Hint: "scheme"},
		"kafkas://" + open:                                         {Waits: true, Hint: "scheme"},
		"kafkas://" + secured:                                      {Hint: "scheme"},
	})
}

func TestTLS(t *testing.T) {
	t.Parallel()
	roots, certificate := authority(t)
	cluster := newCluster(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{certificate}}),
		kfake.SeedTopics(1, "orders"))
	s := openURL(t, strings.Replace(urlOf(cluster), "kafka:", "kafkas:", 1), Config{TLS: &tls.Config{RootCAs: roots}})
	deliver(t, s, event(t, "orders", "1"))
}

// authority returns a certificate for 127.0.0.1 and what vouches for it.
func authority(t *testing.T) (*x509.CertPool, tls.Certificate) {
	t.Helper()
	roots, certFile, keyFile := sinktest.Certificate(t, t.TempDir())
	certificate, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	return roots, certificate
}

// A cluster that goes away is no event's failure, and is found again.
func TestClusterAway(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	topic := newTopic(t, admin(t, []string{b.address}), 1)
	s := openURL(t, "kafka://"+b.address, Config{Envelope: idEnvelope})
	deliver(t, s, event(t, topic, "1"))
	b.kill(t)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	for _, res := range s.Publish(ctx, []outbox.Delivery{event(t, topic, "1"), event(t, "another", "2")}) {
		if !unavailable(res.Err) {
			t.Errorf("answered %+v, want unavailable", res)
		}
	}
	if err := s.Abilities().Ping(ctx); !unavailable(err) {
		t.Errorf("ping: %v", err)
	}
	b.start(t)
	deliverAtLast(t, s, event(t, topic, "1"))
}

// A right that is given later is found out: the client would remember the refusal for ever.
func TestRightGivenLater(t *testing.T) {
	t.Parallel()
	for _, options := range []string{"", "?transactional_id=relay-1"} {
		cluster := newCluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "hunter2"),
			kfake.SeedTopics(1, "orders"), kfake.User("PLAIN", "relay", "hunter2"))
		root := newRoot(t, cluster)
		if options == "" {
			allow(t, root, kmsg.ACLResourceTypeTopic, "orders", kmsg.ACLOperationDescribe)
		}
		s, err := New(Config{TransactionalID: strings.TrimPrefix(options, "?transactional_id=")},
			mustParse(t, strings.Replace(urlOf(cluster), "://", "://relay:hunter2@", 1)).options()...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		d := event(t, "orders", "1")
		if err := s.Publish(t.Context(), []outbox.Delivery{d})[0].Err; err == nil {
			t.Error("published without the right")
		}
		allow(t, root, kmsg.ACLResourceTypeTopic, "orders", kmsg.ACLOperationWrite)
		_ = s.Publish(t.Context(), []outbox.Delivery{d})
		allow(t, root, kmsg.ACLResourceTypeCluster, "kafka-cluster", kmsg.ACLOperationIdempotentWrite)
		allow(t, root, kmsg.ACLResourceTypeTransactionalId, "relay-1", kmsg.ACLOperationWrite)
		deliverAtLast(t, s, d)
	}
}

func mustParse(t *testing.T, url string) *address {
	t.Helper()
	a, err := parse(url, &Config{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func newRoot(t *testing.T, cluster *kfake.Cluster) *kgo.Client {
	return admin(t, cluster.ListenAddrs(), mustParse(t, "kafka://root:hunter2@h").options()[1:]...)
}

func allow(t *testing.T, root *kgo.Client, kind kmsg.ACLResourceType, name string, operation kmsg.ACLOperation) {
	t.Helper()
	request := kmsg.NewPtrCreateACLsRequest()
	right := kmsg.NewCreateACLsRequestCreation()
	right.ResourceType, right.ResourceName, right.Operation = kind, name, operation
	right.ResourcePatternType, right.Principal, right.Host = kmsg.ACLResourcePatternTypeLiteral, "User:relay", "*"
	right.PermissionType = kmsg.ACLPermissionTypeAllow
	request.Creations = append(request.Creations, right)
	answer, err := request.RequestWith(t.Context(), root)
	if err != nil || answer.Results[0].ErrorCode != 0 {
		t.Fatalf("%v %v", err, reflect.ValueOf(answer).Elem())
	}
}

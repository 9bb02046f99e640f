package rabbitmq

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/outbox"
)

const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// What consumers get, read by the CloudEvents SDK in both modes.
func TestMessage(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.queue(t, "q", nil)
	messages := b.consume(t, "q")
	for _, mode := range []string{"structured", "binary"} {
		s := open(t, b.url()+"?cloudevents="+mode, Config{})
		d := newEvent(t, "q", 42)
		d.Payload = json.RawMessage(`{"total": "12 €"}`)
		d.RawMetadata = json.RawMessage(`{"traceparent":"` + trace + `","tracestate":"a=b","colour":"grün \"x\" 100%","n":7}`)
		d.Sequence = 9
		deliver(t, s, d)
		m := next(t, messages)
		if m.MessageId != d.ID.String() || m.Type != d.Topic || m.DeliveryMode != amqp.Persistent ||
			m.Timestamp.Unix() != d.OccurredAt.Unix() {
			t.Errorf("%s: id %q, type %q, mode %d, timestamp %s", mode, m.MessageId, m.Type, m.DeliveryMode, m.Timestamp)
		}
		if m.Headers["traceparent"] != trace || m.Headers["tracestate"] != "a=b" {
			t.Errorf("%s: headers %v", mode, m.Headers)
		}
		e := read(t, m)
		if err := e.Validate(); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		if e.ID() != d.ID.String() || e.Source() != "orders" || e.Type() != d.Topic || e.Subject() != "Order/42" ||
			!e.Time().Equal(d.OccurredAt) || e.DataContentType() != "application/json" ||
			fmt.Sprint(e.Extensions()["colour"]) != `grün "x" 100%` || fmt.Sprint(e.Extensions()["n"]) != "7" ||
			e.Extensions()["traceparent"] != trace || e.Extensions()["sequence"] != "0000000000000000009" {
			t.Errorf("%s: read %s", mode, e)
		}
		var data map[string]string
		if err := e.DataAs(&data); err != nil || data["total"] != "12 €" {
			t.Errorf("%s: data %v, %v", mode, data, err)
		}
	}
}

// read makes a CloudEvent of a message, as the AMQP binding of CloudEvents 1.0 says (section 3).
func read(t *testing.T, m amqp.Delivery) event.Event {
	t.Helper()
	if strings.HasPrefix(m.ContentType, "application/cloudevents") {
		var e event.Event
		if err := json.Unmarshal(m.Body, &e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := event.New(m.Headers["cloudEvents_specversion"].(string))
	for name, value := range m.Headers {
		attribute, ok := strings.CutPrefix(name, "cloudEvents_")
		text, isText := value.(string)
		switch {
		case !ok:
		case !isText:
			t.Fatalf("%s is a %T", name, value)
		case attribute == "id":
			e.SetID(text)
		case attribute == "source":
			e.SetSource(text)
		case attribute == "type":
			e.SetType(text)
		case attribute == "subject":
			e.SetSubject(text)
		case attribute == "time":
			at, err := time.Parse(time.RFC3339Nano, text)
			if err != nil {
				t.Fatal(err)
			}
			e.SetTime(at)
		case attribute != "specversion":
			e.SetExtension(attribute, text)
		}
	}
	if err := e.SetData(m.ContentType, m.Body); err != nil {
		t.Fatal(err)
	}
	return e
}

// Deliveries without a time, with a topic that AMQP cannot carry as a property, and of a table with
// its own envelope.
func TestPlainMessage(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.queue(t, "q", nil)
	s := open(t, b.url(), Config{Envelope: outbox.PayloadOnly})
	d := newEvent(t, "q", 1)
	d.Topic, d.OccurredAt = strings.Repeat("t", 256), time.Time{}
	own := newEvent(t, "q", 1)
	own.Envelope = outbox.CloudEvent
	deliver(t, s, d, own)
	got := b.stored(t, "q")
	if m := got[0]; m.Type != "" || !m.Timestamp.IsZero() || string(m.Body) != string(d.Payload) ||
		m.ContentType != "application/json" {
		t.Errorf("type %q, timestamp %s, body %s, content type %s", m.Type, m.Timestamp, m.Body, m.ContentType)
	}
	if m := got[1]; !strings.HasPrefix(m.ContentType, "application/cloudevents+json") {
		t.Errorf("the table's own envelope has content type %s", m.ContentType)
	}
}

// An event that no RabbitMQ would take, or that nobody can build, fails alone and with a reason.
func TestRefusedBeforehand(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.queue(t, "q", nil)
	s := open(t, b.url(), Config{Binary: true})
	huge := newEvent(t, "q", 1)
	huge.RawMetadata = json.RawMessage(`{"note":"` + strings.Repeat("x", 140<<10) + `"}`)
	held, other := newEvent(t, "q", 1), newEvent(t, "q", 2)
	got := s.Publish(t.Context(), []outbox.Delivery{huge, held, other})
	wantClass(t, got[0].Err, outbox.ClassPermanent)
	if !strings.Contains(got[0].Err.Error(), "frame_max") || !errors.Is(got[1].Err, outbox.ErrNotAttempted) ||
		got[2].Err != nil {
		t.Errorf("answered %+v", got)
	}

	structured := open(t, b.url(), Config{})
	deliver(t, structured, huge)
	broken := newEvent(t, "q", 3)
	broken.Envelope = func([]byte, *outbox.Delivery) []byte { panic("no such field") }
	got = structured.Publish(t.Context(), []outbox.Delivery{broken, newEvent(t, "q", 4)})
	wantFailure(t, got[0].Err, "no such field")
	if got[1].Err != nil {
		t.Error(got[1].Err)
	}
}

// A message that is larger than the server takes is found out once, alone; from then on it is
// refused beforehand.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.Eval(t, "application:set_env(rabbit, max_message_size, 3000000).")
	b.queue(t, "q", nil)
	s := open(t, b.url(), Config{})
	deliver(t, s, newEvent(t, "q", 0))
	for range 2 {
		batch := []outbox.Delivery{newEvent(t, "q", 1), newEvent(t, "q", 2), newEvent(t, "q", 3)}
		batch[1].Payload = json.RawMessage(`"` + strings.Repeat("x", 3<<20) + `"`)
		got := s.Publish(t.Context(), batch)
		wantClass(t, got[1].Err, outbox.ClassPermanent)
		if !strings.Contains(got[1].Err.Error(), "3000000") || got[0].Err != nil || got[2].Err != nil {
			t.Errorf("answered %.300q, %v, %v", got[1].Err, got[0].Err, got[2].Err)
		}
	}
	if s.largest.Load() != 3000000 {
		t.Errorf("the sink has learnt the limit %d", s.largest.Load())
	}
}

// Nothing is created, unless asked for: then a durable quorum queue, once.
func TestDeclare(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	plain := open(t, b.url(), Config{})
	wantFailure(t, plain.Publish(t.Context(), []outbox.Delivery{newEvent(t, "new", 1)})[0].Err, "declare=quorum")
	if got := b.Eval(t, fmt.Sprintf(`length(rabbit_amqqueue:list(<<%q>>)).`, b.vhost)); got != "0" {
		t.Fatalf("%s queues were made", got)
	}
	s := open(t, b.url()+"?declare=quorum", Config{})
	var batch []outbox.Delivery
	for i := range 30 {
		batch = append(batch, newEvent(t, "new", i%10))
	}
	deliver(t, s, batch...)
	if got := len(b.stored(t, "new")); got != len(batch) {
		t.Errorf("%d messages are stored, want %d", got, len(batch))
	}
	b.queue(t, "new", amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}) // as it is: another would be an error
	wantFailure(t, s.Publish(t.Context(), []outbox.Delivery{newEvent(t, "amq.reserved", 1)})[0].Err, "declare the queue")
	if got := s.Publish(t.Context(), []outbox.Delivery{newEvent(t, "new", 1)}); got[0].Err != nil {
		t.Error(got[0].Err)
	}
}

// The same delivery twice in a batch, and a queue's and an exchange's name with a slash.
func TestDestinations(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	s := open(t, b.url(), Config{})
	b.queue(t, "a/b", nil)
	b.exchange(t, "x/y%", "direct")
	b.bind(t, "a/b", "k/1", "x/y%")
	d := newEvent(t, "/a/b", 1)
	d.Keyed = false
	gone := newEvent(t, "/a/c", 1)
	gone.Keyed = false
	got := s.Publish(t.Context(), []outbox.Delivery{d, d, toward(d, "x%2Fy%25/k/1"), gone, gone})
	if got[0].Err != nil || got[1].Err != nil || got[2].Err != nil {
		t.Errorf("answered %+v", got)
	}
	wantFailure(t, got[3].Err, "NO_ROUTE")
	wantFailure(t, got[4].Err, "NO_ROUTE")
	if n := len(b.stored(t, "a/b")); n != 3 {
		t.Errorf("%d messages arrived, want 3", n)
	}
}

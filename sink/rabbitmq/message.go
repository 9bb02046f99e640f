package rabbitmq

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/cloudevent"
)

// prefix begins the names of the headers that carry the attributes of a CloudEvent. The AMQP
// binding of CloudEvents knows it beside "cloudEvents:", and prefers it because JMS takes no colon
// in a name.
const prefix = "cloudEvents_"

// Sizes in bytes around the properties of a message. They are of the frame itself (AMQP 0-9-1,
// section 4.2.3), and at most what comes before and between the properties (section 4.2.6.1), names
// and values not counted.
const (
	frameOverhead    = 8
	propertyOverhead = 64
)

// message builds what is sent for a delivery, with a body in buf, which it returns. An error is for
// good.
func (s *Sink) message(d *outbox.Delivery, buf []byte, frame int) (amqp.Publishing, []byte, error) {
	m := amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: d.ID.String(), Headers: amqp.Table{}}
	if d.OccurredAt.Unix() > 0 {
		m.Timestamp = d.OccurredAt
	}
	if len(d.Topic) <= maxName {
		m.Type = d.Topic
	}
	form := cloudevent.Form{Envelope: s.cfg.Envelope, Binary: s.cfg.Binary, Prefix: prefix, Watermill: s.cfg.Watermill}
	buf = form.Message(buf[:0], d, func(name, value string) {
		if name == cloudevent.ContentType {
			m.ContentType = value
		} else {
			m.Headers[name] = value
		}
	})
	if s.cfg.Watermill {
		m.ContentType = outbox.ContentType(nil)
	}
	m.Body = buf
	if most := s.largest.Load(); most > 0 && int64(len(m.Body)) > most {
		return m, buf, outbox.Permanent(fmt.Errorf("the message has %d bytes, and RabbitMQ takes at most %d "+
			"(its max_message_size)", len(m.Body), most))
	}
	size := propertyOverhead + len(m.MessageId) + len(m.Type) + len(m.ContentType)
	for name, value := range m.Headers {
		size += 6 + len(name) + len(value.(string)) // both lengths, and the type
	}
	if frame > 0 && size > frame-frameOverhead {
		return m, buf, outbox.Permanent(fmt.Errorf("its headers have %d bytes, and RabbitMQ takes %d (its frame_max): "+
			"leave large members out of the metadata, or send it in structured mode", size, frame-frameOverhead))
	}
	return m, buf, nil
}

package natsjs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/cloudevent"
)

// attribute begins the names of headers that are attributes, and eventID is the event's own. They
// are the NATS protocol binding's of CloudEvents 1.0.3. A content type of CloudEvents says
// structured mode, so binary mode has datacontenttype under its own name.
const (
	attribute = "ce-"
	eventID   = attribute + "id"
)

// message is what is sent of a delivery.
func (s *Sink) message(d *outbox.Delivery) *nats.Msg {
	m := &nats.Msg{Subject: d.Destination, Header: make(nats.Header, 4)}
	set := func(name, value string) { m.Header[name] = []string{value} }
	form := cloudevent.Form{Envelope: s.cfg.Envelope, Binary: s.cfg.Binary, Prefix: attribute, Watermill: s.cfg.Watermill}
	m.Data = form.Message(make([]byte, 0, len(d.Payload)+1024), d, func(name, value string) {
		if s.cfg.Binary && name == cloudevent.ContentType {
			name = attribute + "datacontenttype"
		}
		if s.cfg.Watermill || strings.HasPrefix(name, attribute) {
			value = cloudevent.HeaderValue(value)
		}
		set(name, value)
	})
	if !s.cfg.Watermill {
		set(eventID, d.ID.String())
	}
	if s.cfg.Window >= 0 {
		set(jetstream.MsgIDHeader, messageID(d))
	}
	return m
}

// messageID is what a stream knows a copy by. Its window is for the stream and not for a subject,
// so all that tells two deliveries apart is in it. It must not change: what an earlier version sent
// is compared while this one is rolled out.
func messageID(d *outbox.Delivery) string {
	return d.ID.String() + "-" + strconv.Itoa(d.Generation) + "-" + strconv.FormatUint(d.Origin, 16) + ":" + d.Destination
}

// maxSubject is far above what NATS recommends (256), and below where a server would end the
// connection (max_control_line, 4096).
const maxSubject = 1024

// checkSubject says why no stream can have a message of this subject. What begins with $ is the
// server's own: a message to $JS.API.STREAM.DELETE.orders deletes the stream.
func checkSubject(subject string) error {
	problem := ""
	switch {
	case subject == "":
		problem = "is empty"
	case len(subject) > maxSubject:
		problem = fmt.Sprintf("has more than %d bytes", maxSubject)
	case !utf8.ValidString(subject):
		problem = "is no UTF-8"
	case strings.ContainsAny(subject, "*>"):
		problem = "has a wildcard, * or >"
	case strings.ContainsFunc(subject, func(r rune) bool { return r <= ' ' || r == 0x7f || r == utf8.RuneError }):
		problem = "has a space or a control character"
	case subject[0] == '.' || subject[len(subject)-1] == '.' || strings.Contains(subject, ".."):
		problem = "has an empty token: a dot at its beginning or end, or two in a row"
	case subject[0] == '$' || subject == "_INBOX" || strings.HasPrefix(subject, "_INBOX."):
		problem = "is one that NATS keeps for itself: it begins with $ or _INBOX"
	default:
		return nil
	}
	if len(subject) > 100 {
		subject = strings.ToValidUTF8(subject[:100], "") + "…"
	}
	return errors.New("the subject " + strconv.Quote(subject) + " " + problem)
}

package browser_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// act is something on the page that changes something: what is pressed, and what is true then.
type act struct {
	name  string // also the reason that is given
	do    func(p *tab)
	audit string // what is recorded
	where string // rows of the database, of which there are then so many
	rows  int
}

// Every button that changes something: its effect is in the database, and who did it and why in the
// audit.
func TestActions(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	w := newWorld(t)
	w.serve("--parts", "gateway,relay", "--auth", "none", "--admin", "write")
	client := redis.NewClient(&redis.Options{Addr: w.redis.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	heard := client.Subscribe(t.Context(), "refund.edited")
	t.Cleanup(func() { _ = heard.Close() })
	one := map[string]any{"total": 1}
	topics := "refund.one refund.two refund.two refund.edited refund.gone refund.some refund.some refund.some " +
		"refund.stepwise refund.stepwise refund.stepwise"
	for topic := range strings.FieldsSeq(topics) {
		w.write(event{topic, "", "", one})
	}
	dead := len(strings.Fields(topics))
	for _, key := range []string{"first", "second", "third", "fourth", "fifth", "sixth"} {
		w.write(event{"invoice." + key, key, "", one}, event{"invoice." + key, key, "", one})
	}
	w.becomes(dead, "job_dlq")
	w.becomes(6, "outbox_events WHERE retry_count = 1 AND next_retry_at > now()")
	blocked := func(key string) string {
		return query[string](w, "SELECT id::text FROM outbox_events WHERE aggregate_id = $1 AND retry_count = 1", key)
	}
	letter := func(topic string) string {
		return query[string](w, "SELECT id::text FROM job_dlq WHERE type = $1", topic)
	}
	for _, channel := range []string{"invoice.first", "invoice.second", "invoice.third", "refund.*", "parcel.*"} {
		w.allow(channel)
	}
	sent := "outbox_events WHERE status = 'SENT' AND event_topic = "
	acts := []act{
		{name: "retry from the overview", do: func(p *tab) {
			p.visit("/")
			p.press("Retry now", "invoice.first")
			p.confirm("Retry now", "retry from the overview", "It is due now")
		}, audit: "retry", where: sent + "'invoice.first'", rows: 2},
		{name: "retry an event", do: func(p *tab) {
			p.visit("/events/" + blocked("second"))
			p.see("Timeline") // the screen before has such a button too
			p.press("Retry now")
			p.confirm("Retry now", "retry an event", "1 event due now")
		}, audit: "retry", where: sent + "'invoice.second'", rows: 2},
		{name: "retry all of a filter", do: func(p *tab) {
			p.visit("/events")
			p.fill("Key", "third")
			p.press("Apply")
			p.see("2 shown")
			p.press("Retry now")
			p.confirm("Retry now", "retry all of a filter", "1 event due now")
		}, audit: "retry", where: sent + "'invoice.third'", rows: 2},
		{name: "skip an event", do: func(p *tab) {
			p.visit("/events/" + blocked("fourth"))
			p.see("Timeline") // the screen before has such a button too
			p.press("Skip …")
			p.see("1 undelivered, up to position")
			p.confirm("Skip", "skip an event", "1 event skipped")
		}, audit: "skip", where: "job_dlq WHERE type = 'invoice.fourth'", rows: 1},
		{name: "skip those that are selected", do: func(p *tab) {
			p.visit("/events?key=fifth")
			p.see("2 shown")
			p.press("Select all that are shown")
			p.see("2 selected events")
			p.press("Skip …")
			p.see("2 undelivered, up to position")
			p.confirm("Skip", "skip those that are selected", "2 events skipped")
		}, audit: "skip", where: "job_dlq WHERE type = 'invoice.fifth'", rows: 2},
		{name: "skip all of a state", do: func(p *tab) {
			p.visit("/events?status=FAILED&topic=invoice.sixth")
			p.see("1 shown")
			p.press("Skip …")
			p.see("1 undelivered, up to position")
			p.confirm("Skip", "skip all of a state", "1 event skipped")
		}, audit: "skip", where: "job_dlq WHERE type = 'invoice.sixth'", rows: 1},
		{name: "replay a letter", do: func(p *tab) {
			p.visit("/letters?letter=" + letter("refund.one"))
			p.press("Replay …")
			p.confirm("Replay 1 letter", "replay a letter", "1 of 1 letters were replayed")
			p.escape()
		}, audit: "replay", where: sent + "'refund.one'", rows: 1},
		{name: "replay with another payload", do: func(p *tab) {
			p.visit("/letters?letter=" + letter("refund.edited"))
			p.press("Edit")
			p.fill("Payload, as JSON", `{"total": 99`)
			p.see("This is no JSON")
			p.fill("Payload, as JSON", `{"total": 99}`)
			p.see(`+ "total": 99`)
			p.press("Replay with the edited payload …")
			p.see("The event gets the edited payload")
			p.confirm("Replay 1 letter", "replay with another payload", "1 of 1 letters were replayed")
			p.escape()
		}, audit: "replay", where: sent + "'refund.edited' AND payload = '{\"total\": 99}'", rows: 1},
		{name: "replay those that are selected", do: func(p *tab) {
			p.visit("/letters?type=refund.two")
			p.see("refund.two")
			p.press("Select all that are shown")
			p.see("2 selected letters")
			p.press("Replay …")
			p.confirm("Replay 2 letters", "replay those that are selected", "2 of 2 letters were replayed")
		}, audit: "replay", where: sent + "'refund.two'", rows: 2},
		{name: "replay all that match in steps", do: func(p *tab) {
			p.visit("/letters?type=refund.stepwise")
			p.see("refund.stepwise")
			p.press("Replay …")
			p.confirm("Replay 3 letters", "replay all that match in steps", "3 of 3 letters were replayed")
		}, audit: "replay", where: sent + "'refund.stepwise'", rows: 3},
		{name: "discard a letter", do: func(p *tab) {
			p.visit("/letters?letter=" + letter("refund.gone"))
			p.press("Discard …")
			p.see("1 letter will be discarded")
			p.confirm("Discard", "discard a letter", "1 letter discarded")
			p.escape()
		}, audit: "discard", where: "job_dlq WHERE type = 'refund.gone' AND discard_reason = 'discard a letter'", rows: 1},
		{name: "discard all that match", do: func(p *tab) {
			p.visit("/letters?type=refund.some")
			p.see("refund.some")
			p.press("Discard …")
			p.see("3 letters will be discarded")
			p.confirm("Discard", "discard all that match", "3 letters discarded")
		}, audit: "discard", where: "job_dlq WHERE type = 'refund.some' AND discarded_at IS NOT NULL", rows: 3},
		{name: "pause a topic", do: func(p *tab) {
			p.visit("/pauses")
			p.fill("Topic", "parcel.*")
			p.press("Pause …")
			p.confirm("Pause", "pause a topic", "Paused: table outbox_events, topic parcel.*")
			w.write(event{"parcel.sent", "", "", one})
		}, audit: "pause", where: "outbox_pauses WHERE topic = 'parcel.*' AND table_name = 'outbox_events'", rows: 1},
		{name: "resume", do: func(p *tab) {
			p.see("pause a topic")
			p.press("Resume")
			p.confirm("Resume", "resume", "It goes on")
		}, audit: "resume", where: sent + "'parcel.sent'", rows: 1},
	}
	p := w.open(desktop, "/")
	for _, a := range acts {
		a.do(p)
		w.becomes(a.rows, a.where)
		if a.audit != "" && w.count("outbox_audit WHERE action = $1 AND reason = $2", a.audit, a.name) == 0 {
			t.Errorf("%s: it is not in the audit", a.name)
		}
		p.fine(a.name)
	}
	if n := w.count("outbox_pauses"); n != 0 {
		t.Errorf("%d pauses are left", n)
	}
	if message, err := heard.ReceiveMessage(t.Context()); err != nil || message.Payload != `{"total":99}` &&
		message.Payload != `{"total": 99}` {
		t.Errorf("the broker got %v, error %v", message, err)
	}
	p.visit("/audit")
	p.see("replay with another payload", "skip an event")
}

// confirm gives a reason in a dialog, presses its button, and closes it when it has said what came
// of it.
func (p *tab) confirm(button, reason, says string) {
	p.t.Helper()
	p.fill("Reason", reason)
	p.press(button)
	p.see(says)
	p.press("Close")
}

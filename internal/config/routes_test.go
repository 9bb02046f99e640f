package config

import (
	"strings"
	"testing"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/relay"
)

func TestRoutes(t *testing.T) {
	c, err := load(t, `
sink: {default: redis://h, audit: redis://a, own: "memory:"}
routes:
  - event_outbox=audit
  - {table: outbox_events, name: orders, topic: "order.*", tenant: acme, type: Order, to: [audit, "default:orders.{key}"]}
  - {to: [default]}
`, []string{"OUTBOX_DATABASE_URL=postgres://h/d"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(Serving); err != nil {
		t.Fatal(err)
	}
	routes := c.RoutesOf("outbox_events")
	got, err := relay.Addresses(routes, outbox.Event{
		Topic: "order.paid", TenantID: "acme", AggregateType: "Order", AggregateID: "7"})
	if want := "audit:order.paid default:orders.7"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("got %v, error %v, want %s", got, err, want)
	}
	if n := len(c.RoutesOf("crawl_outbox")); n != 1 {
		t.Errorf("crawl_outbox has %d routes, want the one for all tables", n)
	}
	if n := len(c.RoutesOf("event_outbox")); n != 0 {
		t.Errorf("event_outbox has %d routes and a sink for all its events", n)
	}
	if got := strings.Join(c.SinksOwing("outbox_events"), " "); got != "audit default" {
		t.Errorf("sinks of outbox_events are %s", got)
	}
}

func TestRoutesThatAreWrong(t *testing.T) {
	const twice = "\n  - {name: twice, table: outbox_events, to: [default]}"
	for entry, want := range map[string]string{
		`{table: nope, to: [default]}`:                 "routes, entry 2: ",
		`{table: event_outbox, to: [default]}`:         "event_outbox=audit sends all of the table to one sink",
		`{name: "a:b", to: [default]}`:                 `the name "a:b" has a colon`,
		`{name: twice, to: [default]}` + twice:         `another entry is called "twice"`,
		`{topic: x}`:                                   "says no sinks to go to",
		`{to: [kafka]}`:                                `there is no sink "kafka": it is one of audit, default`,
		`{to: ["default:{nothing}"]}`:                  "unknown placeholder {nothing}",
		`{to: [default, default]}`:                     "default is there twice",
		`{topics: x, to: [default]}`:                   "topics",
		`{table: crawl_outbox, to: ["default:other"]}`: "under the name that the gateway listens to",
		`{table: crawl_outbox, to: ["audit:{topic}"]}`: "under the name that the gateway listens to",
	} {
		c, err := load(t, `
sink: {default: redis://h, audit: redis://a}
routes:
  - event_outbox=audit
  - `+entry, []string{"OUTBOX_DATABASE_URL=postgres://h/d"})
		if err == nil {
			err = c.Check(Parts)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %q", entry, err, want)
		}
	}
}

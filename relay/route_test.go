package relay

import (
	"slices"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox"
)

// targets reads routes' targets.
func targets(t *testing.T, texts ...string) (all []Target) {
	t.Helper()
	for _, text := range texts {
		one, err := ParseTarget(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

func TestAddresses(t *testing.T) {
	routes := []Route{
		{Name: "orders", Topic: "order.*", Tenant: "acme",
			To: targets(t, "kafka:orders.{tenant}", "hooks:crm", "kafka:audit")},
		{Topic: "order.*", AggregateType: "Order", To: targets(t, "kafka")},
		{To: targets(t, "redis:rest:{topic}")},
	}
	for name, tt := range map[string]struct {
		event outbox.Event
		want  []string
		err   string
	}{
		"first that fits": {outbox.Event{Topic: "order.paid", TenantID: "acme"},
			[]string{"kafka:orders.acme", "hooks:crm", "kafka:audit"}, ""},
		"next": {outbox.Event{Topic: "order.paid", TenantID: "b", AggregateType: "Order"}, []string{"kafka:order.paid"},
			""},
		"default": {outbox.Event{Topic: "order.paid", TenantID: "b"}, []string{"redis:rest:order.paid"}, ""},
		"its own": {outbox.Event{Topic: "x", Destinations: []string{"redis:a:b", "redis:a:b"}}, []string{"redis:a:b"}, ""},
		"a route by name": {outbox.Event{Topic: "x", TenantID: "b", Destinations: []string{"orders", "hooks:crm"}},
			[]string{"kafka:orders.b", "hooks:crm", "kafka:audit"}, ""},
		"an unknown name": {outbox.Event{Topic: "x", Destinations: []string{"nowhere"}}, nil,
			`destination "nowhere" of the event is neither sink:name (sinks: hooks, kafka, redis) nor the name of a route`},
		"an unknown sink":  {outbox.Event{Topic: "x", Destinations: []string{"run:1"}}, nil, `destination "run:1" of the event`},
		"no destination":   {outbox.Event{Topic: "x", Destinations: []string{"redis:"}}, nil, `destination "redis:" of the event`},
		"an empty name":    {outbox.Event{Topic: "x", Destinations: []string{""}}, nil, `destination "" of the event`},
		"a missing tenant": {outbox.Event{Topic: "x", Destinations: []string{"orders"}}, nil, "the event has no tenant"},
	} {
		got, err := Addresses(routes, tt.event)
		if !slices.Equal(got, tt.want) || (err == nil) != (tt.err == "") || err != nil &&
			!strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: got %q, error %v, want %q, %q", name, got, err, tt.want, tt.err)
		}
	}
	if _, err := Addresses(routes[:2], outbox.Event{Topic: "paid"}); err == nil ||
		!strings.Contains(err.Error(), "no route fits") {
		t.Errorf("without a default the error is %v", err)
	}
}

func TestParseTarget(t *testing.T) {
	for text, want := range map[string]string{
		"kafka": "kafka", "kafka:orders": "kafka:orders", "redis:run:{key}": "redis:run:{key}",
		":orders": "!", "": "!", "kafka:": "!", "kafka:{nothing}": "!",
	} {
		got, err := ParseTarget(text)
		if (err != nil) != (want == "!") || err == nil && got.name() != want {
			t.Errorf("%q is %q, error %v, want %s", text, got, err, want)
		}
	}
}

func TestRoutesAreChecked(t *testing.T) {
	twice := targets(t, "a", "a")
	_, err := New(nil, nil, Config{
		Sinks: map[string]outbox.Sink{"a": outbox.SinkFunc(nil)},
		Tables: []Table{{Layout: outbox.OutboxEvents(), Routes: []Route{
			{}, {Name: "x:y", To: targets(t, "b:c")}, {Name: "z", To: twice}, {Name: "z", To: targets(t, "a", "default")},
		}}},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"outbox_events: Routes[0].To is empty", `outbox_events: Routes[1].Name is "x:y"`,
		`Routes[1].To[0]: there is no sink "b"`,
		"Routes[2].To[1]: a:{topic} is there twice", `Routes[3].Name is "z", which another route has`,
		"outbox_events has no sink",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
}

// What is owed wakes the worker that has its lane, and no other.
func TestOwedWakesTheWorkerOfItsLane(t *testing.T) {
	owed := &tableRelay{workers: []*worker{{woken: make(chan struct{}, 1)}, {woken: make(chan struct{}, 1)}}}
	f := fanout{outlets: map[string]*outlet{"slow": {owed: owed}}}
	f.settled([]outbox.Outcome{{Record: &outbox.Record{Lane: 4}},
		{Record: &outbox.Record{Lane: 5}, Owed: []outbox.Owed{{Sink: "slow"}}}})
	if even, odd := len(owed.workers[0].woken), len(owed.workers[1].woken); even != 0 || odd != 1 {
		t.Errorf("woken: %d of the even lanes, %d of the odd", even, odd)
	}
}

func TestDescribeNamesSinksAndRoutesInASCII(t *testing.T) {
	sinks := map[string]outbox.Sink{"default": outbox.SinkFunc(nil), "audit": nil}
	plain := Table{Sink: "default", Destination: builtin("{topic}")}
	routed := Table{Routes: []Route{{Topic: "bestellung.ä*", To: targets(t, "audit", "default:x.{tenant}")}}}
	for got, want := range map[string]string{
		plain.describe(sinks): `all events to "default" ("outbox.SinkFunc") as "{topic}"`,
		routed.describe(sinks): `route 1 "" (topic "bestellung.\u00e4*", tenant "", type "") to "audit" ("<nil>") as ""` +
			"\n" + `route 1 "" (topic "bestellung.\u00e4*", tenant "", type "") to "default" ("outbox.SinkFunc") as "x.{tenant}"`,
	} {
		if got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

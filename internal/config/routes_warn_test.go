package config

import (
	"strings"
	"testing"
)

// What routes can hardly be meant to do is said; what they may well be meant to do is not.
func TestRouteWarnings(t *testing.T) {
	const all, rest = "{to: [default]}", "{table: outbox_events, to: [default]}"
	for _, c := range []struct {
		routes []string
		want   []string
	}{
		{[]string{all}, nil},
		{[]string{`{topic: "order.*", to: [audit]}`, all}, nil},
		{[]string{`{topic: "order.*", tenant: acme, to: [audit]}`, `{topic: "order.*", to: [default]}`, all}, nil},
		{[]string{`{topic: "a*.b", to: [audit]}`, `{topic: "a.c", to: [default]}`, all}, nil},
		{[]string{`{topic: "order.*", to: [audit]}`, `{topic: "*", to: [default]}`}, nil},
		{[]string{rest, `{table: outbox_events, name: named, topic: x, to: [audit]}`}, nil}, // events may name it
		{[]string{rest, `{table: outbox_events, topic: x, to: [audit]}`},
			[]string{`no event of outbox_events reaches the route {table: "outbox_events", topic: "x", to: [audit]}`}},
		{[]string{`{topic: "order.*", to: [audit]}`, `{topic: order.paid, type: Order, to: [default]}`, all},
			[]string{`no event of outbox_events reaches the route {topic: "order.paid", type: "Order", to: [default]}`}},
		{[]string{`{topic: "order.*", to: [audit]}`},
			[]string{"events of outbox_events that none of its routes fits become dead letters"}},
		{[]string{`{topic: order.>, to: [audit]}`, all}, []string{`"order.>" is no wildcard`, `write "order.*"`}},
		{[]string{`{topic: "#.paid", to: [audit]}`, all}, []string{`"#.paid" is no wildcard`, `write "*.paid"`}},
		{[]string{`{topic: "issue#4", to: [audit]}`, all}, nil},
	} {
		conf, err := load(t, "sink: {default: redis://h, audit: redis://a}\ntable: [outbox_events]\nroutes:\n  - "+
			strings.Join(c.routes, "\n  - ")+"\n", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := conf.Check(Serving | Publishing); err != nil {
			t.Fatal(err)
		}
		got := strings.Join(conf.RouteWarnings(Serving), "\n")
		if (got == "") != (c.want == nil) {
			t.Errorf("%q: it says %q, want %q", c.routes, got, c.want)
		}
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%q: it says %q, want %q", c.routes, got, want)
			}
		}
		if conf.RouteWarnings(Database) != nil {
			t.Errorf("%q: it is said for a command that delivers nothing", c.routes)
		}
	}
}

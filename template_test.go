package outbox

import (
	"strings"
	"testing"
)

func TestTemplate(t *testing.T) {
	full := &Record{Event: Event{Topic: "order.placed", AggregateID: "42", AggregateType: "Order", TenantID: "acme",
		Source: "shop"}}
	for _, c := range []struct {
		template string
		rec      *Record
		want     string
		parse    string // problem of ParseTemplate, or ""
		expand   string // problem of Expand, or ""
	}{
		{template: "{topic}", rec: full, want: "order.placed"},
		{template: "run:{key}", rec: full, want: "run:42"},
		{template: "{tenant}.{source}.{type}.{key}.{topic}", rec: full, want: "acme.shop.Order.42.order.placed"},
		{template: "all", rec: &Record{}, want: "all"},
		{template: "a}b", rec: full, want: "a}b"},
		{template: "{key}{key}", rec: &Record{Event: Event{AggregateID: "{topic}"}}, want: "{topic}{topic}"},
		{template: "{topic}", rec: &Record{}, expand: "no topic"},
		{template: "run:{key}", rec: &Record{}, expand: "no key"},
		{template: "", parse: "empty"},
		{template: "run:{key", parse: "closing brace"},
		{template: "{", parse: "closing brace"},
		{template: "{}", parse: "unknown placeholder {}"},
		{template: "{Key}", parse: "known: {topic}, {key}"},
		{template: "{{key}}", parse: "unknown placeholder {{key}"},
	} {
		tpl, err := ParseTemplate(c.template)
		if c.parse != "" || err != nil {
			if err == nil || c.parse == "" || !strings.Contains(err.Error(), c.parse) {
				t.Errorf("parse %q: got %v, want %q", c.template, err, c.parse)
			}
			continue
		}
		if tpl.String() != c.template {
			t.Errorf("%q prints as %q", c.template, tpl)
		}
		got, err := tpl.Expand(c.rec)
		if c.expand != "" {
			if err == nil || !strings.Contains(err.Error(), c.expand) {
				t.Errorf("expand %q: got %q, %v, want %q", c.template, got, err, c.expand)
			}
		} else if err != nil || got != c.want {
			t.Errorf("expand %q: got %q, %v, want %q", c.template, got, err, c.want)
		}
	}
}

// FuzzTemplate compares with the obvious way to do it: replace placeholders one after the other,
// which is right as long as no value contains a brace.
func FuzzTemplate(f *testing.F) {
	f.Add("run:{key}", "42", "order.placed")
	f.Add("{topic}}{key}", "ü", "\x00")
	f.Fuzz(func(t *testing.T, text, key, topic string) {
		tpl, err := ParseTemplate(text)
		if err != nil {
			return
		}
		key, topic = "k"+strings.ReplaceAll(key, "{", ""), "t"+strings.ReplaceAll(topic, "{", "")
		rec := &Record{Event: Event{AggregateID: key, Topic: topic, AggregateType: "T", TenantID: "n", Source: "s"}}
		got, err := tpl.Expand(rec)
		if err != nil {
			t.Fatalf("expand %q: %v", text, err)
		}
		want := strings.NewReplacer("{key}", key, "{topic}", topic, "{type}", "T", "{tenant}", "n", "{source}",
			"s").Replace(text)
		if got != want {
			t.Fatalf("expand %q: got %q, want %q", text, got, want)
		}
	})
}

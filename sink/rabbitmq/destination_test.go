package rabbitmq

import (
	"strings"
	"testing"
)

func TestParseDestination(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]address{
		"orders": {"", "orders"}, "100%": {"", "100%"}, "/a/b": {"", "a/b"}, "/orders": {"", "orders"},
		"events/order.placed": {"events", "order.placed"}, "events/": {"events", ""}, "events/a/b": {"events", "a/b"},
		"a%2Fb/k%2F": {"a/b", "k%2F"}, "a%25/k": {"a%", "k"}, "ü/ö": {"ü", "ö"}, "amq.topic/#": {"amq.topic", "#"},
	} {
		got, err := parseDestination(text)
		if err != nil || got != want {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
	}
	for text, says := range map[string]string{
		"": "neither", "/": "neither", "%/k": "%25", "a\nb": "control", "e\r/k": "control", "e/k\x00": "control",
		"e/\xff": "UTF-8", strings.Repeat("q", 256): "256", strings.Repeat("e", 300) + "/k": "300", "%0A/k": "control",
	} {
		if _, err := parseDestination(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got error %v, want %q", text, err, says)
		}
	}
}

// FuzzDestination: what is written is read, and what is read can be written.
func FuzzDestination(f *testing.F) {
	for _, seed := range [][2]string{{"", "orders"}, {"events", "order.placed"}, {"a/b%", "k/%"}, {"", "/a"}, {"e", ""},
		{"\xff", "\n"}, {"", "%"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, exchange, key string) {
		got, err := parseDestination(Destination(exchange, key))
		if err == nil && got != (address{exchange, key}) {
			t.Errorf("%q and %q are read as %+v", exchange, key, got)
		}
		if plain, err := parseDestination(key); err == nil {
			if again, err := parseDestination(Destination(plain.exchange, plain.key)); err != nil || again != plain {
				t.Errorf("%q is read as %+v, then as %+v, %v", key, plain, again, err)
			}
		}
	})
}

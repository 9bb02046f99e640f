package tables_test

import (
	"testing"

	"github.com/outboxrelay/outbox/tables"
)

func TestTopicFits(t *testing.T) {
	for _, c := range []struct {
		pattern, topic string
		want           bool
	}{
		{"order.placed", "order.placed", true}, {"order.placed", "order.placed.x", false}, {"order.placed", "order", false},
		{"order.*", "order.", true}, {"order.*", "order.a/b", true}, {"order.*", "orders", false},
		{"*", "", true}, {"*", "x", true}, {"", "", true}, {"", "x", false},
		{"*.placed", "order.placed", true}, {"*.placed", "placed", false}, {"*.placed", "a.placed.placed", true},
		{"a*b*c", "abc", true}, {"a*b*c", "a-b-b-c", true}, {"a*b*c", "acb", false}, {"a*a", "a", false}, {"a**a", "aa", true},
		{"50%_[a]?", "50%_[a]?", true}, {"50%_[a]?", "50x_[a]?", false},
	} {
		if got := tables.TopicFits(c.pattern, c.topic); got != c.want {
			t.Errorf("%q fits %q: %t, want %t", c.pattern, c.topic, got, c.want)
		}
	}
}

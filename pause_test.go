package outbox

import "testing"

func TestPausedHolds(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"order.placed", "order.placed", true}, {"order.placed", "order.placed.x", false}, {"order.placed", "order", false},
		{"order.*", "order.", true}, {"order.*", "order.a/b", true}, {"order.*", "orders", false},
		{"*", "", true}, {"*", "x", true}, {"", "", true}, {"", "x", false},
		{"*.placed", "order.placed", true}, {"*.placed", "placed", false}, {"*.placed", "a.placed.placed", true},
		{"a*b*c", "abc", true}, {"a*b*c", "a-b-b-c", true}, {"a*b*c", "acb", false}, {"a*a", "a", false},
		{"a**a", "aa", true}, {"50%_[a]?", "50%_[a]?", true}, {"50%_[a]?", "50x_[a]?", false},
	} {
		p := Paused{Topics: []string{"none", c.pattern}}
		if got := p.Holds(c.name, []string{"x"}); got != c.want {
			t.Errorf("the topic %q fits %q: %t, want %t", c.pattern, c.name, got, c.want)
		}
		p = Paused{Destinations: []string{"none", c.pattern}}
		if got := p.Holds("topic", []string{"elsewhere", c.name}); got != c.want && c.pattern != "*" {
			t.Errorf("the destination %q fits %q: %t, want %t", c.pattern, c.name, got, c.want)
		}
	}
}

package tables

import (
	"context"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
)

// Pause keeps relays from delivering what it names. Events wait in their table, uncounted and in their order, and with
// them what is behind them in their keys.
type Pause struct {
	Table  string    `json:"table"` // "": every table
	Topic  string    `json:"topic"` // a name, or a pattern in which * stands for any text; "": every topic
	Reason string    `json:"reason"`
	Actor  string    `json:"actor"`
	At     time.Time `json:"pausedAt"`
}

// Pauses are what operators have paused. Running relays obey with their next check of their lease, twice a second.
type Pauses interface {
	// Pauses returns all, those of every table first.
	Pauses(ctx context.Context) ([]Pause, error)
	// Pause adds one, or gives the one of that table and topic a new reason. It is recorded in outbox_audit.
	Pause(ctx context.Context, p Pause) error
	// Resume removes the one of that table and topic, and tells whether it was there. It is recorded likewise, with the
	// actor and reason of p.
	Resume(ctx context.Context, p Pause) (bool, error)
}

// TopicFits tells whether a topic is the one of a pattern, in which * stands for any text.
func TopicFits(pattern, topic string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	topic, ok := strings.CutPrefix(topic, first)
	if !ok || !wild {
		return ok && topic == ""
	}
	for part := ""; ; {
		part, rest, wild = strings.Cut(rest, "*")
		if !wild {
			return strings.HasSuffix(topic, part)
		}
		at := strings.Index(topic, part)
		if at < 0 {
			return false
		}
		topic = topic[at+len(part):]
	}
}

// AnyFits tells whether a topic is one of some patterns.
func AnyFits(patterns []string, topic string) bool {
	for _, p := range patterns {
		if TopicFits(p, topic) {
			return true
		}
	}
	return false
}

// HeldBack tells whether a claimed record is of a paused topic, or behind one that is in its key. Records are asked
// about in their order; held are the keys so far.
func HeldBack(paused []string, rec *outbox.Record, held *map[int64]bool) bool {
	if rec.Keyed && (*held)[rec.OrderKey] {
		return true
	}
	if !AnyFits(paused, rec.Topic) {
		return false
	}
	if rec.Keyed {
		if *held == nil {
			*held = map[int64]bool{}
		}
		(*held)[rec.OrderKey] = true
	}
	return true
}

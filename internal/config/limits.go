package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox/sink"
)

// limitEntry is one entry of the list limits in the file of --config.
type limitEntry struct {
	Sink        string  `yaml:"sink"`
	Rate        float64 `yaml:"rate"`        // deliveries a second
	Concurrency int     `yaml:"concurrency"` // batches at a time
}

// limitEntries decodes and checks the list.
func (c *Config) limitEntries(problems *Error) (entries []limitEntry) {
	seen := map[string]bool{}
	for i, raw := range c.Limits {
		at := fmt.Sprintf("limits, entry %d", i+1)
		var e limitEntry
		unused, wrong := decode(raw, &e)
		if problems.entry(at, unused, wrong) && len(wrong) > 0 {
			continue
		}
		if c.Sink[e.Sink] == "" {
			problems.add("%s: there is no sink %q: it is one of %s", at, e.Sink,
				strings.Join(slices.Sorted(maps.Keys(c.Sink)), ", "))
		}
		if seen[e.Sink] {
			problems.add("%s: the sink %s has an entry already", at, e.Sink)
		}
		seen[e.Sink] = true
		if e.Rate < 0 {
			problems.add("%s: rate is %g, must be positive", at, e.Rate)
		}
		if e.Concurrency < 0 {
			problems.add("%s: concurrency is %d, must be positive", at, e.Concurrency)
		}
		entries = append(entries, e)
	}
	return entries
}

func (e limitEntry) limits() sink.Limits {
	return sink.Limits{Rate: e.Rate, Concurrency: e.Concurrency}
}

// LimitsOf returns what a sink is given at most. Check has found it right.
func (c Config) LimitsOf(name string) sink.Limits {
	for _, e := range c.limitEntries(&Error{}) {
		if e.Sink == name {
			return e.limits()
		}
	}
	return sink.Limits{}
}

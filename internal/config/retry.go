package config

import (
	"fmt"
	"path"
	"time"

	"github.com/outboxrelay/outbox/relay"
)

// retryEntry is one entry of the list retry in the file of --config.
type retryEntry struct {
	Destination   string        `yaml:"destination"` // a name or a pattern
	Table         string        `yaml:"table"`       // "": all
	MaxAttempts   int           `yaml:"max_attempts"`
	BackoffBase   time.Duration `yaml:"backoff_base"`
	BackoffFactor float64       `yaml:"backoff_factor"`
	BackoffCap    time.Duration `yaml:"backoff_cap"`
}

// retryEntries decodes and checks the list. What an entry leaves out is the table's.
func (c *Config) retryEntries(problems *Error) (entries []retryEntry) {
	for i, raw := range c.Retry {
		at := fmt.Sprintf("retry, entry %d", i+1)
		var e retryEntry
		unused, wrong := decode(raw, &e)
		if e.Destination != "" {
			at += fmt.Sprintf(" (destination %q)", e.Destination)
		}
		if problems.entry(at, unused, wrong) && len(wrong) > 0 {
			continue
		}
		if _, err := path.Match(e.Destination, ""); err != nil || e.Destination == "" {
			problems.add("%s: want a destination, or a pattern such as orders.*", at)
		}
		if e.Table != "" {
			if _, ok := find(c.Known(), e.Table); !ok {
				problems.add("%s: %s", at, unknownTable("table", e.Table, c.Known()))
			}
		}
		if e.MaxAttempts < 0 {
			problems.add("%s: max_attempts is %d, must be 1 or more", at, e.MaxAttempts)
		}
		if e.BackoffBase < 0 || e.BackoffCap < 0 {
			problems.add("%s: backoff_base and backoff_cap must be positive", at)
		}
		if e.BackoffFactor != 0 && e.BackoffFactor < 1 {
			problems.add("%s: backoff_factor is %g, must be 1 or more", at, e.BackoffFactor)
		}
		entries = append(entries, e)
	}
	return entries
}

// Policies returns the exceptions for destinations of a table. Check has found them right.
func (c Config) Policies(table string) (policies []relay.RetryPolicy) {
	for _, e := range c.retryEntries(&Error{}) {
		if e.Table == "" || e.Table == table {
			policies = append(policies, relay.RetryPolicy{
				Destination: e.Destination, MaxAttempts: e.MaxAttempts,
				Backoff: relay.Backoff{Base: e.BackoffBase, Factor: e.BackoffFactor, Cap: e.BackoffCap},
			})
		}
	}
	return policies
}

package config

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
)

// Need is what a command cannot do without.
type Need int

// The needs, to be combined with |.
const (
	Database   Need = 1 << iota
	Publishing      // a sink
	Tailing         // one that can be listened to
	Serving         // the relay's settings
	Retaining       // those of retention
	Parts           // those of outbox serve, and what the parts need that are on
	Asking          // a gateway's address
)

// withParts adds what the chosen parts of outbox serve need.
func (c Config) withParts(needs Need) Need {
	if needs&Parts != 0 {
		needs |= c.Serve.needs()
	}
	return needs
}

// Check reports everything that is wrong with the settings, or missing from them, for a command with these needs. The
// error is an *Error.
func (c *Config) Check(needs Need) error {
	problems := Error{Problems: slices.Clone(c.found.problems)}
	needs = c.withParts(needs)
	if needs&Database != 0 {
		if c.Database == "" {
			problems.add("the database is not set: %s", set("database"))
		} else if err := c.kinds.Databases.Check(c.Database); err != nil {
			problems.add("database: %v: %s", err, set("database"))
		}
	}
	if _, err := c.Level(); err != nil {
		problems.add("%v", err)
	}
	oneOf(&problems, "log-format", c.LogFormat, "auto", "text", "json")
	oneOf(&problems, "output", c.Output, "table", "json")
	c.mappedTables = c.layouts(&problems)
	c.checkSettle(&problems)
	if needs&(Publishing|Tailing) != 0 {
		c.checkSinks(&problems, needs)
	}
	if needs&Serving != 0 {
		c.checkServing(&problems)
	}
	if needs&Retaining != 0 {
		c.checkRetention(&problems)
	}
	if needs&Parts != 0 {
		c.checkServe(&problems, needs&Serving == 0)
	}
	if needs&Asking != 0 {
		c.checkClient(&problems)
	}
	for i, problem := range problems.Problems {
		problems.Problems[i] += c.overriding(problem)
	}
	return problems.orNil()
}

// overriding says of a problem with settings which of them the file has otherwise.
func (c *Config) overriding(problem string) (text string) {
	for _, name := range slices.Sorted(maps.Keys(c.found.hidden)) {
		if strings.Contains(problem, set(strings.ReplaceAll(name, "_", "-"))) {
			text += fmt.Sprintf(" (%s is in effect instead of %s at %s)", c.found.origins[name], name,
				c.found.hidden[name])
		}
	}
	return text
}

func (c *Config) checkServing(problems *Error) {
	atLeast(problems, "workers", c.Workers, 1)
	atLeast(problems, "batch", c.Batch, 1)
	atLeast(problems, "batch-bytes", c.BatchBytes, 1)
	atLeast(problems, "poll-max", c.PollMax, time.Millisecond)
	atLeast(problems, "route-timeout", c.RouteTimeout, time.Millisecond)
	atLeast(problems, "lease-ttl", c.LeaseTTL, time.Second)
	atLeast(problems, "dedup-window", c.DedupWindow, 0)
	if c.MaxAttempts < 0 {
		problems.add("max-attempts is %d, must be 1 or more, or 0 for the tables' defaults: %s", c.MaxAttempts,
			set("max-attempts"))
	}
	if longest := relayDefaults.Backoff.Cap; c.BackoffBase != 0 && (c.BackoffBase < time.Millisecond ||
		c.BackoffBase > longest) {
		problems.add("backoff-base is %s, must be from 1ms to %s, or 0 for the tables' defaults: %s", c.BackoffBase,
			brief(longest), set("backoff-base"))
	}
	c.retryEntries(problems)
	c.routeEntries(problems)
	c.limitEntries(problems)
	if _, err := c.envelopes(); err != nil {
		problems.add("envelope: %v: %s", err, set("envelope"))
	}
	c.checkListen(problems)
	tables := c.checkTables(problems)
	for _, t := range tables {
		if t.Destination == "" {
			continue
		}
		if _, err := outbox.ParseTemplate(t.Destination); err != nil {
			problems.add("destination of %s: %v: %s", t.Name(), err, set("destination"))
		}
	}
}

// checkTables returns the tables to serve.
func (c *Config) checkTables(problems *Error) []Table {
	tables, err := c.Tables()
	var unknown *Error
	if errors.As(err, &unknown) {
		problems.Problems = append(problems.Problems, unknown.Problems...)
	}
	return tables
}

func (c *Config) checkListen(problems *Error) {
	if c.Listen == "" {
		return
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		problems.add("listen is %q, want host:port such as 127.0.0.1:9464: %s", c.Listen, set("listen"))
	}
}

// Level is the log level.
func (c *Config) Level() (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return level, fmt.Errorf("log-level is %q, want debug, info, warn or error: %s", c.LogLevel, set("log-level"))
	}
	return level, nil
}

// atLeast reports a number or a duration that is too small.
func atLeast[T int | time.Duration](problems *Error, flag string, value, least T) {
	if value < least {
		problems.add("%s is %v, must be %v or more: %s", flag, value, least, set(flag))
	}
}

func oneOf(problems *Error, flag, value string, allowed ...string) {
	for _, a := range allowed {
		if value == a {
			return
		}
	}
	problems.add("%s is %q, want %s: %s", flag, value, strings.Join(allowed, " or "), set(flag))
}

// set says where a setting is set.
func set(flag string) string {
	return fmt.Sprintf("give --%s, or set %s or %s in the file of --config", flag,
		strings.Join(variableNames(flag), " or "), key(flag))
}

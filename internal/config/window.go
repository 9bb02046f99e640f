package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// What outbox.RelayConfig has when nobody says otherwise, and no setting does.
const (
	publishTimeout  = 5 * time.Second
	databaseTimeout = 10 * time.Second
)

// checkDedup checks the settings of the sink's duplicate memory.
func (c *Config) checkDedup(problems *Error) {
	if c.DedupWindow < 0 {
		problems.add("dedup-window is %s, must be 0s or more: %s", c.DedupWindow, set("dedup-window"))
	}
	if strings.ContainsAny(c.DedupPrefix, "{}") {
		problems.add("dedup-prefix is %q, and a brace in it would take the lanes' keys to other nodes of a cluster: %s",
			c.DedupPrefix, set("dedup-prefix"))
	}
}

// ShortWindow says why the duplicate window is shorter than what can lie between two attempts to publish an event; ""
// if it is not, or if that does not matter for these needs. It is no problem that keeps a relay from starting: in
// normal operation nothing is published twice.
func (c Config) ShortWindow(needs Need) string {
	if needs&Parts != 0 {
		needs |= c.Serve.needs()
	}
	// The relay that takes over asks for lanes every third of a lease, and claims before it publishes.
	apart := (publishTimeout + c.LeaseTTL + c.LeaseTTL/3 + databaseTimeout + time.Second - 1).Truncate(time.Second)
	if needs&Serving == 0 || c.withinProcess() || c.DedupWindow == 0 || c.DedupWindow >= apart {
		return ""
	}
	return fmt.Sprintf("dedup-window is %s, but after the death of a relay %s can lie between two attempts to publish "+
		"an event (a publish of %s, "+
		"lease-ttl of %s and a third of it for the take-over, a claim of %s), and a copy that late is delivered: give "+
		"--dedup-window %s or more",
		brief(c.DedupWindow), brief(apart), brief(publishTimeout), brief(c.LeaseTTL), brief(databaseTimeout), brief(apart))
}

// withinProcess tells whether all events stay in this process: no other relay publishes to its sinks.
func (c Config) withinProcess() bool {
	return !slices.ContainsFunc(c.AllSinks(), func(s Sink) bool { return !s.Driver.InProcess })
}

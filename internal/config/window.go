package config

import (
	"fmt"
	"slices"
	"time"
)

// ShortWindow says why the duplicate window is shorter than what can lie between two attempts to publish an event. It
// is "" if the window is not, or if that does not matter for these needs. It is no problem that keeps a relay from
// starting: in normal operation nothing is published twice.
func (c Config) ShortWindow(needs Need) string {
	needs = c.withParts(needs)
	// The relay that takes over asks for lanes every third of a lease, and claims before it publishes.
	publish, claim := relayDefaults.PublishTimeout, relayDefaults.DatabaseTimeout // which no setting changes
	apart := (publish + c.LeaseTTL + c.LeaseTTL/3 + claim + time.Second - 1).Truncate(time.Second)
	if needs&Serving == 0 || c.withinProcess() || c.DedupWindow == 0 || c.DedupWindow >= apart {
		return ""
	}
	return fmt.Sprintf("dedup-window is %s, but after the death of a relay %s can lie between two attempts to publish "+
		"an event (a publish of %s, "+
		"lease-ttl of %s and a third of it for the take-over, a claim of %s), and a copy that late is delivered: give "+
		"--dedup-window %s or more",
		brief(c.DedupWindow), brief(apart), brief(publish), brief(c.LeaseTTL), brief(claim), brief(apart))
}

// withinProcess tells whether all events stay in this process: no other relay publishes to its sinks.
func (c Config) withinProcess() bool {
	return !slices.ContainsFunc(c.AllSinks(), func(s Sink) bool { return !s.Driver.InProcess })
}

package config

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/retention"
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
	if needs&Parts == 0 {
		return needs
	}
	needs |= Database
	if c.Serve.Has("relay") || c.Serve.Has("gateway") && len(c.Sink) > 0 { // a gateway does without
		needs |= Publishing
	}
	if c.Serve.Has("relay") {
		needs |= Serving | Retaining
	}
	return needs
}

// Check reports everything that is wrong with the settings, or missing from them, for a command
// with these needs. The error is an *Error.
func (c *Config) Check(needs Need) error {
	problems := Error{Problems: slices.Clone(c.found.problems.Problems)}
	needs = c.withParts(needs)
	if needs&Database != 0 {
		if c.Database == "" {
			problems.add("the database is not set: %s", give("database"))
		} else if err := c.kinds.Databases.Check(c.Database); err != nil {
			problems.add("database: %v: %s", err, give("database"))
		}
	}
	if _, err := c.Level(); err != nil {
		problems.add("%v", err)
	}
	problems.oneOf("output", c.Output, "table", "json")
	c.checkSettle(&problems)
	if needs&(Publishing|Tailing) != 0 {
		c.checkSinks(&problems, needs)
	}
	if needs&Serving != 0 {
		c.checkServing(&problems)
	}
	if needs&Retaining != 0 {
		c.checkTablesOf(&problems, "retention", c.Retention.Single)
		if _, err := retention.ParseArchive(c.Archive); err != nil {
			problems.add("archive: %v: %s", err, give("archive"))
		}
	}
	if needs&(Serving|Parts) != 0 { // the worker has leases too
		atLeast(&problems, "lease-ttl", c.LeaseTTL, time.Second)
		if _, _, err := net.SplitHostPort(c.Listen); c.Listen != "" && err != nil {
			problems.add("listen is %q, want host:port such as 127.0.0.1:9464: %s", c.Listen, give("listen"))
		}
		if c.OTLP != "" && !IsBase(c.OTLP) {
			problems.add("otlp is %s, want one such as http://127.0.0.1:4318, without user, password or query "+
				"(OTEL_EXPORTER_OTLP_HEADERS has what a collector asks for): %s", shownOrigin(c.OTLP), give("otlp"))
		}
		c.checkTables(&problems)
	}
	if needs&Parts != 0 {
		c.checkServe(&problems)
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
		if strings.Contains(problem, give(strings.ReplaceAll(name, "_", "-"))) {
			text += fmt.Sprintf(" (%s is in effect instead of %s at %s)", c.found.origins[name], name,
				c.found.hidden[name])
		}
	}
	return text
}

func (c *Config) checkServing(problems *Error) {
	atLeast(problems, "batch", c.Batch, 1)
	atLeast(problems, "poll-max", c.PollMax, time.Millisecond)
	atLeast(problems, "route-timeout", c.RouteTimeout, time.Millisecond)
	atLeast(problems, "dedup-window", c.DedupWindow, 0)
	if c.MaxAttempts < 0 {
		problems.add("max-attempts is %d, must be 1 or more, or 0 for the tables' defaults: %s", c.MaxAttempts,
			give("max-attempts"))
	}
	if longest := relayDefaults.Backoff.Cap; c.BackoffBase != 0 &&
		(c.BackoffBase < time.Millisecond || c.BackoffBase > longest) {
		problems.add("backoff-base is %s, must be from 1ms to %s, or 0 for the tables' defaults: "+
			"%s", c.BackoffBase,
			brief(longest), give("backoff-base"))
	}
	c.checkTablesOf(problems, "envelope", c.Envelope.Single)
	c.checkRetry(problems)
	c.checkRoutes(problems)
	c.checkLimits(problems)
	served, _ := c.Tables() // what is wrong with their names is said by checkTables
	for _, t := range served {
		if _, err := outbox.ParseTemplate(t.Destination); err != nil {
			problems.add("destination of %s: %v: %s", t.Name(), err, give("destination"))
		}
	}
}

// checkServe checks the settings that the relay does not have.
func (c *Config) checkServe(problems *Error) {
	s := &c.Serve
	for _, part := range s.Parts {
		if !slices.Contains(parts, part) {
			problems.add("parts: there is no part %s: it is one of %s: %s", shape(part),
				strings.Join(parts, ", "), give("parts"))
		}
	}
	if len(s.Parts) == 0 {
		problems.add("parts is empty, so there is nothing to serve: %s", give("parts"))
	}
	problems.oneOf("auth", s.Auth, "token", "none")
	problems.oneOf("admin", s.Admin, "off", "read", "write")
	s.checkAddresses(problems)
	atLeast(problems, "stream-limit", s.StreamLimit, 1)
	atLeast(problems, "subscription-limit", s.SubscriptionLimit, 1)
	if s.Has("gateway") {
		_, runErr := c.RunChannel()
		_, topicErr := c.TopicChannel()
		for _, err := range []error{runErr, topicErr} {
			if err != nil {
				problems.add("%v: %s", err, give("destination"))
			}
		}
	}
}

// checkAddresses reports addresses that are none, and those that let anybody in.
func (s *Serve) checkAddresses(problems *Error) {
	open := s.Auth == "none" && s.Has("gateway")
	if _, _, err := net.SplitHostPort(s.HTTP); err != nil {
		problems.add("http is %q, want host:port such as 127.0.0.1:8080: %s", s.HTTP, give("http"))
	} else if open && Exposed(s.HTTP) {
		problems.add("auth is none, and other machines can reach %s: everybody there could do "+
			"everything. Listen on 127.0.0.1, or leave auth at token", s.HTTP)
	}
	for _, origin := range s.Origins {
		if !isOrigin(origin) && (origin != "*" || s.Auth != "none") {
			problems.add("cors-origin: %s is no origin such as https://shop.example (and * only "+
				"goes with auth none): %s",
				shownOrigin(origin), give("cors-origin"))
		}
	}
	if s.PublicURL != "" && !IsBase(s.PublicURL) {
		problems.add("public-url is no address such as https://api.example.com, without user, "+
			"query and fragment (not shown, it may hold a password): %s", give("public-url"))
	} else if u, _ := url.Parse(s.PublicURL); open && s.PublicURL != "" && !loopback(u.Hostname()) {
		problems.add("auth is none, and public-url is an address that other machines reach: " +
			"everybody there could do everything. Leave auth at token, or leave public-url out")
	}
}

// checkClient does not repeat the address where it holds a password.
func (c *Config) checkClient(problems *Error) {
	u, err := url.Parse(c.Server)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		problems.add("server is no address such as http://127.0.0.1:8080 or "+
			"https://outbox.example: %s", give("server"))
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		problems.add("server is an address and no more: without user, ? and #; who you are says "+
			"the token: %s",
			give("server"))
	}
	if strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		problems.add("token has characters that no token has (it is not shown): %s", give("token"))
	}
}

// Level is the log level.
func (c *Config) Level() (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return level, fmt.Errorf("log-level is %q, want debug, info, warn or error: %s", c.LogLevel, give("log-level"))
	}
	return level, nil
}

// atLeast reports a number or a duration that is too small.
func atLeast[T int | time.Duration](problems *Error, flag string, value, least T) {
	if value < least {
		problems.add("%s is %v, must be %v or more: %s", flag, value, least, give(flag))
	}
}

func (e *Error) oneOf(flag, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		e.add("%s is %q, want %s: %s", flag, value, strings.Join(allowed, " or "), give(flag))
	}
}

// give says where a setting is set.
func give(flag string) string {
	text := "give --" + flag
	if names := variables(flag); len(names) > 0 {
		text += ", or set " + strings.Join(names, " or ")
	}
	if All().Lookup(flag) != nil {
		text += " or " + key(flag) + " in the file of --config"
	}
	return text
}

// ShortWindow says why the duplicate window is shorter than what can lie between two attempts to
// publish an event. It is "" if the window is not, or if that does not matter for these needs. It
// is no problem that keeps a relay from starting: in normal operation nothing is published twice.
func (c Config) ShortWindow(needs Need) string {
	// The relay that takes over asks for lanes every third of a lease, and claims before it
	// publishes.
	publish, claim := relayDefaults.PublishTimeout, relayDefaults.DatabaseTimeout // which no setting changes
	apart := (publish + c.LeaseTTL + c.LeaseTTL/3 + claim + time.Second - 1).Truncate(time.Second)
	// Without a sink that others publish to as well, all events stay in this process.
	shared := slices.ContainsFunc(c.AllSinks(), func(s Sink) bool { return !s.Driver.InProcess })
	if c.withParts(needs)&Serving == 0 || !shared || c.DedupWindow == 0 || c.DedupWindow >= apart {
		return ""
	}
	return fmt.Sprintf("dedup-window is %s, but after the death of a relay %s can lie between two "+
		"attempts to publish an event (a publish of %s, lease-ttl of %s and a third of it for the "+
		"take-over, a claim of %s), and a copy that late is delivered: give --dedup-window %s or "+
		"more",
		brief(c.DedupWindow), brief(apart), brief(publish), brief(c.LeaseTTL), brief(claim), brief(apart))
}

// IsBase tells whether paths can be put behind text.
func IsBase(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil &&
		!strings.ContainsAny(text, "?#")
}

// Exposed tells whether other machines may reach an address to listen on.
func Exposed(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && !loopback(host)
}

func loopback(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// shownOrigin does not repeat what could hold a password.
func shownOrigin(text string) string {
	if strings.ContainsAny(text, "@?#") {
		return "the value (not shown, it may hold a password)"
	}
	return fmt.Sprintf("%q", text)
}

// isOrigin tells whether text is what a browser sends as Origin, or that with * for its port.
func isOrigin(text string) bool {
	text = strings.TrimSuffix(text, ":*")
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.Scheme+"://"+u.Host == text &&
		!strings.Contains(text, "*")
}

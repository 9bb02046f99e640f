package config

import (
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Serve holds the settings of outbox serve beside the relay's.
type Serve struct {
	Parts []string `yaml:"parts"`

	HTTP      string   `yaml:"http"`
	Auth      string   `yaml:"auth"`
	Origins   []string `yaml:"cors_origin"`
	PublicURL string   `yaml:"public_url"`

	Crawlers       []string `yaml:"crawlers"` // names, and patterns of names
	Concurrency    int      `yaml:"worker_concurrency"`
	RunLimitTenant int      `yaml:"run_limit_tenant"`

	StreamLimit int `yaml:"stream_limit"`
}

// parts are those that a process of outbox serve can have: the HTTP API and its streams, delivery, and crawling.
var parts = []string{"gateway", "relay", "worker"}

// Has tells whether the process has a part.
func (s Serve) Has(part string) bool { return slices.Contains(s.Parts, part) }

// StreamLimitTenant is the most streams of one tenant.
func (s Serve) StreamLimitTenant() int { return max(s.StreamLimit/4, 1) }

// ServeFlags returns the flags of outbox serve beside the relay's. Their defaults are those of packages gateway and
// crawl, repeated here because --help shows them.
func ServeFlags() *pflag.FlagSet {
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	fs.StringSlice("parts", parts,
		"`what` this process does: gateway serves the HTTP API and the streams, relay delivers events, worker crawls runs")
	fs.String("http", "127.0.0.1:8080", "`address` of the API")
	fs.String("auth", "token",
		"`who` may use the API: token, who has one of outbox token create; or none, anybody on this machine")
	fs.StringSlice("cors-origin", nil,
		"`origins` whose pages may use the API in a browser, e.g. https://shop.example, or http://localhost:* for every port")
	fs.String("public-url", "",
		"`URL` at which clients reach the API through a proxy, e.g. https://api.example.com; streamUrl and Location "+
			"begin with it")
	fs.StringSlice("crawlers", []string{"demo", "script:*"},
		"built-in `crawlers` that a run may have here, and that the worker runs")
	fs.Int("worker-concurrency", 4, "`runs` that the worker crawls at a time")
	fs.Int("run-limit-tenant", 1000,
		"most `runs` of one tenant that wait to be started or for a worker; more are answered with 429")
	fs.Int("stream-limit", 20_000,
		"most `streams` open in this process, of which a quarter may be of one tenant; they follow a fifth as many topics, "+
			"and at least 4000")
	return fs
}

// needs are those of the parts that are on.
func (s Serve) needs() (n Need) {
	n = Database
	if s.Has("gateway") || s.Has("relay") {
		n |= Publishing
	}
	if s.Has("relay") {
		n |= Serving | Retaining
	}
	return n
}

// checkServe checks the settings that the relay does not have; alone says that the relay's have not been checked.
func (c *Config) checkServe(problems *Error, alone bool) {
	s := &c.Serve
	s.checkParts(problems)
	oneOf(problems, "auth", s.Auth, "token", "none")
	s.checkAddresses(problems)
	if alone {
		atLeast(problems, "lease-ttl", c.LeaseTTL, time.Second) // the worker's too
		c.checkListen(problems)
		c.checkTables(problems)
	}
	atLeast(problems, "worker-concurrency", s.Concurrency, 1)
	atLeast(problems, "run-limit-tenant", s.RunLimitTenant, 1)
	atLeast(problems, "stream-limit", s.StreamLimit, 1)
	if s.Has("gateway") {
		_, runErr := c.RunChannel()
		_, topicErr := c.TopicChannel()
		for _, err := range []error{runErr, topicErr} {
			if err != nil {
				problems.add("%v: %s", err, set("destination"))
			}
		}
	}
}

func (s *Serve) checkParts(problems *Error) {
	for _, part := range s.Parts {
		if !slices.Contains(parts, part) {
			problems.add("parts: there is no part %s: it is one of %s: %s", shape(part), strings.Join(parts, ", "), set("parts"))
		}
	}
	if len(s.Parts) == 0 {
		problems.add("parts is empty, so there is nothing to serve: %s", set("parts"))
	}
}

// checkAddresses reports addresses that are none, and those that let anybody in.
func (s *Serve) checkAddresses(problems *Error) {
	if host, _, err := net.SplitHostPort(s.HTTP); err != nil {
		problems.add("http is %q, want host:port such as 127.0.0.1:8080: %s", s.HTTP, set("http"))
	} else if s.Auth == "none" && s.Has("gateway") && !loopback(host) {
		problems.add("auth is none, and other machines can reach %s: everybody there could do everything. Listen on "+
			"127.0.0.1, or leave auth at token", s.HTTP)
	}
	for _, origin := range s.Origins {
		if !isOrigin(origin) && (origin != "*" || s.Auth != "none") {
			problems.add("cors-origin: %s is no origin such as https://shop.example (and * only goes with auth none): %s",
				shownOrigin(origin), set("cors-origin"))
		}
	}
	s.checkPublic(problems)
}

func (s *Serve) checkPublic(problems *Error) {
	if s.PublicURL != "" && !isBase(s.PublicURL) {
		problems.add("public-url is no address such as https://api.example.com, without user, query and fragment (not "+
			"shown, it may hold a password): %s", set("public-url"))
	}
	if s.Auth == "none" && s.Has("gateway") && isBase(s.PublicURL) {
		if u, err := url.Parse(s.PublicURL); err == nil && !loopback(u.Hostname()) {
			problems.add("auth is none, and public-url is an address that other machines reach: " +
				"everybody there could do everything. Leave auth at token, or leave public-url out")
		}
	}
}

// isBase tells whether paths can be put behind text.
func isBase(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil &&
		!strings.ContainsAny(text, "?#")
}

func loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// shownOrigin does not repeat what could hold a password.
func shownOrigin(text string) string {
	if strings.ContainsAny(text, "@?#") {
		return "the value (not shown, it may hold a password)"
	}
	return strconv.Quote(text)
}

// isOrigin tells whether text is what a browser sends as Origin, or that with * for its port.
func isOrigin(text string) bool {
	text = strings.TrimSuffix(text, ":*")
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.Scheme+"://"+u.Host == text &&
		!strings.Contains(text, "*")
}

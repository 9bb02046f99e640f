package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
	"github.com/outboxrelay/outbox/sink"
)

// inTable is the path of a URL whose endpoints are in a table.
const inTable = "table"

// Open reads the endpoints of a file and returns a Sink for them. The URL is webhook: and the path
// of the file, or webhook:table for Config.Table; docs/reference/sinks.md#webhooks has its
// parameters, which are added to cfg, and what an entry of the file may say. An error is of class
// outbox.ClassUnavailable if the table cannot be read now.
//
//	endpoints:
//	  - name: acme
//	    url: https://hooks.acme.example/outbox
//	    secrets: [env:ACME_SECRET, file:/run/secrets/acme-former]
//
// Name, url and secrets are required. A secret or the value of a header is what ReadSecret takes.
// The file is read again when it, or one of the files it names, has changed. One that cannot be
// read then leaves the former endpoints in use.
func Open(ctx context.Context, url string, cfg Config) (*Sink, error) {
	path, err := parse(url, &cfg)
	if err == nil {
		cfg, err = cfg.withDefaults()
	}
	if err != nil {
		return nil, fmt.Errorf("configure webhook sink: %w", err)
	}
	kept := &known{log: cfg.Logger}
	switch {
	case path != inTable:
		kept.read = newFile(path, cfg).read
	case cfg.Table == nil:
		return nil, outbox.Permanent(errors.New(
			"webhook:table has no database here: set one, or name a file of endpoints"))
	default:
		table, err := cfg.Table(ctx, cfg.key)
		if err != nil {
			return nil, err
		}
		kept.read, kept.gone = table.Read, table.Gone
	}
	if kept.refresh(ctx); kept.list == nil {
		if path == inTable {
			return nil, outbox.Unavailable(kept.away)
		}
		return nil, outbox.Permanent(kept.away)
	}
	return New(kept, cfg)
}

// parse returns the path, and adds what the parameters say to cfg. Its errors show neither: a proxy
// has a password.
func parse(text string, cfg *Config) (path string, err error) {
	_, rest, _ := strings.Cut(text, ":")
	path, query, _ := strings.Cut(rest, "?")
	if strings.HasPrefix(path, "//") && !strings.HasPrefix(path, "///") || path == "" {
		return "", errors.New("the URL is not of the form webhook:/path/to/endpoints.yaml")
	}
	if strings.HasPrefix(path, "///") {
		path = path[2:]
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", errors.New("the parameters of the URL are not of the form name=value&name=value")
	}
	for name, all := range values { // a list may come in several parts
		values[name] = []string{strings.Join(all, ",")}
	}
	problems := []error{sinkurl.Take(values, options(cfg)...)}
	for name := range values {
		problems = append(problems, fmt.Errorf(
			"unknown parameter %q (known: cloudevents, allow, ports, schedule, proxy, key)", name))
	}
	if cfg.key != "" && path != inTable {
		problems = append(problems, errors.New("key is for webhook:table: a file names its secrets"))
	}
	return path, errors.Join(problems...)
}

// options are what a URL may say.
func options(cfg *Config) []sinkurl.Option {
	return []sinkurl.Option{
		sinkurl.OneOf("cloudevents", []string{"structured", "binary"},
			func(value string) { cfg.Binary = value == "binary" }),
		{Name: "key", Takes: "env:NAME and file:PATH (a key in a URL would be seen by others)",
			Set: func(value string) bool {
				cfg.key = value
				return isReference(value)
			}},
		{Name: "allow", Takes: "private, http and networks such as 10.1.0.0/16", Set: each(cfg.allow)},
		{Name: "ports", Takes: "the lists of ports such as 443,9443", Set: each(func(part string) bool {
			port, err := strconv.ParseUint(part, 10, 16)
			cfg.Ports = append(cfg.Ports, uint16(port))
			return err == nil && port != 0
		})},
		{Name: "schedule", Takes: "the lists of waits such as 5s,1m,10m", Set: each(func(part string) bool {
			wait, err := time.ParseDuration(part)
			cfg.Schedule = append(cfg.Schedule, wait)
			return err == nil && wait > 0
		})},
		{Name: "proxy", Takes: "the form http://host:port", Set: func(value string) (ok bool) {
			var err error
			cfg.Proxy, err = url.Parse(value)
			return err == nil
		}},
	}
}

// each takes the parts of a list, which commas keep apart.
func each(take func(part string) bool) func(list string) bool {
	return func(list string) bool {
		for part := range strings.SplitSeq(list, ",") {
			if !take(part) {
				return false
			}
		}
		return true
	}
}

func (c *Config) allow(what string) bool {
	switch what {
	case "private":
		c.AllowPrivate = true
	case "http":
		c.AllowHTTP = true
	default:
		prefix, err := netip.ParsePrefix(what)
		c.Allow = append(c.Allow, prefix)
		return err == nil
	}
	return true
}

// Driver opens sinks by the URLs that Open takes, but for webhook:table.
func Driver() sink.Driver {
	return sink.Driver{
		Schemes: []string{"webhook"},
		Example: "webhook:/path/to/endpoints.yaml or webhook:table, ?cloudevents=binary for CloudEvents in headers",
		Open: func(ctx context.Context, url string, o sink.Options) (sink.Sink, error) {
			return Open(ctx, url, Config{Logger: o.Logger})
		},
		Reads: []string{"OUTBOX_ENDPOINT_KEY"}, Check: checkURL, Mask: mask, Plaintext: plaintext, Hint: hint,
	}
}

// checkURL does not look into the file: settings may be checked where it is not.
func checkURL(url string) error {
	var cfg Config
	_, err := parse(url, &cfg)
	if err == nil {
		_, err = cfg.withDefaults()
	}
	return err
}

// mask leaves the parameters out: a proxy has a password.
func mask(url string) string {
	path, err := parse(url, &Config{})
	if err != nil {
		return "webhook:"
	}
	return "webhook:" + path
}

// plaintext returns the hosts of endpoints that are reached without TLS, as far as the file can be
// read.
func plaintext(text string) (hosts []string) {
	var cfg Config
	path, err := parse(text, &cfg)
	if err != nil || !cfg.AllowHTTP || path == inTable {
		return nil
	}
	list, _ := newFile(path, cfg).parse() // who opens the sink is told
	for _, e := range list {
		if u, err := url.Parse(e.URL); err == nil && u.Scheme == "http" && !e.Disabled {
			hosts = append(hosts, u.Hostname())
		}
	}
	return sinkurl.Elsewhere(hosts)
}

func hint(err error) string {
	if text := err.Error(); strings.Contains(text, "webhook endpoints") {
		return "docs/reference/sinks.md#webhooks shows a file of endpoints"
	}
	return ""
}

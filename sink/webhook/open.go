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

// Open reads the endpoints of a file and returns a Sink for them. The URL is webhook: and the path
// of the file. docs/reference/sinks.md#webhooks describes the URL's parameters, which are added to
// cfg, and the fields of an entry.
//
//	endpoints:
//	  - name: acme
//	    url: https://hooks.acme.example/outbox
//	    secrets: [env:ACME_SECRET, file:/run/secrets/acme-former]
//
// Name, url and secrets are required. A secret or the value of a header may be env:NAME, a variable
// of the environment, or file:PATH, a file without its last line break. While the Sink is in use,
// the file is read again within a second after it, or a file that it names, has changed. If it
// cannot be read, the former endpoints stay in use.
func Open(_ context.Context, url string, cfg Config) (*Sink, error) {
	path, err := parse(url, &cfg)
	if err == nil {
		cfg, err = cfg.withDefaults()
	}
	if err != nil {
		return nil, fmt.Errorf("configure webhook sink: %w", err)
	}
	f := newFile(path, cfg)
	if f.refresh(); f.err != nil {
		return nil, outbox.Permanent(f.err)
	}
	return New(f, cfg)
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
			"unknown parameter %q (known: cloudevents, allow, ports, schedule, proxy)", name))
	}
	return path, errors.Join(problems...)
}

// options are what a URL may say.
func options(cfg *Config) []sinkurl.Option {
	return []sinkurl.Option{
		sinkurl.OneOf("cloudevents", []string{"structured", "binary"},
			func(value string) { cfg.Binary = value == "binary" }),
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

// Driver opens sinks by the URLs that Open takes.
func Driver() sink.Driver {
	return sink.Driver{
		Schemes: []string{"webhook"},
		Example: "webhook:/path/to/endpoints.yaml, ?cloudevents=binary for CloudEvents in headers",
		Open: func(ctx context.Context, url string, o sink.Options) (sink.Sink, error) {
			return Open(ctx, url, Config{Logger: o.Logger})
		},
		Check: checkURL, Files: checkFile, Mask: mask, Plaintext: plaintext, Hint: hint,
	}
}

// checkFile reads the file of a URL and the files and variables that it names.
func checkFile(url string) error {
	var cfg Config
	path, err := parse(url, &cfg)
	if err == nil {
		cfg, err = cfg.withDefaults()
	}
	if err == nil {
		_, err = newFile(path, cfg).parse()
	}
	return err
}

// checkURL does not look into the file: a relay starts without it, and delivers to its other sinks.
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
	if err != nil || !cfg.AllowHTTP {
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

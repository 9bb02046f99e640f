package webhook

import (
	"context"
	"net"
	"net/url"
	"strings"

	"github.com/outboxrelay/outbox/internal/store/endpoint"
	"github.com/outboxrelay/outbox/sink"
)

// Driver opens sinks by the URLs that Open takes.
func Driver() sink.Driver {
	return sink.Driver{
		Schemes: []string{"webhook"},
		Example: "webhook:/path/to/endpoints.yaml or webhook:table, ?cloudevents=binary for CloudEvents in headers",
		Open: func(ctx context.Context, url string, o sink.Options) (sink.Sink, error) {
			return Open(ctx, url, Config{Logger: o.Logger, Table: o.Endpoints})
		},
		Reads: []string{strings.TrimPrefix(defaultKey, "env:")},
		Check: checkURL, Mask: mask, Plaintext: plaintext, Hint: hint, Endpoints: endpoints,
	}
}

// checkURL does not look into the file: settings may be checked where it is not.
func checkURL(url string) error {
	var cfg Config
	if _, err := parse(url, &cfg); err != nil {
		return err
	}
	_, err := cfg.withDefaults()
	return err
}

// mask leaves the parameters out: a proxy has a password.
func mask(url string) string {
	var cfg Config
	path, err := parse(url, &cfg)
	if err != nil {
		return "webhook:"
	}
	return "webhook:" + path
}

// plaintext returns the hosts of endpoints that are reached without TLS, as far as the file can be read.
func plaintext(text string) (hosts []string) {
	var cfg Config
	path, err := parse(text, &cfg)
	if err != nil || !cfg.AllowHTTP || path == inTable {
		return nil
	}
	file, err := openFile(path, cfg)
	if err != nil {
		return nil
	}
	for _, e := range file.all() {
		u, err := url.Parse(e.URL)
		if err != nil || u.Scheme != "http" || e.Disabled {
			continue
		}
		if host := u.Hostname(); host != "localhost" && !net.ParseIP(host).IsLoopback() {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// endpoints returns those of the file, or of the table.
func endpoints(ctx context.Context, url string, o sink.Options) (endpoint.Lister, error) {
	cfg := Config{Logger: o.Logger, Table: o.Endpoints}
	path, err := parse(url, &cfg)
	if err != nil {
		return nil, err
	}
	if path == inTable {
		return newEditor(ctx, cfg)
	}
	file, err := openFile(path, cfg)
	if err != nil {
		return nil, err
	}
	return fileList{file}, nil
}

func hint(err error) string {
	if text := err.Error(); strings.Contains(text, "webhook endpoints") {
		return "docs/reference/sinks.md#webhooks shows a file of endpoints"
	}
	return ""
}

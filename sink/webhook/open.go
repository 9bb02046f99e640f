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
)

// Open reads the endpoints of a file and returns a Sink for them. The URL is webhook: and the path of the file, with
// these parameters:
//
//	webhook:/etc/outbox/endpoints.yaml
//	webhook:endpoints.yaml?cloudevents=binary
//	webhook:table               Config.Table; webhook:./table is a file of that name
//	?key=env:NAME               of the table's secrets, also file:PATH; OUTBOX_ENDPOINT_KEY if there is none
//	?allow=private,http         all addresses and ports, and http:// beside https://
//	?allow=10.1.0.0/16          endpoints in this inner network, and in no other
//	?ports=443,9443             instead of 443 and 8443
//	?schedule=5s,1m,10m         Config.Schedule
//	?proxy=http://egress:4750   which makes all requests and must refuse inner networks itself
//
// What they say is added to cfg. An error is of class outbox.ClassUnavailable if the table cannot be read now.
//
// The file is YAML:
//
//	endpoints:
//	  - name: acme
//	    url: https://hooks.acme.example/outbox
//	    secrets: [env:ACME_SECRET, file:/run/secrets/acme-former]
//	    headers: {Authorization: env:ACME_AUTHORIZATION}
//	    timeout: 20s
//	    concurrency: 16
//	    rate: 50
//	    tenant: acme
//	    topics: ["order.*"]
//	    types: [Order]
//	    disabled: true
//
// Name, url and secrets are required. A secret or the value of a header is the text itself, or env:NAME for a variable
// of the environment, or file:PATH for a file without its last line break. The file is read again when it, or one of
// the files it names, has changed. One that cannot be read then leaves the former endpoints in use.
func Open(ctx context.Context, url string, cfg Config) (*Sink, error) {
	path, err := parse(url, &cfg)
	if err != nil {
		return nil, fmt.Errorf("configure webhook sink: %w", err)
	}
	if path == inTable {
		return openTable(ctx, cfg)
	}
	file, err := openFile(path, cfg)
	if err != nil {
		return nil, outbox.Permanent(err)
	}
	return New(file, cfg)
}

// parse returns the path, and adds what the parameters say to cfg. Its errors show neither: a proxy has a password.
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
	var problems []error
	for name, all := range values {
		for _, value := range all {
			if err := set(cfg, name, value); err != nil {
				problems = append(problems, err)
			}
		}
	}
	if cfg.key != "" && path != inTable {
		problems = append(problems, errors.New("key is for webhook:table: a file names its secrets"))
	}
	return path, errors.Join(problems...)
}

func set(cfg *Config, name, value string) error {
	switch name {
	case "key":
		if !isReference(value) {
			return errors.New("key is neither env:NAME nor file:PATH: a key in a URL would be seen by others")
		}
		cfg.key = value
	case "cloudevents":
		cfg.Binary = value == "binary"
		if value != "binary" && value != "structured" {
			return errors.New("cloudevents is neither structured nor binary")
		}
	case "allow":
		return forEach(value, func(part string) error { return allow(cfg, part) })
	case "ports":
		return forEach(value, func(part string) error {
			port, err := strconv.ParseUint(part, 10, 16)
			if err != nil || port == 0 {
				return errors.New("ports is no list of ports such as 443,9443")
			}
			cfg.Ports = append(cfg.Ports, uint16(port))
			return nil
		})
	case "schedule":
		return forEach(value, func(part string) error {
			wait, err := time.ParseDuration(part)
			if err != nil || wait <= 0 {
				return errors.New("schedule is no list of waits such as 5s,1m,10m")
			}
			cfg.Schedule = append(cfg.Schedule, wait)
			return nil
		})
	case "proxy":
		proxy, err := url.Parse(value)
		if err != nil {
			return errors.New("proxy is not of the form http://host:port")
		}
		cfg.Proxy = proxy
	default:
		return fmt.Errorf("unknown parameter %q (known: cloudevents, allow, ports, schedule, proxy, key)", name)
	}
	return nil
}

// forEach goes through a list, apart by commas.
func forEach(list string, do func(part string) error) error {
	for part := range strings.SplitSeq(list, ",") {
		if err := do(part); err != nil {
			return err
		}
	}
	return nil
}

func allow(cfg *Config, what string) error {
	switch what {
	case "private":
		cfg.AllowPrivate = true
	case "http":
		cfg.AllowHTTP = true
	default:
		prefix, err := netip.ParsePrefix(what)
		if err != nil {
			return errors.New("allow has what is none of private, http and a network such as 10.1.0.0/16")
		}
		cfg.Allow = append(cfg.Allow, prefix)
	}
	return nil
}

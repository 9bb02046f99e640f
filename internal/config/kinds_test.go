package config

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/outboxrelay/outbox/internal/sink/sinks"
	"github.com/outboxrelay/outbox/sink"
	"github.com/outboxrelay/outbox/sink/memory"
)

// kinds are what the tests' settings may name: databases at postgres: and sqlite:, a sink at redis:
// that many can hear, one in the process, and one at lines: that nobody can listen to.
var kinds = Kinds{
	Databases: testDatabases{},
	Sinks:     testSinks(),
}

func testSinks() sinks.Registry {
	open := func(context.Context, string, sink.Options) (sink.Sink, error) {
		return nil, errors.New("a test opens none")
	}
	r, err := sinks.NewRegistry(
		sink.Driver{
			Schemes: []string{"redis", "rediss"}, Example: "redis://host:6379", Variables: []string{"REDIS_URL"}, Open: open,
			Check: func(url string) error {
				if strings.Contains(url, "bad") {
					return errors.New("the URL is bad")
				}
				return nil
			},
			Subscribe: func(string, sink.Options) (sink.Subscriber, error) { return nil, nil },
			Tail:      func(context.Context, string, []string, sink.Tail) error { return nil },
		},
		memory.Driver(),
		sink.Driver{Schemes: []string{"lines"}, Example: "lines:FILE", Open: open},
	)
	if err != nil {
		panic(err)
	}
	return r
}

type testDatabases struct{}

func (testDatabases) Check(text string) error {
	if u, err := url.Parse(text); err != nil || u.Scheme != "postgres" && u.Scheme != "sqlite" {
		return errors.New("is no valid URL")
	}
	return nil
}

func (testDatabases) Show(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "(no valid URL)"
	case u.Scheme == "postgres":
		return strings.TrimPrefix(u.Path, "/") + " at " + u.Host
	}
	return strings.Replace(text, "//", "", 1)
}

func (testDatabases) Examples() []string { return []string{"postgres://host/database", "sqlite:FILE"} }

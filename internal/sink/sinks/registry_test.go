package sinks

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/sink"
)

func open(context.Context, string, sink.Options) (sink.Sink, error) {
	return nil, errors.New("a test opens none")
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	failure := errors.New("of b")
	r, err := NewRegistry(
		sink.Driver{Schemes: []string{"a", "as"}, Example: "a://host", Open: open},
		sink.Driver{Schemes: []string{"b"}, Example: "b:", Open: open,
			Check: func(string) error { return errors.New("wrong") }, Mask: func(string) string { return "b" },
			Hint: func(err error) string { return map[bool]string{true: "mend it"}[errors.Is(err, failure)] }},
	)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.Examples(), ", "); got != "a://host, b:" || len(r.Drivers()) != 2 {
		t.Errorf("got %s", got)
	}
	for _, c := range []struct{ url, masked, problem string }{
		{"a://u:hunter2@h:1/x?p=hunter2", "a://h:1/x", ""},
		{"AS://h", "AS://h", ""},
		{"b:x", "b", "wrong"},
		{"c://u:hunter2@h", "(no valid URL)", "there is no sink for URLs of c: want one of a:, as:, b:"},
		{"hunter2", "(no valid URL)", "the URL has no scheme (not shown"},
		{"://hunter2", "(no valid URL)", "the URL has no scheme (not shown"},
		{"", "(no valid URL)", "the URL has no scheme"},
	} {
		if got := r.Mask(c.url); got != c.masked {
			t.Errorf("%s: is shown as %s, want %s", c.url, got, c.masked)
		}
		err := r.Check(c.url)
		if c.problem == "" && err != nil || c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)) ||
			err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want %q", c.url, err, c.problem)
		}
	}
	if r.Hint(failure) != "mend it" || r.Hint(errors.New("x")) != "" {
		t.Error("the wrong driver has a hint")
	}
}

func TestRegistryRefuses(t *testing.T) {
	t.Parallel()
	_, err := NewRegistry(
		sink.Driver{Schemes: []string{"a"}, Example: "a:", Open: open},
		sink.Driver{Schemes: []string{"b", "a"}, Example: "b:", Open: open},
		sink.Driver{Schemes: []string{"c"}, Example: "c:"},
		sink.Driver{Schemes: []string{"D:"}, Example: "d:", Open: open},
	)
	for _, want := range []string{"driver 2: another driver has the scheme a", "driver 3 (schemes c) lacks",
		`driver 4: "D:" is no scheme`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

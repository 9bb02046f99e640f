package config

import (
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/sink"
)

func TestLimits(t *testing.T) {
	settings := func(entry string) string {
		return "sink: {default: redis://h, audit: redis://a}\nlimits:\n  - " + entry + "\n"
	}
	environ := []string{"OUTBOX_DATABASE_URL=postgres://h/d"}
	c, err := load(t, settings("{sink: audit, rate: 0.5, concurrency: 3}"), environ)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(Serving); err != nil {
		t.Fatal(err)
	}
	if got := c.LimitsOf("audit"); got != (sink.Limits{Rate: 0.5, Concurrency: 3}) {
		t.Errorf("audit has %+v", got)
	}
	if got := c.LimitsOf("default"); got != (sink.Limits{}) {
		t.Errorf("default has %+v", got)
	}
	for entry, want := range map[string]string{
		"{sink: nope, rate: 1}":          `there is no sink "nope": it is one of audit, default`,
		"{rate: 1}":                      `there is no sink ""`,
		"{sink: audit, rate: -1}":        "rate is -1 ",
		"{sink: audit, concurrency: -1}": "concurrency -1, must be positive",
		"{sink: audit, per_second: 1}":   "per_second",
		"{sink: audit, rate: 1}\n  - {sink: audit, concurrency: 1}": "the sink audit has an entry already",
	} {
		c, err := load(t, settings(entry), environ)
		if err == nil {
			err = c.Check(Serving)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %q", entry, err, want)
		}
	}
}

package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/relay"
)

func TestRetryPolicies(t *testing.T) {
	c, err := load(t, `
database: postgres://h/d
sink: redis://h
retry:
  - {destination: "orders.*", max_attempts: 10, backoff_base: 1s, backoff_factor: 3, backoff_cap: 1m}
  - {destination: audit, table: event_outbox}
`, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(Database | Publishing | Serving); err != nil {
		t.Fatal(err)
	}
	orders := relay.RetryPolicy{Destination: "orders.*", MaxAttempts: 10,
		Backoff: relay.Backoff{Base: time.Second, Factor: 3, Cap: time.Minute}}
	if got := c.Policies("outbox_events"); !reflect.DeepEqual(got, []relay.RetryPolicy{orders}) {
		t.Errorf("outbox_events: got %+v", got)
	}
	if got := c.Policies("event_outbox"); !reflect.DeepEqual(got, []relay.RetryPolicy{orders, {Destination: "audit"}}) {
		t.Errorf("event_outbox: got %+v", got)
	}
}

// Every mistake is named, with the entry it is in.
func TestRetryPolicyMistakes(t *testing.T) {
	c, err := load(t, `
database: postgres://h/d
sink: redis://h
retry:
  - {destination: "[", max_attempts: -1}
  - {destination: a, attempts: 3}
  - {destination: b, table: nowhere, backoff_factor: 0.5}
  - {destination: c, backoff_base: 5, max_attempts: 1.9, backoff_factor: two, foo: 1}
  - {1: x}
  - 7
`, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Check(Database | Publishing | Serving)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		`retry, entry 1 (destination "["): want a destination`, "entry 1 (destination \"[\"): max_attempts is -1",
		`retry, entry 2 (destination "a"): unknown key "attempts"`,
		`entry 3 (destination "b"): table: there is no layout for table nowhere`, "backoff_factor is 0.5",
		`entry 4 (destination "c"): backoff_base: 5 needs a unit`,
		`entry 4 (destination "c"): max_attempts: "1.9" is no whole number`,
		`entry 4 (destination "c"): backoff_factor: "two" is no number`, `unknown key "foo"`,
		`retry, entry 5: unknown key "1"`, "retry, entry 6: want keys with values",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("not in the error: %s\n%v", want, err)
		}
	}
}

package relay

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
)

func TestConfigDefaults(t *testing.T) {
	c, err := Config{}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if c.BatchRecords != 1000 || c.BatchBytes != 8<<20 || c.MaxAttempts != 5 || c.Logger == nil ||
		c.Observer != nil {
		t.Errorf("got %+v", c)
	}
	for name, d := range map[string][2]time.Duration{
		"PollMin": {c.PollMin, 1500 * time.Microsecond}, "PollMax": {c.PollMax, 200 * time.Millisecond},
		"LeaseTTL": {c.LeaseTTL, 10 * time.Second}, "LeaseMargin": {c.LeaseMargin, time.Second},
		"PublishTimeout": {c.PublishTimeout, 5 * time.Second}, "DatabaseTimeout": {c.DatabaseTimeout, 10 * time.Second},
		"DrainTimeout": {c.DrainTimeout, 30 * time.Second},
	} {
		if d[0] != d[1] {
			t.Errorf("%s is %s, want %s", name, d[0], d[1])
		}
	}
	if want := (Backoff{Base: 5 * time.Second, Factor: 2, Cap: 15 * time.Minute, Jitter: 0.2}); c.Backoff != want {
		t.Errorf("Backoff is %+v, want %+v", c.Backoff, want)
	}
	tables, err := c.served()
	if err != nil {
		t.Fatal(err)
	}
	destination := tables[0].Destination
	to, err := destination.Expand(&outbox.Record{Event: outbox.Event{Topic: "t"}})
	if err != nil || to != "t" || destination.String() != "{topic}" {
		t.Errorf("Destination %s gives %q, %v", destination, to, err)
	}
}

func TestConfigKeepsWhatIsSet(t *testing.T) {
	set := Config{LeaseTTL: 30 * time.Second, BatchRecords: 7, Backoff: Backoff{Jitter: -1}}
	c, err := set.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if c.LeaseTTL != 30*time.Second || c.LeaseMargin != 3*time.Second || c.BatchRecords != 7 || c.Backoff.Jitter != 0 {
		t.Errorf("got %+v", c)
	}
}

// A relay whose polling is to grow to less than its usual start begins there.
func TestConfigPollsNoSlowerThanAsked(t *testing.T) {
	c, err := Config{PollMax: time.Millisecond}.WithDefaults()
	if err != nil || c.PollMin != time.Millisecond {
		t.Errorf("got %s, error %v", c.PollMin, err)
	}
}

func TestConfigReportsEveryProblem(t *testing.T) {
	bad := Config{
		BatchRecords: -1, BatchBytes: -1, MaxAttempts: -1, PollMin: time.Second, LeaseMargin: 4 * time.Second,
		PublishTimeout: -1, DatabaseTimeout: -1, DrainTimeout: -1,
		Backoff: Backoff{Base: -1, Factor: 0.5, Cap: -1, Jitter: 1.5},
	}
	_, err := relayOf(nil, nil, bad)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, field := range []string{"BatchRecords", "BatchBytes", "MaxAttempts", "PollMin (1s)", "LeaseMargin (4s)",
		"PublishTimeout", "DatabaseTimeout",
		"DrainTimeout", "Backoff.Base", "Backoff.Factor", "Backoff.Cap", "Backoff.Jitter"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%q is not among the problems:\n%v", field, err)
		}
	}
}

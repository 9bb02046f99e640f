package relay

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/outboxrelay/outbox"
)

// Config configures a Relay. Zero means the default in parentheses, negative means off where off
// makes sense.
type Config struct {
	Tables []Table // what is served (Tables(): those of the migration sets that exist)
	// Sinks are further sinks, by the names that Table.Sink uses. To compare relays, the database
	// keeps the name of a sink and what its String method returns, or its Go type. So a String
	// method must not reveal a password.
	Sinks    map[string]outbox.Sink
	Instance string // what this relay calls itself among others, for people (host name and process id)

	// Workers is how many loops share the lanes of a table (2): while one waits for the sink
	// another has the database work. Publish is called by as many at a time.
	Workers int
	// BatchRecords is how many records a publish and a settle have (1000; docs/adr/0004 has the
	// measurement). A claim brings up to four batches.
	BatchRecords int
	BatchBytes   int // bytes of payload a claim (8 MiB)

	PollMin time.Duration // pause after a batch that was not full (1.5 ms, or PollMax if that is shorter)
	PollMax time.Duration // pause that an idle relay grows to (200 ms, FR-005's interval)

	LeaseTTL    time.Duration // how long lanes stay reserved for a relay that died (10 s); renewed every third of it
	LeaseMargin time.Duration // no publish in the last part of a lease (a tenth of LeaseTTL)

	// PublishTimeout is for one batch (5 s), unless the sink's own Timeout is longer. The lease is
	// renewed while it lasts. An unanswered delivery is published again.
	PublishTimeout time.Duration
	// RouteTimeout is for one batch and one sink of a table with Routes (100 ms). What a sink has
	// not answered by then is delivered from outbox_deliveries, and the others do not wait for it.
	// A sink that TakesCopies has ten times as long: its server would take the same again.
	RouteTimeout time.Duration
	// DatabaseTimeout is for one claim or one attempt to settle (10 s). A claim that ran out of it
	// at a database that answers others gets 32 times as much at the next try.
	DatabaseTimeout time.Duration
	DrainTimeout    time.Duration // for the batch in flight when Run is told to stop (30 s)

	MaxAttempts int           // failed attempts before a record is dead (5)
	Backoff     Backoff       // between them (5 s, doubling, at most 15 min, ± 20 %)
	Policies    []RetryPolicy // exceptions for some destinations, the first that fits

	// RecoveryRate is how many records a second are delivered to a sink after an outage of it,
	// until the backlog is gone (20,000; negative: as many as possible).
	RecoveryRate int

	Retention       outbox.Retention // of delivered rows
	LetterRetention outbox.Retention // of replayed dead letters (30 days, then they are deleted; the rest is Retention's)

	Logger   *slog.Logger    // (slog.Default)
	Observer outbox.Observer // receives the numbers of every batch, for metrics (nil: no metrics)
}

// WithDefaults returns the configuration that New runs with, zero fields filled in, or every
// problem at once. It is for a look at them: New does the same by itself.
func (c Config) WithDefaults() (Config, error) {
	var problems []error
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Instance == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown host"
		}
		c.Instance = fmt.Sprintf("%s, process %d", host, os.Getpid())
	}
	c.RecoveryRate = cmp.Or(c.RecoveryRate, 20_000)
	positive(&problems, "Workers", &c.Workers, 2)
	positive(&problems, "BatchRecords", &c.BatchRecords, 1000)
	positive(&problems, "BatchBytes", &c.BatchBytes, 8<<20)
	positive(&problems, "PollMax", &c.PollMax, 200*time.Millisecond)
	positive(&problems, "PollMin", &c.PollMin, min(1500*time.Microsecond, max(c.PollMax, 1)))
	positive(&problems, "LeaseTTL", &c.LeaseTTL, 10*time.Second)
	positive(&problems, "LeaseMargin", &c.LeaseMargin, c.LeaseTTL/10)
	positive(&problems, "PublishTimeout", &c.PublishTimeout, 5*time.Second)
	positive(&problems, "RouteTimeout", &c.RouteTimeout, 100*time.Millisecond)
	positive(&problems, "DatabaseTimeout", &c.DatabaseTimeout, 10*time.Second)
	positive(&problems, "DrainTimeout", &c.DrainTimeout, 30*time.Second)
	positive(&problems, "MaxAttempts", &c.MaxAttempts, 5)
	c.Backoff = c.Backoff.withDefaults(Backoff{Base: 5 * time.Second, Factor: 2, Cap: 15 * time.Minute, Jitter: 0.2})
	c.Backoff.check("Backoff", &problems)
	complete(c.Policies, "", RetryPolicy{MaxAttempts: c.MaxAttempts, Backoff: c.Backoff}, &problems)
	if c.PollMin > c.PollMax {
		problems = append(problems, fmt.Errorf("PollMin (%s) is above PollMax (%s)", c.PollMin, c.PollMax))
	}
	if c.LeaseMargin*3 > c.LeaseTTL {
		problems = append(problems, fmt.Errorf("LeaseMargin (%s) is more than a third of LeaseTTL (%s): "+
			"a late renewal would stop the relay", c.LeaseMargin, c.LeaseTTL))
	}
	c.Retention.Logger = cmp.Or(c.Retention.Logger, c.Logger)
	c.Retention = c.Retention.WithDefaults()
	checkRetention(c.Retention, "Retention", &problems)
	letters := c.Retention
	letters.After, letters.Archive = 30*24*time.Hour, "none"
	c.LetterRetention = completeRetention(c.LetterRetention, letters)
	checkRetention(c.LetterRetention, "LetterRetention", &problems)
	return c, errors.Join(problems...)
}

// positive has 0 be def, and refuses what is negative.
func positive[T int | time.Duration](problems *[]error, field string, v *T, def T) {
	if *v = cmp.Or(*v, def); *v < 0 {
		*problems = append(*problems, fmt.Errorf("%s is %v, must be positive", field, *v))
	}
}

// tableConfig is what the loops of one table go by. What both have counts as table has it.
type tableConfig struct {
	Config // with its defaults

	table   Table
	breaker *breaker // of the sink, or one that is never open if there are routes
}

func (c *tableConfig) name() string { return c.table.Layout.Name() }

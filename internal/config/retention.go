package config

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/retention"
)

// Retention holds the settings of what becomes of old rows.
type Retention struct {
	OlderThan    time.Duration `yaml:"retention"`     // 0: off
	LetterAge    time.Duration `yaml:"dlq_retention"` // 0: off
	Archive      string        `yaml:"archive"`
	BatchRows    int           `yaml:"retention_batch"`
	RunEvery     time.Duration `yaml:"retention_every"`
	parsedTarget retention.Archive
}

// Letters is the table of dead letters, which retention looks after too. It has no layout.
const Letters = "job_dlq"

// RetentionFlags returns the flags of commands that remove old rows. The defaults are the seeds'.
func RetentionFlags() *pflag.FlagSet {
	fs := pflag.NewFlagSet("retention", pflag.ContinueOnError)
	fs.Duration("retention", 168*time.Hour, "how `long` delivered events stay in their table; 0: for ever")
	fs.Duration("dlq-retention", 720*time.Hour, "how `long` replayed dead letters stay in job_dlq; 0: for ever")
	fs.String("archive", "table",
		"`where` they go then: table (outbox_archive), none, or a directory for compressed files; event_outbox and job_dlq "+
			"go nowhere")
	fs.Int("retention-batch", 1000, "`rows` removed in one transaction")
	fs.Duration("retention-every", time.Minute, "`pause` between looking for them")
	return fs
}

func (c *Config) checkRetention(problems *Error) {
	for _, f := range []struct {
		flag  string
		d     time.Duration
		least time.Duration
	}{{"retention", c.Retention.OlderThan, 0}, {"dlq-retention", c.Retention.LetterAge, 0},
		{"retention-every", c.Retention.RunEvery, time.Second}} {
		if f.d < f.least {
			problems.add("%s is %s, must be %s or more: %s", f.flag, f.d, f.least, set(f.flag))
		}
	}
	if c.Retention.BatchRows < 1 {
		problems.add("retention-batch is %d, must be 1 or more: %s", c.Retention.BatchRows, set("retention-batch"))
	}
	target, err := retention.ParseArchive(c.Retention.Archive)
	if err != nil {
		problems.add("archive: %v: %s", err, set("archive"))
	}
	c.Retention.parsedTarget = target
}

// Of returns how old a table's rows become, 0 for any age, and where they go. The seeds' purge functions delete; what
// they purge is not archived.
func (r Retention) Of(table string) (time.Duration, retention.Archive) {
	switch table {
	case Letters:
		return r.LetterAge, retention.Archive{None: true}
	case outbox.EventOutbox().Table:
		return r.OlderThan, retention.Archive{None: true}
	}
	return r.OlderThan, r.parsedTarget
}

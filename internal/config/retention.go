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
	parsedTarget retention.Archive
}

// Letters is the table of dead letters, which retention looks after too. It has no layout.
const Letters = "job_dlq"

// RetentionFlags returns the flags of commands that remove old rows. The defaults are the library's, which are the
// seeds'.
func RetentionFlags() *pflag.FlagSet {
	fs := pflag.NewFlagSet("retention", pflag.ContinueOnError)
	fs.Duration("retention", relayDefaults.Retention.After, "how `long` delivered events stay in their table; 0: for ever")
	fs.Duration("dlq-retention", relayDefaults.LetterRetention.After,
		"how `long` replayed dead letters stay in job_dlq; 0: for ever")
	fs.String("archive", relayDefaults.Retention.Archive,
		"`where` they go then: table (outbox_archive), none, or a directory for compressed files; event_outbox and job_dlq "+
			"go nowhere")
	return fs
}

func (c *Config) checkRetention(problems *Error) {
	atLeast(problems, "retention", c.Retention.OlderThan, 0)
	atLeast(problems, "dlq-retention", c.Retention.LetterAge, 0)
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
	case outbox.EventOutbox().Table, outbox.DeliveriesOf("", "").Table, outbox.OutboxLog().Table:
		return r.OlderThan, retention.Archive{None: true}
	}
	return r.OlderThan, r.parsedTarget
}

package config

import (
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/store/retention"
)

func TestRetention(t *testing.T) {
	dir := t.TempDir()
	c, err := load(t, "retention: 24h\narchive: "+dir+"\n",
		[]string{"OUTBOX_DATABASE_URL=postgres://h/d", "OUTBOX_DLQ_RETENTION=0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(Database | Retaining); err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]struct {
		age     time.Duration
		archive retention.Archive
	}{
		"outbox_events":  {24 * time.Hour, retention.Archive{Dir: dir}},
		"crawl_outbox":   {24 * time.Hour, retention.Archive{Dir: dir}},
		"billing.outbox": {24 * time.Hour, retention.Archive{Dir: dir}},
		"event_outbox":   {24 * time.Hour, retention.Archive{None: true}}, "job_dlq": {0, retention.Archive{None: true}},
	} {
		if age, archive := c.Retention.Of(table); age != want.age || archive != want.archive {
			t.Errorf("%s: %s, %+v, want %+v", table, age, archive, want)
		}
	}

	c, err = load(t, "", []string{"OUTBOX_ARCHIVE=" + dir + "/none"}, "--retention", "-1h", "--dlq-retention", "-1s")
	if err != nil {
		t.Fatal(err)
	}
	wantProblems(t, c.Check(Retaining), "retention is -1h", "dlq-retention is -1s", "OUTBOX_ARCHIVE or archive")
}

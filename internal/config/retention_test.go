package config

import (
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/store/retention"
)

func TestRetention(t *testing.T) {
	dir := t.TempDir()
	c, err := load(t, "retention: [24h, job_dlq=0, crawl_outbox=1h]\narchive: "+dir+"\n",
		[]string{"OUTBOX_DATABASE_URL=postgres://h/d", "OUTBOX_LEASE_TTL=9s"})
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
		"crawl_outbox":   {time.Hour, retention.Archive{Dir: dir}},
		"billing.outbox": {24 * time.Hour, retention.Archive{Dir: dir}},
		"event_outbox":   {24 * time.Hour, retention.Archive{None: true}}, "job_dlq": {0, retention.Archive{None: true}},
	} {
		if age, archive := c.RetentionOf(table); age != want.age || archive != want.archive {
			t.Errorf("%s: %s, %+v, want %+v", table, age, archive, want)
		}
	}

	c, err = load(t, "", []string{"OUTBOX_ARCHIVE=" + dir + "/none"}, "--retention", "nobody=1h")
	if err != nil {
		t.Fatal(err)
	}
	wantProblems(t, c.Check(Retaining), "retention: there is no layout for table nobody", "OUTBOX_ARCHIVE or archive")
	for text, want := range map[string]string{
		"-1h": "-1h is no age", "job_dlq=-1s": "-1s is no age", "job_dlq=7": "7 needs a unit",
	} {
		if c, err = load(t, "", nil, "--retention", text); err != nil {
			t.Fatal(err)
		}
		wantProblems(t, c.Check(0), "--retention: "+want)
	}
	if c, err = load(t, "", nil, "--retention", "0"); err != nil {
		t.Fatal(err)
	}
	if letters, _ := c.RetentionOf(Letters); letters != 720*time.Hour {
		t.Errorf("letters stay for %s where only events have an age", letters)
	}
}

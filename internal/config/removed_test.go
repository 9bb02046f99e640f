package config

import (
	"strings"
	"testing"
)

// Settings of earlier versions are refused with what to write.
func TestRemovedSettings(t *testing.T) {
	c, err := load(t, "batch: 1\nredis: redis://u:hunter2@h\n", []string{"OUTBOX_REDIS_URL=redis://u:hunter2@h"})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Check(0)
	wantProblems(t, err, "outbox.yaml:2: redis is no setting any more: write sink:",
		"OUTBOX_REDIS_URL is no setting any more: set OUTBOX_SINK to the same URL")
	if strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

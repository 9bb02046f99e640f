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

// What the program decides now is refused under each of its names, and no other name is.
func TestDecidedSettings(t *testing.T) {
	t.Parallel()
	c, err := load(t, "backoff_factor: 3\n", []string{"OUTBOX_POLL_MIN=200ms"})
	if err != nil {
		t.Fatal(err)
	}
	wantProblems(t, c.Check(0), "OUTBOX_POLL_MIN is no setting any more: take it away, a relay polls every 2ms",
		"outbox.yaml:1: backoff_factor is no setting any more: take it away, each wait is twice as long")
	keys, variables := knownNames()
	for name, instead := range decided {
		flag := strings.ReplaceAll(name, "_", "-")
		for _, written := range []string{name, "--" + flag, prefix + strings.ToUpper(name)} {
			if got, _ := Removed(written); got != instead {
				t.Errorf("%s: got %q, want %q", written, got, instead)
			}
		}
		if _, ok := Removed(flag); ok || keys[name] != "" || variables[prefix+strings.ToUpper(name)] != "" ||
			All().Lookup(flag) != nil {
			t.Errorf("%s is a setting, or %s is taken for one", name, flag)
		}
	}
	for name := range keys {
		if _, ok := Removed(name); ok {
			t.Errorf("%s is a setting, and removed", name)
		}
	}
}

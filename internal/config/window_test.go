package config

import (
	"strings"
	"testing"
)

func TestDedup(t *testing.T) {
	environ := []string{"OUTBOX_DATABASE_URL=postgres://h/d", "OUTBOX_SINK=redis://h"}
	for args, says := range map[string]string{
		"":                   "",
		"--dedup-window 0":   "",
		"--dedup-window 29s": "",
		"--dedup-window 28s": "dedup-window is 28s, but after the death of a relay 29s can lie",
		"--dedup-window 1s":  "give --dedup-window 29s or more",
		"--dedup-window 2m --lease-ttl 2m": "(a publish of 5s, lease-ttl of 2m and a third of it for the take-over, a " +
			"claim of 10s)",
		"--dedup-window 1s --sink memory:":         "",
		"--dedup-window 1s --parts=gateway,worker": "",
		"--dedup-window 3m --lease-ttl 2m10s":      "dedup-window is 3m, but after the death of a relay 3m9s can lie",
	} {
		c, err := load(t, "", environ, strings.Fields(args)...)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Check(Parts); err != nil {
			t.Errorf("%s: %v", args, err)
		}
		if got := c.ShortWindow(Parts); says == "" && got != "" || !strings.Contains(got, says) {
			t.Errorf("%s: got %q, want %q", args, got, says)
		}
	}
	for args, says := range map[string]string{
		"--dedup-window -1s": "dedup-window is -1s",
	} {
		c, err := load(t, "", environ, strings.Fields(args)...)
		if err != nil {
			t.Fatal(err)
		}
		wantProblems(t, c.Check(Parts), says)
	}
}

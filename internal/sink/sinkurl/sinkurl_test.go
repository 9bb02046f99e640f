package sinkurl

import (
	"strings"
	"testing"
)

func TestMask(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"rediss://u:p@h1,h2:7000/0?x=y": "rediss://h1,h2:7000/0", "unix:///run/redis.sock": "unix:///run/redis.sock",
		"lines:/tmp/x#y": "lines:/tmp/x", "memory:": "memory:", "lines:u:p@h": "(no valid URL)", "hunter2": "(no valid URL)",
		"redis://:12/hunter2@h": "(no valid URL)", "redis://:12#hunter2@h": "(no valid URL)",
		"redis://:a@b@hunter2@h": "(no valid URL)", "redis://u:%zzhunter2@h": "redis://h",
	} {
		if got := Mask(url); got != want {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
}

func FuzzMask(f *testing.F) {
	f.Add("12/34", "@")
	f.Add("a@b#", "?x")
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "hunter2secret"
		// Whatever stands around it: what is between the colon and the last @ is a password.
		if strings.Contains(after, "@") || strings.Contains(before, "://") {
			return
		}
		url := "redis://user:" + before + secret + after + "@host:1/0"
		if shown := Mask(url); strings.Contains(shown, secret) {
			t.Errorf("%q is shown as %q", url, shown)
		}
	})
}

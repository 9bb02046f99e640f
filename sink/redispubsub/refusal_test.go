package redispubsub

import (
	"testing"

	"github.com/outboxrelay/outbox"
)

// What Redis 6.2, 7.0 and 7.2 say when a script may not publish.
func TestRefusal(t *testing.T) {
	for text, want := range map[string]outbox.Class{
		"ERR The user executing the script can't publish to the channel mentioned in the command":  outbox.ClassRetryable,
		"NOPERM ACL failure in script: User relay has no permissions to access the 'c' channel":    outbox.ClassRetryable,
		"ERR The user executing the script can't run this command or subcommand":                   outbox.ClassUnavailable,
		"NOPERM ACL failure in script: User relay has no permissions to run the 'publish' command": outbox.ClassUnavailable,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":         outbox.ClassUnavailable,
	} {
		if class, _ := outbox.Classify(refusal("c", text)); class != want {
			t.Errorf("%s: class %v, want %v", text, class, want)
		}
	}
}

package redispubsub

import (
	"fmt"
	"strings"

	"github.com/outboxrelay/outbox"
)

// refusal classes the error of one PUBLISH. Every Redis (6.2, 7.0, 7.2) says "channel" when it is this channel the user
// may not use. Anything else (no right to PUBLISH at all, a stale replica) is not the event's fault.
func refusal(channel, text string) error {
	err := fmt.Errorf("publish to channel %q: %s", channel, text)
	if strings.Contains(text, "channel") {
		return err
	}
	return outbox.Unavailable(err)
}

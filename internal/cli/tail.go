package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/sink"
)

// received is a message as -o json prints it.
type received struct {
	Channel    string    `json:"channel"`
	ReceivedAt time.Time `json:"received_at"`
	Message    any       `json:"message"` // as it is where it is JSON, else a string
}

// errEnough ends a subscription that has got its --count.
var errEnough = errors.New("enough")

func (a *application) tail() *cobra.Command {
	var count int
	cmd := &cobra.Command{
		Use:   "tail CHANNEL…",
		Short: "Print what arrives in a sink",
		Long: `tail subscribes to channels and prints each message: the channel and the message, one line each, or with
-o json an object with channel, received_at and message. A name with * in it is a pattern: 'run:*' is all runs.

It shows what is published from the moment it says "subscribed" on stderr. If the connection breaks it says so
and subscribes again. It ends with Ctrl-C, or after --count messages.

What a sink delivers within one process goes to nobody outside it: look at the streams of that outbox serve
instead, as in curl -N 'http://127.0.0.1:8080/v1/stream?topics=order.placed'.`,
		Example: `  outbox tail order.placed
  outbox tail 'run:*' 'order.*' -o json
  outbox tail order.placed --count 1 -o json | jq .message.data`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name at least one channel, for instance order.placed or 'run:*'")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, channels []string) error {
			if count < 0 {
				return usagef("--count is %d, must be 1 or more, or 0 for no end", count)
			}
			c, err := a.settings(config.Tailing)
			if err != nil {
				return err
			}
			from, err := c.TailSink()
			if err != nil {
				return err
			}
			seen := 0
			err = from.Driver.Tail(cmd.Context(), from.URL, channels, sink.Tail{
				Subscribed: func(channels []string) {
					fmt.Fprintf(a.Err, "subscribed to %s\n", strings.Join(channels, ", "))
				},
				Lost: func(err error) {
					fmt.Fprintf(a.Err, "connection lost, what is published now is missed, subscribing again: %v\n", err)
				},
				Message: func(channel, payload string) error {
					if err := a.printMessage(c.Output, channel, payload); err != nil {
						return err
					}
					if seen++; seen == count {
						return errEnough
					}
					return nil
				},
			})
			if errors.Is(err, errEnough) {
				return nil
			}
			return err
		},
	}
	cmd.Flags().IntVar(&count, "count", 0, "stop after so `many` messages (default: never)")
	return cmd
}

func (a *application) printMessage(form, channel, payload string) error {
	if form != "json" {
		_, err := fmt.Fprintf(a.Out, "%s %s\n", oneLine(channel), oneLine(payload))
		return err
	}
	r := received{Channel: channel, ReceivedAt: time.Now().UTC(), Message: payload}
	if json.Valid([]byte(payload)) {
		r.Message = json.RawMessage(payload)
	}
	return printLine(a.Out, r)
}

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
	"github.com/outboxrelay/outbox/sink"
)

func (a *application) relay() *cobra.Command {
	settings := relayFlags()
	cmd := command("relay", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		return a.daemon(cmd.Context(), needs["relay"], settings, app.Relay)
	})
	cmd.Flags().AddFlagSet(settings)
	return cmd
}

func relayFlags() *pflag.FlagSet {
	settings := config.Mapping()
	settings.AddFlagSet(config.Relay())
	settings.AddFlagSet(config.RetentionFlags())
	return settings
}

func (a *application) serve() *cobra.Command {
	settings := config.ServeFlags()
	settings.AddFlagSet(relayFlags())
	cmd := command("serve", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		return a.daemon(cmd.Context(), config.Parts, settings, app.Serve)
	})
	cmd.Flags().AddFlagSet(settings)
	return cmd
}

// received is a message as outbox tail -o json prints it.
type received struct {
	Channel    string    `json:"channel"`
	ReceivedAt time.Time `json:"received_at"`
	Message    any       `json:"message"` // as it is where it is JSON, else a string
}

// errEnough ends a subscription that has got its --count.
var errEnough = errors.New("enough")

func (a *application) tail() *cobra.Command {
	var count int
	cmd := command("tail", cobra.ArbitraryArgs, func(cmd *cobra.Command, channels []string) error {
		if len(channels) == 0 {
			return usagef("name at least one channel, for instance order.placed or 'run:*'")
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
	})
	countFlag(cmd.Flags(), &count, "count", 0, 0, 0, "number of messages to receive; 0: no limit")
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

func (a *application) route() *cobra.Command {
	return group("route", a.testRoute())
}

// address is where outbox route test says that an event would go.
type address struct {
	Sink        string `json:"sink"`
	Destination string `json:"destination"`
}

func (a *application) testRoute() *cobra.Command {
	var event outbox.Event
	var table string
	settings := every()
	cmd := command("route test", cobra.NoArgs, func(*cobra.Command, []string) error {
		if event.Topic == "" {
			return usagef("--topic is missing: which event?")
		}
		c, err := config.Load(a.kinds, a.environ, a.global, settings)
		if err != nil {
			return err
		}
		targets, err := c.Addresses(table, event)
		if err != nil {
			return fmt.Errorf("the event would become a dead letter: %w", err)
		}
		var found []address
		for _, t := range targets {
			sink, destination, _ := strings.Cut(t, ":")
			found = append(found, address{sink, destination})
		}
		return list[address]{items: found, head: "SINK,DESTINATION",
			cells: func(to address) []any { return []any{to.Sink, to.Destination} }}.print(a, c.Output)
	})
	flags := cmd.Flags()
	flags.StringVar(&table, "table", outbox.OutboxEvents().Table, "`name` of the event's table")
	flags.StringVar(&event.Topic, "topic", "", "`name` of the topic (required)")
	flags.StringVar(&event.TenantID, "tenant", eventrow.DefaultTenant, "`name` of the tenant")
	flags.StringVar(&event.AggregateType, "type", "", "`name` of the aggregate type")
	flags.StringVar(&event.AggregateID, "key", "", "key of the event")
	flags.StringVar(&event.Source, "source", "", "`name` of the source")
	flags.StringArrayVar(&event.Destinations, "to", nil, "`name` of a destination of its own: SINK:NAME or a route")
	flags.AddFlagSet(settings)
	return cmd
}

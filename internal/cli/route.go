package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
)

func (a *application) route() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "route",
		Short: "Try out which sinks an event goes to",
		Long: `route is about the list routes in the file of --config, which says which events go to which sinks. It
opens nothing and connects to nothing.

    outbox route test --topic order.placed --tenant acme`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return usagef("say what to do: test") },
	}
	cmd.AddCommand(a.testRoute())
	return cmd
}

func (a *application) testRoute() *cobra.Command {
	var event outbox.Event
	var table string
	settings := every()
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Print where an event would go",
		Long: `test prints the sinks that an event would go to, and what it would be called there. It ends with 1 if the
event would become a dead letter because no route knows it, and says why.`,
		Example: `  outbox route test --config outbox.yaml --topic order.placed --tenant acme --key 42
  outbox route test --config outbox.yaml --topic order.placed --to orders -o json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
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
			type address struct {
				Sink        string `json:"sink"`
				Destination string `json:"destination"`
			}
			var found []address
			var rows [][]string
			for _, t := range targets {
				sink, destination, _ := strings.Cut(t, ":")
				found = append(found, address{sink, destination})
				rows = append(rows, []string{sink, destination})
			}
			if c.Output == "json" {
				return printJSON(a.Out, page[address]{Items: found})
			}
			return printTable(a.Out, []string{"SINK", "DESTINATION"}, rows)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&table, "of", outbox.OutboxEvents().Table, "`table` that the event would be in")
	flags.StringVar(&event.Topic, "topic", "", "`topic` of the event (required)")
	flags.StringVar(&event.TenantID, "tenant", eventrow.DefaultTenant, "`tenant` of the event")
	flags.StringVar(&event.AggregateType, "type", "", "aggregate `type` of the event")
	flags.StringVar(&event.AggregateID, "key", "", "`key` of the event: its aggregate's id")
	flags.StringVar(&event.Source, "source", "", "`source` of the event")
	flags.StringArrayVar(&event.Destinations, "to", nil,
		"`destination` of the event's own: sink:name, or the name of a route")
	flags.AddFlagSet(settings)
	return cmd
}

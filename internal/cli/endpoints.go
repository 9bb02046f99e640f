package cli

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/sink"
)

// tested is a test that was delivered, as -o json prints it.
type tested struct {
	Endpoint string  `json:"endpoint"`
	Event    string  `json:"event"`
	Seconds  float64 `json:"seconds"`
}

func (a *application) endpoints() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "endpoints",
		Short: "List the destinations that a sink knows by name, and test one",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.endpointsList(), a.endpointsTest())
	return cmd
}

func (a *application) endpointsList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the endpoints of the sink, without their secrets",
		Long: `list shows the endpoints that the only sink, or the one called default, knows by name. SECRETS is how many sign
what is sent. It connects to none of them. That a relay has found an endpoint to be down, or gone, is known to that
relay: see its log.`,
		Example: `  outbox endpoints list --sink webhook:endpoints.yaml
  outbox endpoints list -o json | jq -r '.items[].name'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, of, err := a.withEndpoints()
			if err != nil {
				return err
			}
			all, err := of.Driver.Endpoints(cmd.Context(), of.URL)
			if err != nil {
				return err
			}
			if c.Output == "json" {
				return printPage(a.Out, all, "")
			}
			var rows [][]string
			for _, e := range all {
				rows = append(rows, []string{e.Name, e.URL, e.State, strconv.Itoa(e.Secrets)})
			}
			return printTable(a.Out, []string{"NAME", "URL", "STATE", "SECRETS"}, rows)
		},
	}
}

func (a *application) endpointsTest() *cobra.Command {
	return &cobra.Command{
		Use:   "test NAME",
		Short: "Send one event to an endpoint and say what came of it",
		Long: `test sends one event of topic outbox.test, signed as any other, and prints how long the answer took, or why it was
not delivered. Nothing is written to a database.`,
		Example: `  outbox endpoints test acme --sink webhook:endpoints.yaml`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			c, of, err := a.withEndpoints()
			if err != nil {
				return err
			}
			log, err := a.logger(c)
			if err != nil {
				return err
			}
			s, err := of.Driver.Open(cmd.Context(), of.URL, sink.Options{Logger: log})
			if err != nil {
				return err
			}
			defer func() { _ = s.Close() }() // it holds nothing
			id, err := outbox.NewID()
			if err != nil {
				return err
			}
			return a.testEndpoint(cmd, s, c.Output, outbox.Delivery{Destination: args[0], Record: &outbox.Record{
				Event: outbox.Event{ID: id, Topic: "outbox.test", Source: "outbox", OccurredAt: time.Now(),
					Payload: json.RawMessage(`{"test":true}`)},
			}})
		},
	}
}

func (a *application) testEndpoint(cmd *cobra.Command, s sink.Sink, form string, d outbox.Delivery) error {
	began := time.Now()
	result := s.Publish(cmd.Context(), []outbox.Delivery{d})[0]
	if result.Err != nil {
		return result.Err
	}
	took := time.Since(began)
	if form == "json" {
		return printJSON(a.Out, tested{d.Destination, d.ID.String(), took.Seconds()})
	}
	_, err := fmt.Fprintf(a.Out, "%s took event %s in %s\n", oneLine(d.Destination), d.ID, took.Round(time.Millisecond))
	return err
}

// withEndpoints returns the sink whose endpoints a command is about.
func (a *application) withEndpoints() (config.Config, config.Sink, error) {
	c, err := a.settings(config.Publishing)
	if err != nil {
		return c, config.Sink{}, err
	}
	of, err := c.TailSink()
	if err != nil {
		return c, of, err
	}
	if of.Driver.Endpoints == nil {
		return c, of, usagef("%v has no endpoints: any name may be a destination there. Give --sink URL of one that has", of)
	}
	return c, of, nil
}

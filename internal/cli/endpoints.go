package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/endpoint"
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
		Short: "List and change the destinations that a sink knows by name, and test one",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.endpointsList(), a.endpointsTest(), a.endpointsAdd(), a.endpointsRotate(), a.endpointsDisable(),
		a.endpointsEnable(), a.endpointsRemove())
	return cmd
}

func (a *application) endpointsList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the endpoints of the sink, without their secrets",
		Long: `list shows the endpoints that the only sink, or the one called default, knows by name. SUBSCRIBES TO
is what one takes of the events whose destination is *, by topic and type of aggregate. SECRETS is how many sign what is
sent; REASON is why one is disabled. It connects to none of them. That a relay has found an endpoint to be down is known
to that relay: see its log.`,
		Example: `  outbox endpoints list --sink webhook:endpoints.yaml
  outbox endpoints list -o json | jq -r '.items[].name'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withEndpoints(cmd.Context(), func(s endpointSink) error {
				known, err := s.known(cmd.Context())
				if err != nil {
					return err
				}
				all, err := known.List(cmd.Context())
				if err != nil {
					return err
				}
				if s.Output == "json" {
					return printPage(a.Out, all, "")
				}
				var rows [][]string
				for _, e := range all {
					rows = append(rows, []string{e.Name, e.Tenant, subscription(e), e.URL, e.State, e.Reason, strconv.Itoa(e.Secrets)})
				}
				return printTable(a.Out,
					[]string{"NAME", "TENANT", "SUBSCRIBES TO", "URL", "STATE", "REASON", "SECRETS"}, rows)
			})
		},
	}
}

// subscription is to which events for * an endpoint has subscribed.
func subscription(e endpoint.Shown) string {
	text := strings.Join(e.Topics, ",")
	if len(e.Types) > 0 {
		text = strings.TrimSpace(text + " of " + strings.Join(e.Types, ","))
	}
	return text
}

func (a *application) endpointsTest() *cobra.Command {
	return &cobra.Command{
		Use:   "test NAME",
		Short: "Send one event to an endpoint and say what came of it",
		Long: `test sends one event of topic outbox.test, signed as any other, and prints how long the answer took, or why it was
not delivered. No event is written to a database. An endpoint that answers 410 Gone is disabled, as by a relay.`,
		Example: `  outbox endpoints test acme --sink webhook:endpoints.yaml`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withEndpoints(cmd.Context(), func(s endpointSink) error {
				opened, err := s.of.Driver.Open(cmd.Context(), s.of.URL, s.options)
				if err != nil {
					return err
				}
				defer func() { _ = opened.Close() }() // it holds nothing
				known, err := s.known(cmd.Context())
				if err != nil {
					return err
				}
				all, err := known.List(cmd.Context())
				if err != nil {
					return err
				}
				id, err := outbox.NewID()
				if err != nil {
					return err
				}
				e := outbox.Event{ID: id, Topic: "outbox.test", Source: "outbox", OccurredAt: time.Now(),
					Payload: json.RawMessage(`{"test":true}`)}
				for _, one := range all {
					if one.Name == args[0] {
						e.TenantID = one.Tenant
					}
				}
				return a.testEndpoint(cmd, opened, s.Output,
					outbox.Delivery{Destination: args[0], Record: &outbox.Record{Event: e}})
			})
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

// endpointSink is the sink whose endpoints a command is about.
type endpointSink struct {
	config.Config
	of      config.Sink
	options sink.Options
}

func (s *endpointSink) known(ctx context.Context) (endpoint.Lister, error) {
	return s.of.Driver.Endpoints(ctx, s.of.URL, s.options)
}

// withEndpoints calls fn with the sink. The database is opened if the sink asks for it.
func (a *application) withEndpoints(ctx context.Context, fn func(endpointSink) error) error {
	c, err := a.settings(config.Publishing)
	if err != nil {
		return err
	}
	s := endpointSink{Config: c}
	if s.of, err = c.TailSink(); err != nil {
		return err
	}
	if s.of.Driver.Endpoints == nil {
		return usagef("%v has no endpoints: any name may be a destination there. Give --sink URL of one that has", s.of)
	}
	log, err := a.logger(c)
	if err != nil {
		return err
	}
	var db app.Database
	defer func() {
		if db != nil {
			db.Close()
		}
	}()
	s.options = sink.Options{Logger: log, Endpoints: func(ctx context.Context) (_ endpoint.Table, err error) {
		if c.Database == "" {
			return nil, outbox.Permanent(errors.New("the endpoints are in a table: of which database? Give --database"))
		}
		if db == nil {
			if db, err = app.OpenDatabase(ctx, c.Database); err != nil {
				return nil, err
			}
		}
		return db.Endpoints(ctx)
	}}
	return fn(s)
}

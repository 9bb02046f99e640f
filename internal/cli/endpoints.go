package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/endpoint"
	"github.com/outboxrelay/outbox/internal/store/cold"
)

func (a *application) endpoints() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "endpoints",
		Short: "List and change the destinations that a sink knows by name, and test one",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.endpointsList(), a.endpointsTest(), a.endpointsAdd(), a.endpointsRotate(),
		a.endpointsChange("disable", "disabled", "Let the events of an endpoint fail",
			`disable makes the events of an endpoint dead letters, with the reason. outbox endpoints enable ends it. To let
them wait instead, use outbox pause --destination NAME.`),
		a.endpointsChange("enable", "enabled", "Use an endpoint again",
			`enable makes an endpoint usable again that was disabled, by an operator or by its answer 410 Gone. Relays notice
within seconds. What failed meanwhile is put back by outbox dlq replay.`),
		a.endpointsChange("remove", "removed", "Remove an endpoint",
			`remove takes an endpoint out of the table. Its secrets are gone, and events for it become dead letters that can be
replayed once there is an endpoint of that name again.`))
	return cmd
}

// known are the endpoints of the sink that a command is about.
type known struct {
	*endpoint.Endpoints
	by   endpoint.Change // who changes them
	form string          // of the output
}

// onEndpoints completes a command: it does fn with the endpoints of the sink, and with the name
// that it is given. The database is opened if they are in its table, where they must be if the
// command edits them.
func (a *application) onEndpoints(
	cmd *cobra.Command, edits bool, fn func(ctx context.Context, k known, name string) error,
) *cobra.Command {
	var f operatorFlags
	if edits {
		f.addTo(cmd.Flags(), "")
	}
	cmd.Flags().SortFlags = false
	cmd.Args = cobra.ExactArgs(strings.Count(cmd.Use, "NAME"))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.settings(config.Publishing)
		if err != nil {
			return err
		}
		of, err := c.TailSink()
		if err != nil {
			return err
		}
		if !endpoint.Has(of.URL) {
			return usagef("%v has no endpoints: any name may be a destination there. "+
				"Give --sink URL of one that has", of)
		}
		var db app.Database
		defer func() {
			if db != nil {
				db.Close()
			}
		}()
		open := func(ctx context.Context) (_ cold.Database, err error) {
			if c.Database == "" {
				return nil, outbox.Permanent(errors.New(
					"the endpoints are in a table: of which database? Give --database"))
			}
			if db, err = app.OpenDatabase(ctx, c.Database); err != nil {
				return nil, err
			}
			return db.Cold(), nil
		}
		e, err := endpoint.Open(cmd.Context(), of.URL, slog.New(slog.DiscardHandler), open)
		if err != nil {
			return err
		}
		defer func() { _ = e.Sink.Close() }() // it holds nothing
		if edits && !e.Editable() {
			return usagef("the endpoints of %v are in a file: edit it, relays read it again", of)
		}
		by := endpoint.Change{Action: "endpoint-" + cmd.Name(), Actor: f.operator().Actor,
			Reason: strings.TrimSpace(f.Reason)}
		return fn(cmd.Context(), known{e, by, c.Output}, strings.Join(args, ""))
	}
	return cmd
}

func (a *application) endpointsList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the endpoints of the sink, without their secrets",
		Long: `list shows the endpoints that the only sink, or the one called default, knows by name. SUBSCRIBES TO is what one
takes of the events whose destination is *, by topic and type of aggregate. SECRETS is how many sign what is sent. It
connects to none of them: that a relay has found one to be down is in the relay's log.`,
		Example: `  outbox endpoints list --sink webhook:endpoints.yaml
  outbox endpoints list -o json | jq -r '.items[].name'`,
	}
	return a.onEndpoints(cmd, false, func(ctx context.Context, k known, _ string) error {
		all, err := k.List(ctx)
		if err != nil {
			return err
		}
		if k.form == "json" {
			return printPage(a.Out, all, "")
		}
		var rows [][]string
		for _, e := range all {
			takes := strings.Join(e.Topics, ",")
			if len(e.Types) > 0 {
				takes = strings.TrimSpace(takes + " of " + strings.Join(e.Types, ","))
			}
			rows = append(rows, []string{e.Name, e.Tenant, takes, e.URL, e.State, e.Reason, strconv.Itoa(e.Secrets)})
		}
		return printTable(a.Out, []string{"NAME", "TENANT", "SUBSCRIBES TO", "URL", "STATE", "REASON", "SECRETS"}, rows)
	})
}

func (a *application) endpointsTest() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test NAME",
		Short: "Send one event to an endpoint and say what came of it",
		Long: `test sends one event of topic outbox.test, signed as any other, and prints how long the answer took, or why it was
not delivered. No event is written to a database. An endpoint that answers 410 Gone is disabled, as by a relay.`,
		Example: `  outbox endpoints test acme --sink webhook:endpoints.yaml`,
	}
	return a.onEndpoints(cmd, false, func(ctx context.Context, k known, name string) error {
		all, err := k.List(ctx)
		if err != nil {
			return err
		}
		id, err := outbox.NewID()
		if err != nil {
			return err
		}
		began := time.Now()
		e := outbox.Event{ID: id, Topic: "outbox.test", Source: "outbox", OccurredAt: began,
			Payload: []byte(`{"test":true}`)}
		for _, one := range all {
			if one.Name == name {
				e.TenantID = one.Tenant
			}
		}
		d := outbox.Delivery{Destination: name, Record: &outbox.Record{Event: e}}
		if err := k.Sink.Publish(ctx, []outbox.Delivery{d})[0].Err; err != nil {
			return err
		}
		took := time.Since(began)
		return a.printEndpoint(k, endpointDone{Endpoint: name, Event: id.String(), Seconds: took.Seconds()},
			fmt.Sprintf("%s took event %s in %s", oneLine(name), id, took.Round(time.Millisecond)))
	})
}

// endpointDone is what was done to an endpoint, as -o json prints it.
type endpointDone struct {
	Endpoint string  `json:"endpoint"`
	Event    string  `json:"event,omitempty"` // of a test that was delivered
	Seconds  float64 `json:"seconds,omitempty"`
	Secret   string  `json:"secret,omitempty"` // that was made: the only time that it is shown
	State    string  `json:"state,omitempty"`  // disabled, enabled or removed
	Changed  *bool   `json:"changed,omitempty"`
}

// printEndpoint prints what was done, as fields or in words.
func (a *application) printEndpoint(k known, done endpointDone, words string) error {
	if k.form == "json" {
		return printJSON(a.Out, done)
	}
	if done.Secret != "" {
		words += "; its secret, which is not shown again, is for the receiver:\n" + done.Secret
	}
	_, err := fmt.Fprintln(a.Out, words)
	return err
}

// endpointsChange is one of disable, enable and remove.
func (a *application) endpointsChange(name, state, short, long string) *cobra.Command {
	cmd := &cobra.Command{Use: name + " NAME", Short: short, Long: long,
		Example: "  outbox endpoints " + name + " acme --reason 'INC-4711' --sink webhook:table"}
	return a.onEndpoints(cmd, true, func(ctx context.Context, k known, of string) (err error) {
		changed, words := true, "%s is %s"
		if name == "remove" {
			words = "%[2]s %[1]s"
			err = k.Remove(ctx, of, k.by)
		} else if changed, err = k.Switch(ctx, of, name == "enable", k.by); !changed {
			words += " already"
		}
		if err != nil {
			return err
		}
		return a.printEndpoint(k, endpointDone{Endpoint: of, State: state, Changed: &changed},
			fmt.Sprintf(words, oneLine(of), state))
	})
}

// value returns a secret or the value of a header, which it reads now, on this machine. seen says
// that it stands in the command line itself, used that standard input was read for one.
func (a *application) value(
	ctx context.Context, text string, used *bool,
) (value endpoint.Secret, seen bool, err error) {
	if text != "-" {
		value, err = endpoint.ReadSecret(text)
		return value, string(value) == text, err
	}
	if *used {
		return "", false, usagef("- is there twice: standard input has one value")
	}
	*used = true
	read, err := readAll(ctx, a.In, 64<<10)
	return endpoint.Secret(strings.TrimRight(string(read), "\r\n")), false, err
}

var errSeen = usagef("--secret is none of env:NAME, file:PATH and -: in a command line others would see a secret")

func (a *application) endpointsAdd() *cobra.Command {
	var e endpoint.Endpoint
	var secrets, headers []string
	cmd := &cobra.Command{
		Use:   "add NAME --url URL",
		Short: "Add an endpoint",
		Long: `add adds an endpoint to the table of the database. Without --secret it makes a secret, prints it once, and keeps it
encrypted: OUTBOX_ENDPOINT_KEY holds the key, here and for the relays. With --topic or --type it gets what fits of the
events whose destination is *, from now on.

What --secret and --header name by env:NAME or file:PATH is read now, on this machine; - reads standard input. A value
that stands in the command line itself is seen by others in ps and in the shell's history.`,
		Example: `  outbox endpoints add acme --url https://hooks.acme.example/outbox --sink webhook:table
  outbox endpoints add shipping --url https://shipping.example --topic 'order.*' --sink webhook:table
  outbox endpoints add billing --url https://billing.example:8443/events --secret env:BILLING_SECRET --timeout 30s \
    --header Authorization=file:/run/secrets/billing --sink webhook:table
  pass show billing | outbox endpoints add billing --url https://billing.example --header Authorization=-`,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			e.Headers = map[string]endpoint.Secret{}
			used := false
			for _, text := range secrets {
				value, seen, err := a.value(cmd.Context(), text, &used)
				if seen {
					err = errSeen
				}
				if err != nil {
					return err
				}
				e.Secrets = append(e.Secrets, value)
			}
			for _, text := range headers {
				name, text, ok := strings.Cut(text, "=")
				if !ok {
					return usagef("--header is not of the form NAME=VALUE")
				}
				value, seen, err := a.value(cmd.Context(), text, &used)
				if err != nil {
					return err
				}
				if e.Headers[name] = value; seen {
					fmt.Fprintf(a.Err, "Warning: others see the value of header %s in ps and in the shell's history. "+
						"Give it as env:NAME, file:PATH, or - for standard input\n", oneLine(name))
				}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&e.URL, "url", "", "`URL` that is posted to (required)")
	flags.StringVar(&e.Tenant, "tenant", "", "`tenant` whose events alone it takes (default: all)")
	flags.StringSliceVar(&e.Topics, "topic", nil,
		"`topics` that it subscribes to, names or patterns such as order.*: it gets these of the events for *")
	flags.StringSliceVar(&e.Types, "type", nil, "`types` of aggregates that it subscribes to, likewise")
	flags.StringArrayVar(&secrets, "secret", nil,
		"where a secret is: `env:NAME`, file:PATH, or - for standard input (default: one is made)")
	flags.StringArrayVar(&headers, "header", nil,
		"further header of each request: `NAME=VALUE`, where env:NAME, file:PATH or - may be the value")
	flags.DurationVar(&e.Timeout, "timeout", 0, "for one request (default 15s)")
	flags.IntVar(&e.Concurrency, "concurrency", 0, "requests at the same time (default 64)")
	flags.Float64Var(&e.Rate, "rate", 0, "requests a second (default: no limit)")
	_ = cmd.MarkFlagRequired("url") // it is there
	return a.onEndpoints(cmd, true, func(ctx context.Context, k known, name string) error {
		e.Name = name
		made, err := k.Add(ctx, e, k.by)
		if err != nil {
			return err
		}
		return a.printEndpoint(k, endpointDone{Endpoint: name, Secret: string(made)}, "added "+oneLine(name))
	})
}

func (a *application) endpointsRotate() *cobra.Command {
	var secret string
	var given endpoint.Secret
	var overlap time.Duration
	cmd := &cobra.Command{
		Use:   "rotate NAME",
		Short: "Give an endpoint a new secret",
		Long: `rotate makes a new secret and prints it once, or takes the one that --secret refers to, which is read now, on this
machine. The former secret goes on signing for --overlap, so that the receiver accepts what is sent before and after it
changes over.`,
		Example: `  outbox endpoints rotate acme --sink webhook:table
  outbox endpoints rotate acme --overlap 0s --reason 'the secret has leaked'`,
		PreRunE: func(cmd *cobra.Command, _ []string) (err error) {
			if overlap < 0 {
				return usagef("--overlap is %s, must not be negative", overlap)
			}
			if !cmd.Flags().Changed("secret") {
				return nil
			}
			seen, used := false, false
			if given, seen, err = a.value(cmd.Context(), secret, &used); err != nil {
				return err
			}
			switch {
			case secret == "":
				return usagef("--secret is empty: give it a value, or leave it out")
			case seen:
				return errSeen
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&secret, "secret", "",
		"where the new one is: `env:NAME`, file:PATH, or - for standard input (default: one is made)")
	cmd.Flags().DurationVar(&overlap, "overlap", 24*time.Hour, "how long the former one signs too")
	return a.onEndpoints(cmd, true, func(ctx context.Context, k known, name string) error {
		made, err := k.Rotate(ctx, name, given, overlap, k.by)
		if err != nil {
			return err
		}
		signs := "too for " + overlap.String()
		if overlap == 0 {
			signs = "no more"
		}
		return a.printEndpoint(k, endpointDone{Endpoint: name, Secret: string(made)},
			fmt.Sprintf("rotated %s, the former secret signs %s", oneLine(name), signs))
	})
}

package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/store/endpoint"
)

// secretMade is a secret that was made, as -o json prints it: the only time that it is shown.
type secretMade struct {
	Endpoint string `json:"endpoint"`
	Secret   string `json:"secret,omitempty"`
}

// endpointChanged is what disable, enable and remove print with -o json.
type endpointChanged struct {
	Endpoint string `json:"endpoint"`
	State    string `json:"state"`   // disabled, enabled or removed
	Changed  bool   `json:"changed"` // false: it was in that state before
}

// edit calls fn with the endpoints of the sink if they can be changed, and what the record is to say.
func (a *application) edit(
	cmd *cobra.Command, f *operatorFlags, fn func(e endpoint.Editor, by endpoint.Change, form string) error,
) error {
	by := f.operator()
	change := endpoint.Change{Action: "endpoint-" + cmd.Name(), Actor: by.Actor, Reason: strings.TrimSpace(by.Reason)}
	return a.withEndpoints(cmd.Context(), func(s endpointSink) error {
		known, err := s.known(cmd.Context())
		if err != nil {
			return err
		}
		e, ok := known.(endpoint.Editor)
		if !ok {
			return usagef("the endpoints of %v are in a file: edit it, relays read it again", s.of)
		}
		return fn(e, change, s.Output)
	})
}

// printSecret prints what was done, and a secret that was made for it.
func (a *application) printSecret(form, done, name, secret string) error {
	if form == "json" {
		return printJSON(a.Out, secretMade{name, secret})
	}
	if secret != "" {
		done += "; its secret, which is not shown again, is for the receiver:\n" + secret
	}
	_, err := fmt.Fprintln(a.Out, done)
	return err
}

var errSeen = usagef("--secret is none of env:NAME, file:PATH and -: in a command line others would see a secret")

// valuesOnce returns what reads a secret or the value of a header that - stands for, once. seen says that the value
// stands in the command line itself.
func (a *application) valuesOnce(ctx context.Context) func(text string) (value string, seen bool, err error) {
	used := false
	return func(text string) (string, bool, error) {
		if text != "-" {
			return text, !strings.HasPrefix(text, "env:") && !strings.HasPrefix(text, "file:"), nil
		}
		if used {
			return "", false, usagef("- is there twice: standard input has one value")
		}
		used = true
		read, err := readAll(ctx, a.In, 64<<10)
		return strings.TrimRight(string(read), "\r\n"), false, err
	}
}

func (a *application) endpointsAdd() *cobra.Command {
	var f operatorFlags
	var e endpoint.Stored
	var secrets, headers []string
	cmd := &cobra.Command{
		Use:   "add NAME --url URL",
		Short: "Add an endpoint",
		Long: `add adds an endpoint to the table of the database. Without --secret it makes a secret, prints it once, and keeps it
encrypted: OUTBOX_ENDPOINT_KEY holds the key, here and for the relays. Relays know the endpoint within seconds.

With --topic or --type it gets what fits of the events whose destination is *, from now on. Others it gets by its name.

What --secret and --header name by env:NAME or file:PATH is read now, on this machine, and kept encrypted; relays read
no variable and no file for a row. - reads it from standard input. A value that stands in the command line itself is
seen by others in ps and in the shell's history.`,
		Example: `  outbox endpoints add acme --url https://hooks.acme.example/outbox --sink webhook:table
  outbox endpoints add shipping --url https://shipping.example --topic 'order.*' --sink webhook:table
  outbox endpoints add billing --url https://billing.example:8443/events --secret env:BILLING_SECRET --timeout 30s \
    --header Authorization=file:/run/secrets/billing --sink webhook:table
  pass show billing | outbox endpoints add billing --url https://billing.example --header Authorization=-`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			e.Name, e.Headers, e.Secrets = args[0], map[string]string{}, nil
			read := a.valuesOnce(cmd.Context())
			for _, text := range secrets {
				value, seen, err := read(text)
				if err != nil {
					return err
				}
				if seen {
					return errSeen
				}
				e.Secrets = append(e.Secrets, endpoint.Secret{Value: value})
			}
			for _, text := range headers {
				name, value, ok := strings.Cut(text, "=")
				if !ok {
					return usagef("--header is not of the form NAME=VALUE")
				}
				value, seen, err := read(value)
				if err != nil {
					return err
				}
				if seen {
					fmt.Fprintf(a.Err, "Warning: others see the value of header %s in ps and in the shell's history. Give it as "+
						"env:NAME, file:PATH, or - for standard input\n", oneLine(name))
				}
				e.Headers[name] = value
			}
			return a.edit(cmd, &f, func(known endpoint.Editor, by endpoint.Change, form string) error {
				secret, err := known.Add(cmd.Context(), e, by)
				if err != nil {
					return err
				}
				return a.printSecret(form, "added "+oneLine(e.Name), e.Name, secret)
			})
		},
	}
	cmd.Flags().StringVar(&e.URL, "url", "", "`URL` that is posted to (required)")
	cmd.Flags().StringVar(&e.Tenant, "tenant", "", "`tenant` whose events alone it takes (default: all)")
	cmd.Flags().StringSliceVar(&e.Topics, "topic", nil,
		"`topics` that it subscribes to, names or patterns such as order.*: it gets these of the events for *")
	cmd.Flags().StringSliceVar(&e.Types, "type", nil, "`types` of aggregates that it subscribes to, likewise")
	cmd.Flags().StringArrayVar(&secrets, "secret", nil,
		"where a secret is: `env:NAME`, file:PATH, or - for standard input (default: one is made)")
	cmd.Flags().StringArrayVar(&headers, "header", nil,
		"further header of each request: `NAME=VALUE`, where env:NAME, file:PATH or - may be the value")
	cmd.Flags().DurationVar(&e.Timeout, "timeout", 0, "for one request (default 15s)")
	cmd.Flags().IntVar(&e.Concurrency, "concurrency", 0, "requests at the same time (default 64)")
	cmd.Flags().Float64Var(&e.Rate, "rate", 0, "requests a second (default: no limit)")
	f.addTo(cmd.Flags(), "")
	cmd.Flags().SortFlags = false
	_ = cmd.MarkFlagRequired("url") // it is there
	return cmd
}

func (a *application) endpointsRotate() *cobra.Command {
	var f operatorFlags
	var secret string
	var overlap time.Duration
	cmd := &cobra.Command{
		Use:   "rotate NAME",
		Short: "Give an endpoint a new secret",
		Long: `rotate makes a new secret and prints it once, or takes the one that --secret refers to, which is read now, on this
machine. The former secret goes on signing for --overlap, so that the receiver accepts what is sent before and after it
changes over.`,
		Example: `  outbox endpoints rotate acme --sink webhook:table
  outbox endpoints rotate acme --overlap 0s --reason 'the secret has leaked'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f := cmd.Flags().Lookup("secret"); f.Changed && f.Value.String() == "" {
				return usagef("--secret is empty: give it a value, or leave it out")
			}
			if overlap < 0 {
				return usagef("--overlap is %s, must not be negative", overlap)
			}
			secret, seen, err := a.valuesOnce(cmd.Context())(secret)
			if err != nil {
				return err
			}
			if seen && secret != "" {
				return errSeen
			}
			return a.edit(cmd, &f, func(known endpoint.Editor, by endpoint.Change, form string) error {
				made, err := known.Rotate(cmd.Context(), args[0], secret, overlap, by)
				if err != nil {
					return err
				}
				done := fmt.Sprintf("rotated %s, the former secret signs too for %s", oneLine(args[0]), overlap)
				if overlap == 0 {
					done = fmt.Sprintf("rotated %s, the former secret signs no more", oneLine(args[0]))
				}
				return a.printSecret(form, done, args[0], made)
			})
		},
	}
	cmd.Flags().StringVar(&secret, "secret", "",
		"where the new one is: `env:NAME`, file:PATH, or - for standard input (default: one is made)")
	cmd.Flags().DurationVar(&overlap, "overlap", 24*time.Hour, "how long the former one signs too")
	f.addTo(cmd.Flags(), "")
	cmd.Flags().SortFlags = false
	return cmd
}

func (a *application) endpointsDisable() *cobra.Command {
	return a.endpointsSwitch("disable", "Let the events of an endpoint fail", `disable makes the events of an endpoint dead letters, with the reason. outbox endpoints enable ends it. To let
them wait instead, use outbox pause --destination NAME.`, endpoint.Editor.Disable)
}

func (a *application) endpointsEnable() *cobra.Command {
	return a.endpointsSwitch("enable", "Use an endpoint again", `enable makes an endpoint usable again that was disabled, by an operator or by its answer 410 Gone. Relays notice
within seconds. What failed meanwhile is put back by outbox dlq replay.`, endpoint.Editor.Enable)
}

func (a *application) endpointsSwitch(
	name, short, long string, change func(endpoint.Editor, context.Context, string, endpoint.Change) (bool, error),
) *cobra.Command {
	var f operatorFlags
	cmd := &cobra.Command{
		Use: name + " NAME", Short: short, Long: long,
		Example: "  outbox endpoints " + name + " acme --reason 'INC-4711' --sink webhook:table",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.edit(cmd, &f, func(known endpoint.Editor, by endpoint.Change, form string) error {
				changed, err := change(known, cmd.Context(), args[0], by)
				if err != nil {
					return err
				}
				if form == "json" {
					return printJSON(a.Out, endpointChanged{args[0], name + "d", changed})
				}
				text := "%s is %sd\n"
				if !changed {
					text = "%s is %sd already\n"
				}
				_, err = fmt.Fprintf(a.Out, text, oneLine(args[0]), name)
				return err
			})
		},
	}
	f.addTo(cmd.Flags(), "")
	return cmd
}

func (a *application) endpointsRemove() *cobra.Command {
	var f operatorFlags
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove an endpoint",
		Long: `remove takes an endpoint out of the table. Its secrets are gone, and events for it become dead letters that can be
replayed once there is an endpoint of that name again.`,
		Example: `  outbox endpoints remove acme --reason 'the contract has ended' --sink webhook:table`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.edit(cmd, &f, func(known endpoint.Editor, by endpoint.Change, form string) error {
				if err := known.Remove(cmd.Context(), args[0], by); err != nil {
					return err
				}
				if form == "json" {
					return printJSON(a.Out, endpointChanged{args[0], "removed", true})
				}
				_, err := fmt.Fprintf(a.Out, "removed %s\n", oneLine(args[0]))
				return err
			})
		},
	}
	f.addTo(cmd.Flags(), "")
	return cmd
}

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/server/subscription"
)

func (a *application) subscriptions() *cobra.Command {
	return group("subscriptions", a.subscriptionsAdd(), a.subscriptionsList(), a.subscriptionsShow(),
		a.subscriptionsPause("pause"), a.subscriptionsPause("resume"), a.subscriptionsRemove(), a.subscriptionsReplay())
}

// subscribed is what the commands print that change a subscription.
type subscribed struct {
	Name    string `json:"name"`
	Changed bool   `json:"changed"` // false: it was there, as it was to be
}

// onSubscriptions opens the subscriptions of the database.
func (a *application) onSubscriptions(
	ctx context.Context, fn func(config.Config, subscription.Store) error,
) error {
	return a.onDatabase(ctx, func(c config.Config, db app.Database) error {
		s, err := db.Subscriptions(ctx)
		if err != nil {
			return err
		}
		return fn(c, s)
	})
}

func (a *application) subscriptionsAdd() *cobra.Command {
	var n subscription.Settings
	var from, lease string
	cmd := command("subscriptions add", cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		parsed, err := subscription.Parse(from, lease)
		if err != nil {
			return usagef("%v", err)
		}
		n.Name, n.From, n.Earliest, n.Lease = args[0], parsed.From, parsed.Earliest, parsed.Lease
		return a.onSubscriptions(cmd.Context(), func(c config.Config, s subscription.Store) error {
			created, err := s.Subscribe(cmd.Context(), n)
			if err != nil {
				return err
			}
			did := "%s is there, with these settings"
			if created {
				did = "made subscription %s"
				if n.Tenant == "" {
					did += " of all tenants, to be asked by SQL; for HTTP, make one with --tenant"
				}
			}
			return a.printResult(c.Output, subscribed{n.Name, created}, did, n.Name)
		})
	})
	flags := cmd.Flags()
	flags.StringSliceVar(&n.Types, "topic", nil, "`names` of the topics (default: all)")
	flags.StringVar(&n.Tenant, "tenant", "",
		"`name` of the tenant of the events, required for use over HTTP (default: all)")
	flags.StringVar(&from, "from", "latest", "start `time`: earliest, latest, or RFC 3339")
	flags.StringVar(&lease, "lease", "30s", "`duration` until an unacknowledged event is sent again")
	flags.IntVar(&n.MaxAttempts, "attempts", subscription.DefaultAttempts, "attempts until an event is a dead letter")
	return cmd
}

func (a *application) subscriptionsList() *cobra.Command {
	return command("subscriptions list", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		return a.onSubscriptions(cmd.Context(), func(c config.Config, s subscription.Store) error {
			all, err := s.List(cmd.Context(), "")
			if err != nil {
				return err
			}
			return list[subscription.State]{all, "", "there are no subscriptions",
				"NAME,TENANT,POSITION,BEHIND,OUTSTANDING,OLDEST,LETTERS",
				func(s subscription.State) []any {
					tenant, oldest, letters := s.Tenant, any("-"), any("?")
					if tenant == "" {
						tenant = "(all)"
					}
					if s.Oldest != nil {
						oldest = *s.Oldest
					}
					if s.Letters != nil {
						letters = *s.Letters
					}
					return []any{s.Name, tenant, s.Position, s.Behind, s.Outstanding, oldest, letters}
				}}.print(a, c.Output)
		})
	})
}

// findSubscription returns the subscription of a name.
func findSubscription(ctx context.Context, s subscription.Store, name string) (subscription.State, error) {
	all, err := s.List(ctx, "")
	if err != nil {
		return subscription.State{}, err
	}
	i := slices.IndexFunc(all, func(s subscription.State) bool { return s.Name == name })
	if i < 0 {
		return subscription.State{}, fmt.Errorf("find subscription %s: %w", oneLine(name), subscription.ErrUnknown)
	}
	return all[i], nil
}

func (a *application) subscriptionsShow() *cobra.Command {
	return command("subscriptions show", cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		return a.onSubscriptions(cmd.Context(), func(c config.Config, s subscription.Store) error {
			of, err := findSubscription(cmd.Context(), s, args[0])
			if err != nil {
				return err
			}
			if c.Output == "json" {
				return printJSON(a.Out, of)
			}
			return a.printDetails(detail{"subscription", of.Name}, detail{"tenant", cmp.Or(of.Tenant, "(all)")},
				detail{"topics", cmp.Or(strings.Join(of.Types, ", "), "(all)")}, detail{"lease", of.Lease},
				detail{"attempts", of.MaxAttempts}, detail{"position", of.Position}, detail{"behind", of.Behind},
				detail{"outstanding", of.Outstanding}, detail{"oldest", of.Oldest}, detail{"dead letters", of.Letters},
				detail{"consumer", "last asked for events " + ago(of.SeenAt)}, detail{"paused since", of.PausedAt})
		})
	})
}

// subscriptionsPause is outbox subscriptions pause, or resume.
func (a *application) subscriptionsPause(action string) *cobra.Command {
	var by operatorFlags
	required := map[string]string{"pause": " (required)"}[action]
	cmd := command("subscriptions "+action, cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		if required != "" && by.unreasoned() {
			return usagef("--reason is required: say why the events wait")
		}
		return a.onSubscriptions(cmd.Context(), func(c config.Config, s subscription.Store) error {
			who := by.operator()
			changed, err := s.Pause(cmd.Context(), "", args[0], action == "pause",
				subscription.Operator{Actor: who.Actor, Reason: strings.TrimSpace(who.Reason)})
			if err != nil {
				return err
			}
			did := map[bool]string{true: action + "d subscription %s", false: "subscription %s was " + action +
				"d already"}
			return a.printResult(c.Output, subscribed{args[0], changed}, did[changed], args[0])
		})
	})
	by.addTo(cmd.Flags(), required)
	return cmd
}

func (a *application) subscriptionsRemove() *cobra.Command {
	var ask consent
	cmd := command("subscriptions remove", cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		return a.onSubscriptions(cmd.Context(), func(c config.Config, s subscription.Store) error {
			of, err := findSubscription(cmd.Context(), s, args[0])
			if err != nil {
				return err
			}
			says := fmt.Sprintf("subscription %s will be removed, with its position and %s that are not acknowledged; "+
				"it has not received %s of the log", of.Name, counted(of.Outstanding, "event"),
				counted(of.Behind, "row"))
			sure, err := ask.confirm(cmd.Context(), a, c.Output, of, says)
			if err != nil || !sure {
				return err
			}
			if err := s.Remove(cmd.Context(), "", args[0]); err != nil {
				return err
			}
			return a.printResult(c.Output, subscribed{args[0], true}, "removed subscription %s", args[0])
		})
	})
	ask.destroy(a, cmd)
	return cmd
}

func (a *application) subscriptionsReplay() *cobra.Command {
	var from string
	cmd := command("subscriptions replay", cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		to, err := time.Parse(time.RFC3339, from)
		if err != nil {
			return usagef("--from is %q, want a time such as 2026-11-25T08:00:00Z", from)
		}
		return a.onSubscriptions(cmd.Context(), func(c config.Config, s subscription.Store) error {
			if err := s.Rewind(cmd.Context(), "", args[0], to); err != nil {
				return err
			}
			return a.printResult(c.Output, subscribed{args[0], true},
				"subscription %s gets again what was written since then", args[0])
		})
	})
	cmd.Flags().StringVar(&from, "from", "", "start `time` of the events, in RFC 3339 (required)")
	return cmd
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/token"
)

func (a *application) token() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke tokens of the HTTP API",
		Long: `token works on the bearer tokens that the HTTP API takes. A token speaks for one tenant and allows some of:

    read      look at runs, events and streams
    write     create runs, append events, start, complete, fail
    operate   cancel runs

None includes another. What is stored is the SHA-256 of a token's secret, so nobody can find it out again, and a
stolen copy of the table opens nothing.

These commands speak to the database. The role must be the tables' owner, or a member of outbox_owner: not the
gateway's, which can look tokens up and cannot make any.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return usagef("say what to do: create, list or revoke") },
	}
	cmd.AddCommand(a.createToken(), a.listTokens(), a.revokeToken())
	return cmd
}

// tokens opens the tokens of the database and runs fn.
func (a *application) tokens(ctx context.Context, fn func(config.Config, token.Store) error) error {
	c, err := a.settings(config.Database)
	if err != nil {
		return err
	}
	db, err := app.OpenDatabase(ctx, c.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	t, err := db.Tokens(ctx)
	if err != nil {
		return err
	}
	return fn(c, t)
}

// newToken is what `outbox token create -o json` prints: the only time that the secret is seen.
type newToken struct {
	token.Token
	Text string `json:"token"`
}

func (a *application) createToken() *cobra.Command {
	var tenant, name, expires string
	var scopes []string
	cmd := &cobra.Command{
		Use:   "create --scope SCOPE[,SCOPE]",
		Short: "Make a token and print it, once",
		Long: `create makes a token. Send it with each request as: Authorization: Bearer obx_…

It is printed now and never again: whoever loses it makes another and revokes this one. The name is for you, to
know later who uses it. It expires after 90 days where --expires does not say otherwise: make its successor
before, and revoke it when nobody uses it any more.`,
		Example: `  outbox token create --tenant shop --name web --scope read,write --expires 720h
  TOKEN=$(outbox token create --scope read -o json | jq -r .token)`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var ttl time.Duration // 0: never
			if expires != "never" {
				var err error
				if ttl, err = parseAge(expires); err != nil || ttl <= 0 {
					return usagef("--expires is %q, want a time above zero such as 720h or 30d, or never", expires)
				}
			}
			wanted := make([]token.Scope, len(scopes))
			for i, s := range scopes {
				wanted[i] = token.Scope(strings.TrimSpace(s))
			}
			made, text, sum, err := token.New(tenant, name, wanted)
			if err != nil {
				return usageError{err}
			}
			return a.tokens(cmd.Context(), func(c config.Config, s token.Store) error {
				if made, err = s.CreateToken(cmd.Context(), app.Actor(), made, sum, ttl); err != nil {
					return err
				}
				if c.Output == "json" {
					return printJSON(a.Out, newToken{made, text})
				}
				if err := a.printDetails([]detail{
					{"id", made.ID}, {"name", made.Name}, {"tenant", made.Tenant}, {"scopes", scopeList(made)},
					{"expires", never(made.ExpiresAt)}, {"token", text},
				}); err != nil {
					return err
				}
				fmt.Fprintln(a.Err, "Keep the token now: it is not stored and will not be shown again.")
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", crawl.DefaultTenant, "`tenant` that the token speaks for")
	cmd.Flags().StringVar(&name, "name", "", "`name`, to tell it from others")
	cmd.Flags().StringSliceVar(&scopes, "scope", nil,
		"what it allows: `read, write, operate`, separated by commas (required)")
	cmd.Flags().StringVar(&expires, "expires", "90d", "`time` until it expires, as 720h or 30d; or never")
	cmd.Flags().SortFlags = false
	return cmd
}

func (a *application) listTokens() *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tokens, without their secrets",
		Long:  `list prints all tokens, the newest first, also those that have expired or were revoked.`,
		Example: `  outbox token list --tenant shop
  outbox token list -o json | jq -r '.items[] | select(.revokedAt == null) | .id'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFilters(cmd.Flags()); err != nil {
				return err
			}
			return a.tokens(cmd.Context(), func(c config.Config, s token.Store) error {
				tokens, err := s.ListTokens(cmd.Context(), tenant)
				if err != nil {
					return err
				}
				if c.Output == "json" {
					return printPage(a.Out, tokens, "")
				}
				var rows [][]string
				for _, t := range tokens {
					rows = append(rows, []string{t.ID, t.Name, t.Tenant, scopeList(t), moment(&t.CreatedAt), never(t.ExpiresAt),
						moment(t.RevokedAt)})
				}
				return printTable(a.Out, []string{"ID", "NAME", "TENANT", "SCOPES", "CREATED", "EXPIRES", "REVOKED"}, rows)
			})
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "`tenant` whose tokens to list (default: all)")
	return cmd
}

func (a *application) revokeToken() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "Make a token invalid, at once and for good",
		Long: `revoke makes a token invalid: the next request with it is refused, and so are its tickets. A stream
that is open ends within 15 seconds. The id is the part of the token between the two underscores, as outbox
token list prints it.`,
		Example: `  outbox token revoke k3vqy2m7d4xa`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := args[0]
			if strings.HasPrefix(id, "obx_") {
				return usagef("this is a whole token, want its id only: the part between the two underscores")
			}
			return a.tokens(cmd.Context(), func(c config.Config, s token.Store) error {
				t, err := s.RevokeToken(cmd.Context(), app.Actor(), id)
				if errors.Is(err, token.ErrUnknown) {
					return fmt.Errorf("%w, or it is revoked already: see outbox token list", err)
				}
				if err != nil {
					return err
				}
				if c.Output == "json" {
					return printJSON(a.Out, t)
				}
				fmt.Fprintf(a.Err, "Revoked %s of tenant %s.\n", t.ID, t.Tenant)
				return nil
			})
		},
	}
}

func scopeList(t token.Token) string {
	names := make([]string, len(t.Scopes))
	for i, s := range t.Scopes {
		names[i] = string(s)
	}
	return strings.Join(names, ",")
}

func never(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return moment(t)
}

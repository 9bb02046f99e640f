package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/token"
)

func (a *application) token() *cobra.Command {
	return group("token", a.createToken(), a.listTokens(), a.revokeToken())
}

// onTokens opens the tokens of the database and runs fn.
func (a *application) onTokens(ctx context.Context, fn func(config.Config, token.Store) error) error {
	return a.onDatabase(ctx, func(c config.Config, db app.Database) error {
		t, err := db.Tokens(ctx)
		if err != nil {
			return err
		}
		return fn(c, t)
	})
}

// newToken is what `outbox token create -o json` prints: the only time that the secret is seen.
type newToken struct {
	token.Token
	Text string `json:"token"`
}

func (a *application) createToken() *cobra.Command {
	var tenant, name, expires string
	var scopes []string
	cmd := command("token create", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		var ttl time.Duration // 0: never
		if expires != "never" {
			var err error
			if ttl, err = parseAge(expires); err != nil || ttl <= 0 {
				return usagef("--expires is %q, want a time above zero such as 720h or 30d, or never", expires)
			}
		}
		var wanted []token.Scope
		for _, s := range scopes {
			wanted = append(wanted, token.Scope(strings.TrimSpace(s)))
		}
		made, text, sum, err := token.New(tenant, name, wanted)
		if err != nil {
			return usageError{err}
		}
		return a.onTokens(cmd.Context(), func(c config.Config, s token.Store) error {
			if made, err = s.CreateToken(cmd.Context(), app.Actor(), made, sum, ttl); err != nil {
				return err
			}
			if c.Output == "json" {
				return printJSON(a.Out, newToken{made, text})
			}
			fmt.Fprintln(a.Err, "Keep the token now: it is not stored and will not be shown again.")
			return a.printDetails(detail{"id", made.ID}, detail{"name", made.Name}, detail{"tenant", made.Tenant},
				detail{"scopes", scopeList(made)}, detail{"expires", never(made.ExpiresAt)}, detail{"token", text})
		})
	})
	cmd.Flags().StringVar(&tenant, "tenant", crawl.DefaultTenant, "`name` of the tenant")
	cmd.Flags().StringVar(&name, "name", "", "`name` of the token")
	cmd.Flags().StringSliceVar(&scopes, "scope", nil, "`names` of the scopes (required)")
	cmd.Flags().StringVar(&expires, "expires", "90d", "`age` at which it expires, such as 720h or 30d, or never")
	return cmd
}

func (a *application) listTokens() *cobra.Command {
	var tenant string
	cmd := command("token list", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		if err := checkFilters(cmd.Flags()); err != nil {
			return err
		}
		return a.onTokens(cmd.Context(), func(c config.Config, s token.Store) error {
			tokens, err := s.ListTokens(cmd.Context(), tenant)
			if err != nil {
				return err
			}
			return list[token.Token]{items: tokens, head: "ID,NAME,TENANT,SCOPES,CREATED,EXPIRES,REVOKED",
				cells: func(t token.Token) []any {
					return []any{t.ID, t.Name, t.Tenant, scopeList(t), t.CreatedAt, never(t.ExpiresAt), t.RevokedAt}
				}}.print(a, c.Output)
		})
	})
	cmd.Flags().StringVar(&tenant, "tenant", "", "`name` of the tenant (default: all)")
	return cmd
}

func (a *application) revokeToken() *cobra.Command {
	var ask consent
	cmd := command("token revoke", cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		if strings.HasPrefix(args[0], "obx_") {
			return usagef("this is a whole token, want its id only: the part between the two underscores")
		}
		return a.onTokens(cmd.Context(), func(c config.Config, s token.Store) error {
			all, err := s.ListTokens(cmd.Context(), "")
			if err != nil {
				return err
			}
			i := slices.IndexFunc(all, func(t token.Token) bool { return t.ID == args[0] && t.RevokedAt == nil })
			if i < 0 {
				return fmt.Errorf("revoke token %s: %w, or it is revoked already: see outbox token list", oneLine(args[0]),
					token.ErrUnknown)
			}
			t := all[i]
			says := fmt.Sprintf("token %s (%s) of tenant %s will be revoked: requests with it are refused from then on",
				t.ID, t.Name, t.Tenant)
			if sure, err := ask.confirm(cmd.Context(), a, c.Output, t, says); err != nil || !sure {
				return err
			}
			if t, err = s.RevokeToken(cmd.Context(), app.Actor(), args[0]); err != nil {
				return err
			}
			if c.Output == "json" {
				return printJSON(a.Out, t)
			}
			fmt.Fprintf(a.Err, "Revoked %s of tenant %s.\n", t.ID, t.Tenant)
			return nil
		})
	})
	ask.destroy(a, cmd)
	return cmd
}

func scopeList(t token.Token) string {
	var names []string
	for _, s := range t.Scopes {
		names = append(names, string(s))
	}
	return strings.Join(names, ",")
}

func never(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return text(t)
}

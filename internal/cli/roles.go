package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
)

// roles is what outbox migrate roles prints with -o json.
type roles struct {
	Roles []string `json:"roles"` // those that are there now
}

func (a *application) migrateRoles() *cobra.Command {
	var show bool
	cmd := &cobra.Command{
		Use:   "roles",
		Short: "Create the roles with the least privileges, and grant them",
		Long: `roles creates nine group roles without login and gives each what it needs on the tables that exist:
outbox_owner (migrates), outbox_producer (writes events), outbox_run_producer (drives crawl runs with the
library, for all tenants), outbox_relay (delivers, for all tenants), outbox_reader (looks), outbox_operator
(dead letters), outbox_gateway (the HTTP API), outbox_worker (crawls runs) and outbox_consumer (remembers what it
has handled, for package inbox). Grant them to your own logins.
Run it again after each outbox migrate up. What the roles had beyond that is revoked.

It needs a superuser, or the tables' owner with CREATEROLE. --print shows the SQL, every privilege with
its reason, and changes nothing.`,
		Example: `  outbox migrate roles --print
  outbox migrate roles && psql -c 'GRANT outbox_relay TO my_relay'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if show {
				return pgmigrations.PrintRoles(a.Out)
			}
			c, err := a.migrationSettings(nil)
			if err != nil {
				return err
			}
			database, err := able[app.RoleMigrations](c, app.Roles)
			if err != nil {
				return err
			}
			if err := database.ApplyRoles(cmd.Context()); err != nil {
				return err
			}
			if c.Output == "json" {
				return printJSON(a.Out, roles{pgmigrations.Roles})
			}
			last := len(pgmigrations.Roles) - 1
			fmt.Fprintf(a.Err, "The roles %s and %s are in place: GRANT them to your logins.\n",
				strings.Join(pgmigrations.Roles[:last], ", "), pgmigrations.Roles[last])
			return nil
		},
	}
	cmd.Flags().BoolVar(&show, "print", false, "print the SQL, change nothing")
	return cmd
}

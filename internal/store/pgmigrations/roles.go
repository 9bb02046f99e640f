package pgmigrations

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed roles.sql
var rolesFile string

// rolesSQL is roles.sql, which begins, behind its explanation, with what keeps strangers' functions
// from being called.
var rolesSQL = strings.Replace(rolesFile, "DO $do$", strangersSQL+"\nDO $do$", 1)

// Roles are those that roles.sql creates.
var Roles = []string{"outbox_owner", "outbox_producer", "outbox_run_producer", "outbox_relay", "outbox_reader",
	"outbox_operator", "outbox_gateway", "outbox_worker", "outbox_consumer"}

// PrintRoles writes the SQL that ApplyRoles runs, with its explanation, for those who give
// privileges by hand.
func PrintRoles(w io.Writer) error {
	if _, err := io.WriteString(w, rolesSQL); err != nil {
		return fmt.Errorf("print roles: %w", err)
	}
	return nil
}

// ApplyRoles creates the group roles outbox_owner, outbox_producer, outbox_run_producer,
// outbox_relay, outbox_reader, outbox_operator, outbox_gateway, outbox_worker and outbox_consumer
// where they are missing. It hands the tables over to outbox_owner and gives each role exactly what
// roles.sql says on the tables that exist. It takes a superuser, or the tables' owner with
// CREATEROLE, and may run any number of times; run it again after Up has added tables.
func ApplyRoles(ctx context.Context, databaseURL string) error {
	err := lockedBy(ctx, connectCatalog, databaseURL, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, rolesSQL) // no arguments: one simple query, hence one transaction
		return err
	})
	if isCode(err, "42501") {
		err = fmt.Errorf("%w; run it as a superuser or as the tables' owner with CREATEROLE, or go on without these roles: "+
			"docs/operations/running.md#without-createrole", err)
	}
	if err != nil {
		return fmt.Errorf("apply roles: %w", err)
	}
	return nil
}

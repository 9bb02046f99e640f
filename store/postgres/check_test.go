package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/store/postgres"
)

// A login that may not read or settle a table is told so when the table is opened, with the GRANT
// that cures it: the relay would otherwise go on failing and look like one with a broken database.
func TestOpenNamesThePrivilegesThatAreMissing(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	admin := newPool(t, url)
	role := "relay " + uuid.NewString() // roles belong to the server, which the tests share
	grant := func(what string) {
		t.Helper()
		_, err := admin.Exec(t.Context(), "GRANT "+what+" TO "+pgx.Identifier{role}.Sanitize())
		ok(t, err)
	}
	_, err := admin.Exec(t.Context(), "CREATE ROLE "+pgx.Identifier{role}.Sanitize()+`;
		CREATE TABLE queue (n bigserial, id uuid NOT NULL, kind text, body jsonb, "at Last" timestamptz, tries int, retry_at timestamptz)`)
	ok(t, err)
	grant("SELECT, INSERT, UPDATE ON outbox_lanes")
	pool := newPool(t, url, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["role"] = role })
	queue := outbox.Layout{Table: "queue", ID: "id", Position: "n", Topic: "kind", Payload: "body", DeliveredAt: "at Last",
		Attempts: "tries", NextRetryAt: "retry_at"}

	refused := func(l outbox.Layout, want string) {
		t.Helper()
		if _, err := postgres.NewDB(pool).OpenTable(t.Context(), l); !errors.Is(err, outbox.ErrNotAllowed) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want ErrNotAllowed with %q", l.Table, err, want)
		}
	}
	refused(outbox.OutboxEvents(), "run: outbox migrate roles")
	refused(queue, `GRANT SELECT, DELETE, UPDATE ("at Last", tries, retry_at) ON queue TO outbox_relay`)
	grant(`SELECT, UPDATE ("at Last", tries, retry_at) ON queue`)
	refused(queue, "GRANT DELETE ON queue")
	grant("DELETE ON queue")
	if _, err := postgres.NewDB(pool).OpenTable(t.Context(), queue); err != nil {
		t.Errorf("with every privilege: %v", err)
	}
}

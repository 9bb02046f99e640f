package pgstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
)

// A gateway or worker whose login lacks something is told all of it, with the role that cures it.
func TestPartsNameThePrivilegesThatAreMissing(t *testing.T) {
	t.Parallel()
	super := migrated(t)
	role := "part " + uuid.NewString() // roles belong to the server, which the tests share
	if _, err := super.Exec(t.Context(), "CREATE ROLE "+pgx.Identifier{role}.Sanitize()); err != nil {
		t.Fatal(err)
	}
	none := as(t, super, role)
	opened := func(role string) (*Runs, *Tokens) {
		pool := none
		if role != "" {
			pool = as(t, super, role)
		}
		return need(OpenRuns(t.Context(), pool))(t), need(OpenTokens(t.Context(), pool))(t)
	}
	refused := func(err error, want error, says ...string) {
		t.Helper()
		for _, text := range says {
			if !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
				t.Errorf("got %v, want %v with %q", err, want, text)
			}
		}
	}
	runs, tokens := opened("")
	refused(runs.CheckGateway(t.Context()), outbox.ErrNotAllowed, "SELECT, INSERT, UPDATE (status,",
		"INSERT on crawl_outbox;", "USAGE on crawl_outbox_id_seq", "GRANT outbox_gateway TO the gateway's login")
	refused(runs.CheckWorker(t.Context()), outbox.ErrNotAllowed, "node_attempts) on crawl_runs",
		"GRANT outbox_worker TO the worker's login")
	refused(tokens.CheckGateway(t.Context()), outbox.ErrNotAllowed, "SELECT on outbox_tokens",
		"DELETE, UPDATE (sha256) on outbox_tickets", "GRANT outbox_gateway")
	if err := runs.Readable(t.Context()); err == nil {
		t.Error("runs that this role may not read are readable")
	}

	// All privileges, and no policy that is for this role.
	if _, err := super.Exec(t.Context(), "GRANT ALL ON ALL TABLES IN SCHEMA public TO "+pgx.Identifier{role}.Sanitize()+
		"; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO "+pgx.Identifier{role}.Sanitize()); err != nil {
		t.Fatal(err)
	}
	refused(runs.CheckGateway(t.Context()), outbox.ErrRowsHidden, "GRANT outbox_gateway")
	refused(runs.CheckWorker(t.Context()), outbox.ErrRowsHidden, "GRANT outbox_worker")

	gatewayRuns, gatewayTokens := opened("outbox_gateway")
	workerRuns := need(OpenRuns(t.Context(), as(t, super, "outbox_worker")))(t)
	refused(gatewayRuns.CheckWorker(t.Context()), outbox.ErrNotAllowed, "lease_epoch")
	refused(workerRuns.CheckGateway(t.Context()), outbox.ErrNotAllowed, "INSERT on crawl_runs")
	owner := need(OpenRuns(t.Context(), super))(t)
	for what, err := range map[string]error{
		"gateway": gatewayRuns.CheckGateway(t.Context()), "its tokens": gatewayTokens.CheckGateway(t.Context()),
		"its probe": gatewayRuns.Readable(t.Context()),
		"worker":    workerRuns.CheckWorker(t.Context()), "owner as gateway": owner.CheckGateway(t.Context()),
		"owner as worker": owner.CheckWorker(t.Context()),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

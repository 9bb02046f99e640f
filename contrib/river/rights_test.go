package outboxriver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	outboxriver "github.com/outboxrelay/outbox/contrib/river"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// as returns a pool of a login with the rights of a group, and with some on River's tables.
func as(t *testing.T, super *pgxpool.Pool, group, river string) *pgxpool.Pool {
	t.Helper()
	cfg := super.Config()
	login := fmt.Sprintf("river_%s_%s", group, cfg.ConnConfig.Database) // roles belong to the whole server
	_, err := super.Exec(t.Context(),
		fmt.Sprintf(`CREATE ROLE %[1]s LOGIN IN ROLE %[2]s; GRANT %[3]s TO %[1]s; GRANT USAGE ON SEQUENCE river_job_id_seq TO %[1]s`,
			login, group, river))
	ok(t, err)
	cfg.ConnConfig.User = login
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	ok(t, err)
	t.Cleanup(func() {
		pool.Close()
		if _, err := super.Exec(context.Background(),
			fmt.Sprintf(`DROP OWNED BY %[1]s; DROP ROLE %[1]s`, login)); err != nil {
			t.Error(err)
		}
	})
	return pool
}

// With the rights that the package comment asks for, and letters of several tenants.
func TestRights(t *testing.T) {
	t.Parallel()
	super := database(t)
	ok(t, migrations.ApplyRoles(t.Context(), super.Config().ConnString()))
	all := "SELECT, INSERT, UPDATE, DELETE ON river_job, river_leader, river_queue, river_notification"
	workers := as(t, super, "outbox_relay", all)
	operators := as(t, super, "outbox_operator", "SELECT, INSERT, UPDATE ON river_job")

	letters := outboxriver.New(workers,
		outboxriver.Config{Logger: quiet(), Tenant: func(j *rivertype.JobRow) string { return fmt.Sprint("tenant-", j.ID) }})
	cfg := config(letters, fail)
	cfg.ErrorHandler = nil // panics are left to the sweep
	client := start(t, workers, cfg)
	cancelled := insert(t, client, job{Do: "cancel"}, nil)
	swept := insert(t, client, job{Do: "panic"}, &river.InsertOpts{MaxAttempts: 1})
	reaches(t, client, cancelled, rivertype.JobStateCancelled)
	reaches(t, client, swept, rivertype.JobStateDiscarded)
	for _, want := range []int{1, 0} {
		if n, err := letters.Sweep(t.Context(), client, time.Hour); n != want || err != nil {
			t.Errorf("swept %d, error %v, want %d", n, err, want)
		}
	}
	inserts, err := river.NewClient(riverpgxv5.New(operators), &river.Config{})
	ok(t, err)
	if sum := replay(t, operators, outboxriver.Replay(inserts)); sum.Letters != 2 {
		t.Errorf("replayed %+v, want 2 letters", sum)
	}
}

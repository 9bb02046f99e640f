package postgres_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/postgres"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// Logins of the roles do with a log what each of them is for, and nothing else.
func TestRolesOfALog(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	ok(t, migrations.ApplyRoles(t.Context(), l.pool.Config().ConnString()))
	const row = "INSERT INTO outbox_log (event_topic, occurred_at, source_bc, payload) VALUES ('t', now(), 's', '{}')"
	verbs := map[string]string{
		"read the log":  "SELECT payload FROM outbox_log",
		"write the log": row,
		"choose the transaction": "INSERT INTO outbox_log (event_topic, occurred_at, source_bc, payload, xid) " +
			"VALUES ('t', now(), 's', '{}', '18446744073709551615')",
		"choose the position": "INSERT INTO outbox_log (event_topic, occurred_at, source_bc, payload, position) " +
			"VALUES ('t', now(), 's', '{}', 5)",
		"change the log":   "UPDATE outbox_log SET payload = '{}'",
		"delete rows":      "DELETE FROM outbox_log",
		"empty a part":     "TRUNCATE outbox_log_3",
		"empty the log":    "TRUNCATE outbox_log",
		"fill a part":      "INSERT INTO outbox_log_1 SELECT * FROM outbox_log_1",
		"go to a part":     "SELECT nextval('outbox_log_part')",
		"set the part":     "SELECT setval('outbox_log_part', 7)",
		"set the position": "SELECT setval('outbox_log_position_seq', 1)",
		"read places":      "SELECT position FROM outbox_log_positions",
		"note places": "INSERT INTO outbox_log_positions (table_name, position, lanes, snapshot) " +
			"VALUES ('t', 1, 1, '3:3:')",
		"change places":  "UPDATE outbox_log_positions SET position = 0",
		"remove places":  "DELETE FROM outbox_log_positions",
		"begin an era":   "INSERT INTO outbox_log_era DEFAULT VALUES ON CONFLICT DO NOTHING",
		"change the era": "UPDATE outbox_log_era SET era = gen_random_uuid()",
		"end the era":    "DELETE FROM outbox_log_era",
		"read debts":     "SELECT payload FROM outbox_deliveries",
	}
	pools := map[string]*pgxpool.Pool{}
	for role, may := range map[string][]string{
		"outbox_producer": {"write the log"},
		"outbox_relay": {"read the log", "empty a part", "go to a part", "read places", "note places", "remove places",
			"begin an era", "read debts"},
		"outbox_reader":   {"read the log", "read places"},
		"outbox_operator": {"read the log", "write the log", "read places", "read debts"},
	} {
		pools[role] = l.as(role)
		for what, sql := range verbs {
			tx, err := pools[role].Begin(t.Context())
			ok(t, err)
			_, err = tx.Exec(t.Context(), sql)
			ok(t, tx.Rollback(t.Context()))
			var answer interface{ SQLState() string }
			if refused := errors.As(err, &answer) && answer.SQLState() == "42501"; refused == slices.Contains(may, what) ||
				err != nil && !refused {
				t.Errorf("%s: may it %s? error %v", role, what, err)
			}
		}
	}

	bad, fine := keyed("a", 1), keyed("a", 2)
	ok(t, pgx.BeginFunc(t.Context(), pools["outbox_producer"], func(tx pgx.Tx) error {
		return l.writer.Write(t.Context(), tx, bad, fine)
	}))
	l.failing(func(d outbox.Delivery) error {
		if d.ID == bad.ID {
			return outbox.Permanent(errors.New("refused"))
		}
		return nil
	})
	l.relayBy(pools["outbox_relay"], l.publish, func() bool { return false }, func(c *relay.Config) {
		c.Tables[0].Retention = outbox.Retention{After: time.Nanosecond, Every: 20 * time.Millisecond, Archive: "none"}
	})
	eventually(t, "one event is delivered, and the other a dead letter", func() bool {
		return len(l.arrived()) == 1 && one[int](t, l.pool, "SELECT count(*) FROM job_dlq") == 1
	})
	eventually(t, "their part is emptied", func() bool {
		return one[int](t, pools["outbox_reader"], "SELECT count(*) FROM outbox_log") == 0
	})
	l.failing(nil)
	letters, err := postgres.OpenDeadLetters(t.Context(), pools["outbox_operator"], postgres.DeadLettersConfig{
		Layouts: []outbox.Layout{outbox.OutboxLog()}})
	ok(t, err)
	sum, err := deadletter.Replay(t.Context(), letters, deadletter.ReplayOptions{
		Selection: deadletter.Selection{All: true}, Operator: deadletter.Operator{Actor: "test"}})
	ok(t, err)
	eventually(t, "the replay arrives", func() bool { return slices.Contains(l.arrived(), bad.ID.String()) })
	if sum.Letters != 1 {
		t.Errorf("replayed %+v", sum)
	}
}

// A login with a right to read the log sees the events of the tenant that it names. A role that
// serves all tenants pays nothing for it: PostgreSQL plans its statements without a filter.
func TestLogShowsATenantItsOwnEvents(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	ok(t, migrations.ApplyRoles(t.Context(), l.pool.Config().ConnString()))
	login := "tenant_" + one[string](t, l.pool, "SELECT current_database()")
	for _, sql := range []string{
		"CREATE ROLE " + login, "GRANT SELECT, INSERT ON outbox_log, outbox_log_0 TO " + login,
		"GRANT USAGE ON SEQUENCE outbox_log_position_seq TO " + login, "GRANT SELECT ON SEQUENCE outbox_log_part TO " + login,
		"INSERT INTO outbox_log (event_topic, occurred_at, source_bc, payload, tenant_id) " +
			"SELECT 't', now(), 's', '{}', tenant FROM unnest(ARRAY['acme', 'acme', 'globex']) AS tenant",
	} {
		_, err := l.pool.Exec(t.Context(), sql)
		ok(t, err)
	}
	for _, c := range []struct{ role, tenant, table, want string }{
		{login, "", "outbox_log", "0"}, {login, "acme", "outbox_log", "2"}, {login, "globex", "outbox_log_0", "1"},
		{"outbox_consumer", "", "outbox_log", "3"}, {"outbox_gateway", "acme", "outbox_log", "3"},
		{"outbox_reader", "", "outbox_log", "3"}, {"outbox_relay", "", "outbox_log_0", "3"},
	} {
		tx, err := l.pool.Begin(t.Context())
		ok(t, err)
		_, err = tx.Exec(t.Context(), "SET LOCAL ROLE "+c.role)
		ok(t, err)
		_, err = tx.Exec(t.Context(), "SELECT set_config('app.current_namespace', $1, true)", c.tenant)
		ok(t, err)
		var got, plan string
		ok(t, tx.QueryRow(t.Context(), "SELECT count(*)::text FROM "+c.table).Scan(&got))
		ok(t, tx.QueryRow(t.Context(), "EXPLAIN (FORMAT JSON) SELECT FROM "+c.table).Scan(&plan))
		if got != c.want {
			t.Errorf("%s of tenant %q sees %s rows of %s, want %s", c.role, c.tenant, got, c.table, c.want)
		}
		if filtered := strings.Contains(plan, "Filter"); filtered != (c.role == login) {
			t.Errorf("%s reads %s with a filter: %v", c.role, c.table, filtered)
		}
		if c.role == login {
			_, err = tx.Exec(t.Context(), "INSERT INTO outbox_log (event_topic, occurred_at, source_bc, payload, tenant_id) "+
				"VALUES ('t', now(), 's', '{}', 'initech')")
			ok(t, err)
		}
		ok(t, tx.Rollback(t.Context()))
	}
}

package chaos

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/store/postgres"
)

// What is between a relay and the server, and who it is there.
var poolerFaults = []fault{
	{name: "pooler-transaction-mode", postgres: own, strike: poolerKilled},
	{name: "pooler-reconnects", postgres: own, strike: poolerReconnects},
	{name: "statement-pooling-refused", postgres: own, strike: statementPooling},
	{name: "role-client-encoding-latin1", postgres: own, strike: latin1},
	{name: "password-rotated", postgres: own, strike: passwordRotated},
}

// pooler puts PgBouncer between the server and all that is started from now on, the producers too.
func (w *world) pooler(settings map[string]string) *testenv.PgBouncer {
	w.t.Helper()
	b := testenv.PgBouncerServer(w.t, w.pg, settings)
	w.t.Cleanup(func() {
		if w.t.Failed() {
			text, _ := b.Log()
			w.t.Logf("PgBouncer said:\n%s", tail(text))
		}
	})
	w.relayDatabase = b.URL("postgres")
	return b
}

// producePooled starts the producers, through the pooler.
func (w *world) producePooled() {
	w.t.Helper()
	cfg, err := pgxpool.ParseConfig(w.relayDatabase)
	w.must(err)
	cfg.MaxConns = 12
	cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	postgres.Adapt(cfg)
	pool, err := pgxpool.NewWithConfig(w.t.Context(), cfg)
	w.must(err)
	w.t.Cleanup(pool.Close)
	w.producers.pool = pool
	w.produce()
}

// supervise starts a pooler again that has ended by itself, as an init system does. PgBouncer 1.18
// crashes at cancel requests under load (its issues 801 and 822).
func (w *world) supervise(b *testenv.PgBouncer) {
	over, watched := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-b.Ended():
				if err := b.Restart(); err != nil {
					watched <- err
					return
				}
			case <-over:
				watched <- nil
				return
			}
		}
	}()
	w.t.Cleanup(func() {
		close(over)
		if err := <-watched; err != nil {
			w.t.Errorf("start PgBouncer again: %v", err)
		}
	})
}

// alike fails unless the sessions that an application gets from the pooler are as new ones.
func (w *world) alike() {
	w.t.Helper()
	var found []string
	eventually(w.t, "ten sessions can be had of the pooler", func() bool {
		var err error
		found, err = testenv.CompareSessions(w.t.Context(), w.pg.TCPURL("postgres"), w.relayDatabase, 10)
		return err == nil
	})
	if len(found) > 0 {
		w.t.Errorf("pooled sessions differ from a new one:\n%s", strings.Join(found, "\n"))
	}
}

// poolerKilled has relays and producers behind a pooler in transaction mode, which is killed and
// started again. The relays leave nothing in its sessions.
func poolerKilled(w *world) (struck int) {
	b := w.pooler(map[string]string{"default_pool_size": "30"})
	w.producePooled()
	w.relay(nil)
	w.relay(nil)
	for range 3 {
		w.arrive(200)
		w.alike()
		noticed := w.noticed()
		w.must(b.Kill())
		w.pause(0, time.Second)
		w.must(b.Restart())
		w.healed(takeOver)
		if w.noticed() > noticed {
			struck++
		}
	}
	w.arrive(200)
	w.alike()
	if said := w.said("a pooler is between"); said < 2 {
		w.t.Errorf("%d of 2 relays said that there is a pooler", said)
	}
	return struck
}

// poolerReconnects has the pooler change its connections to the server, and drop those of its
// clients, under load.
func poolerReconnects(w *world) (struck int) {
	b := w.pooler(map[string]string{"default_pool_size": "30", "server_lifetime": "1"})
	w.supervise(b)
	w.producePooled()
	w.relay(nil)
	w.relay(nil)
	w.arrive(50)
	for range 12 {
		commands := [][]string{{"RECONNECT postgres"}, {"PAUSE postgres", "RESUME postgres"},
			{"KILL postgres", "RESUME postgres"}}
		for _, command := range commands[w.rng.IntN(len(commands))] {
			eventually(w.t, "PgBouncer takes "+command, func() bool {
				_, err := b.Console(w.t.Context(), command)
				return err == nil
			})
			struck++
			w.pause(0, 200*time.Millisecond)
		}
		w.pause(0, 500*time.Millisecond)
	}
	w.healed(takeOver)
	w.alike()
	return struck
}

// statementPooling starts commands behind a pooler in statement mode. Each says what to do, and
// ends; those that reach the server itself deliver.
func statementPooling(w *world) (struck int) {
	w.underway(50)
	w.pooler(map[string]string{"pool_mode": "statement"})
	path, err := binary()
	w.must(err)
	for _, args := range [][]string{
		{"relay", "--sink", w.relaySink},
		{"serve", "--sink", w.relaySink, "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0"},
		{"migrate", "up"}, {"migrate", "status"}, {"lanes"}, {"dlq", "list"}, {"events"}, {"token", "list"},
	} {
		r := w.process(path, nil, append(args, "--database", w.relayDatabase)...)
		select {
		case <-r.exited:
		case <-time.After(tier.Patience()):
			w.t.Errorf("%v goes on", args)
			continue
		}
		if said := r.said(); r.err == nil || strings.Count(said, "set pool_mode=transaction for this database") != 1 {
			w.t.Errorf("%v ended with %v and said %s", args, r.err, said)
		}
		struck++
	}
	w.arrive(50)
	return struck
}

// latin1 gives the relays' role another encoding than the events'. They arrive as they were written
// all the same.
func latin1(w *world) (struck int) {
	w.exec(`CREATE ROLE latin LOGIN SUPERUSER; ALTER ROLE latin SET client_encoding = 'LATIN1'`)
	w.relayAs(url.User("latin"), nil)
	w.underway(0)
	written := map[string]outbox.Event{}
	for i := range 20 {
		e, err := outbox.NewEvent("größe.geändert", "Grüße 日本 😀")
		w.must(err)
		e.AggregateType, e.AggregateID = "Größe", "schlüssel 日本 "+itoa(i)
		tx, err := w.pool.Begin(w.t.Context())
		w.must(err)
		w.must(w.writer.Write(w.t.Context(), tx, e))
		w.must(tx.Commit(w.t.Context()))
		w.note(outboxtest.Written{ID: e.ID.String(), Key: e.AggregateID, Outcome: outboxtest.Acknowledged, At: time.Now()})
		written[e.ID.String()] = e
	}
	w.healed(takeOver)
	w.end()
	received, _ := w.heard.quiet(300 * time.Millisecond)
	for _, r := range received {
		if e, ok := written[r.ID]; ok {
			struck++
			if r.Key != e.AggregateID || r.Destination != e.Topic {
				w.t.Errorf("%q of %q arrived as %q of %q", e.Topic, e.AggregateID, r.Destination, r.Key)
			}
		}
	}
	return struck
}

// relayAs lets the relays to come connect as another user.
func (w *world) relayAs(user *url.Userinfo, settings url.Values) {
	w.t.Helper()
	database, err := url.Parse(w.pg.TCPURL("postgres"))
	w.must(err)
	database.User = user
	query := database.Query()
	for name, values := range settings {
		query[name] = values
	}
	database.RawQuery = query.Encode()
	w.relayDatabase = database.String()
}

// passwordRotated changes the password of the relays' role. The sessions that there are go on. Who
// has it from a file connects with the new one as soon as it is there; who has it from its URL as
// soon as the old one counts again, and meanwhile the other serves its lanes.
func passwordRotated(w *world) (struck int) {
	hba := filepath.Join(w.pg.Dir(), "data", "pg_hba.conf")
	rules, err := os.ReadFile(hba)
	w.must(err)
	if err := os.WriteFile(hba, append([]byte("host all rotating 127.0.0.1/32 scram-sha-256\n"), rules...),
		0o600); err != nil {
		w.t.Fatal(err)
	}
	w.exec(`CREATE ROLE rotating LOGIN SUPERUSER PASSWORD 'first'`)
	w.exec(`SELECT pg_reload_conf()`)
	file := filepath.Join(w.t.TempDir(), "passfile")
	keep := func(password string) {
		w.must(os.WriteFile(file, []byte("*:*:*:rotating:"+password+"\n"), 0o600))
	}
	keep("first")
	w.produce()
	w.relayAs(url.User("rotating"), url.Values{"passfile": {file}})
	w.relay(nil)
	w.relayAs(url.UserPassword("rotating", "first"), nil)
	w.relay(nil)
	bothServe := func() {
		w.eventually("both relays serve", `SELECT count(DISTINCT owner) = 2 FROM outbox_lanes`)
	}
	bothServe()
	w.arrive(50)
	w.exec(`ALTER ROLE rotating PASSWORD 'second'`)
	w.arrive(200) // by the sessions that there are
	refusals := func() int { return w.said("password authentication failed") }
	for _, password := range []string{"second", "first"} {
		before := refusals()
		w.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'rotating'`)
		eventually(w.t, "the relays say that their password is refused", func() bool { return refusals() > before })
		w.exec(`ALTER ROLE rotating PASSWORD '` + password + `'`)
		keep(password)
		w.healed(takeOver)
		w.arrive(50)
	}
	bothServe()
	if w.said(`'first'`)+w.said(":first@") > 0 {
		w.t.Error("a log holds the password")
	}
	return refusals()
}

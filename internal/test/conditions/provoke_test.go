package conditions_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// provocation makes a patient unwell, and returns what the finding says among its words and how the
// patient is cured.
type provocation func(p *patient) (says string, cure func())

// event is a row of outbox_events; columns and values are those that it has beside the required
// ones.
func event(columns, values string) string {
	return "INSERT INTO outbox_events (event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload, " +
		columns + ") SELECT 't', now(), 'Order', '42', 's', '{}', " + values
}

const (
	noEvents  = "DELETE FROM outbox_events"
	livingRow = "INSERT INTO outbox_relays (table_name, owner, name, joined_at, expires_at) VALUES ('outbox_events', " +
		"gen_random_uuid(), 'somewhere', now() - interval '1 hour', now() + interval '1 hour')"
	noRelays = "DELETE FROM outbox_relays"
	debt     = "INSERT INTO outbox_deliveries (outbox_table, sink, lane, event_id, destinations, event_topic, " +
		"payload, written_at) " +
		"VALUES ('outbox_events', 'audit', 1, gen_random_uuid(), '[\"t\"]', 't', '{}', now() - interval '1 hour')"
	noDebts = "DELETE FROM outbox_deliveries"
	letter  = "INSERT INTO job_dlq (original_job_id, app_id, type, payload, error_reason, attempts, error_history) " +
		"SELECT gen_random_uuid(), id, 'mail', '{}', 'Panic', 1, '[]' FROM apps LIMIT 1"
	noLetters = "DELETE FROM job_dlq"
)

// provoked has a provocation for every condition of the catalogue.
var provoked = map[string]provocation{
	"OBX-001": func(p *patient) (string, func()) { return "OUTBOX_POL_MAX", p.set("OUTBOX_POL_MAX=1s") },
	"OBX-002": func(p *patient) (string, func()) { return "dedup-window is 1s", p.set("OUTBOX_DEDUP_WINDOW=1s") },
	"OBX-003": func(p *patient) (string, func()) {
		return `"order.>" is no wildcard`, p.set("OUTBOX_CONFIG=" + p.file(0o600,
			`routes: [{table: outbox_events, topic: "order.>", to: [default]}]`))
	},
	"OBX-004": func(p *patient) (string, func()) {
		path := p.file(0o644, "database: "+p.url)
		cured := p.set("OUTBOX_CONFIG="+path, "OUTBOX_DATABASE_URL=")
		return "may read or write " + path, func() { must(p.T, os.Chmod(path, 0o600)); p.well(); cured() }
	},
	"OBX-005": func(p *patient) (string, func()) {
		p.limits.Files = 1 << 62
		return "files open, fewer than", func() { p.limits.Files = 1 }
	},
	"OBX-006": func(p *patient) (string, func()) {
		return "the database does not " +
			"answer", p.set("OUTBOX_DATABASE_URL=postgres://postgres@" + closedPort(p.T) + "/postgres")
	},
	"OBX-007": func(p *patient) (string, func()) {
		p.exec("ALTER DATABASE " + p.name + " SET default_transaction_read_only = on")
		return "default_transaction_read_only is on", func() {
			p.exec("ALTER DATABASE " + p.name + " RESET default_transaction_read_only")
		}
	},
	"OBX-008": func(p *patient) (string, func()) {
		p.exec("ALTER DATABASE " + p.name + " CONNECTION LIMIT 2")
		return "of 2 connections of database", func() { p.exec("ALTER DATABASE " + p.name + " CONNECTION LIMIT -1") }
	},
	"OBX-009": func(p *patient) (string, func()) {
		p.limits.Held = time.Millisecond
		forgotten, err := pgx.Connect(p.Context(), p.url)
		must(p.T, err)
		_, err = forgotten.Exec(p.Context(), "BEGIN; "+event("tenant_id", "'acme'")+"; PREPARE TRANSACTION 'lost'; "+
			"BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 'forgotten'")
		must(p.T, err)
		time.Sleep(10 * time.Millisecond) // becomes older than the limit
		p.says("OBX-009", "prepared transaction lost of postgres")
		return fmt.Sprintf("client backend %d", forgotten.PgConn().PID()), func() {
			must(p.T, forgotten.Close(p.Context()))
			p.exec("ROLLBACK PREPARED 'lost'")
		}
	},
	"OBX-010": func(p *patient) (string, func()) {
		p.limits.DeadRows = 50
		p.exec("ALTER TABLE outbox_events SET (autovacuum_enabled = false)",
			event("tenant_id", "generate_series(1, 100)"), noEvents, "SELECT pg_stat_force_next_flush()", "SELECT 1")
		return "dead rows beside 0 live ones", func() {
			p.exec("VACUUM outbox_events", "ALTER TABLE outbox_events RESET "+
				"(autovacuum_enabled)", "SELECT pg_stat_force_next_flush()")
		}
	},
	"OBX-011": func(p *patient) (string, func()) {
		p.exec("ALTER TABLE outbox_events SET (autovacuum_enabled = false)")
		return "autovacuum is off for outbox_events", func() {
			p.exec("ALTER TABLE outbox_events RESET (autovacuum_enabled)")
		}
	},
	"OBX-012": func(p *patient) (string, func()) {
		must(p.T, p.server.SetClock(time.Hour))
		return "s ahead of this machine's", func() { must(p.T, p.server.SetClock(0)) }
	},
	"OBX-013": func(p *patient) (string, func()) {
		p.elsewhere = "10.1.2.3"
		return "another machine (10.1.2.3)", func() { p.elsewhere = "" }
	},
	"OBX-014": func(p *patient) (string, func()) {
		pooler := testenv.PgBouncerServer(p.T, p.server, nil)
		cured := p.set("OUTBOX_DATABASE_URL=" + pooler.URL(p.name))
		return "leads to a pooler", func() { cured(); must(p.T, pooler.Stop()) }
	},
	"OBX-015": func(p *patient) (string, func()) {
		return "role postgres is a superuser", func() { p.login("relay", "GRANT outbox_relay TO relay") }
	},
	"OBX-016": func(p *patient) (string, func()) {
		p.limits.Free = 1 << 62
		file := filepath.Join(p.TempDir(), "outbox.db")
		cured := p.set("OUTBOX_DATABASE_URL=sqlite:" + file)
		must(p.T, migrate(p.Context(), "sqlite:"+file))
		return "MB left", func() { cured() }
	},
	"OBX-017": func(p *patient) (string, func()) {
		must(p.T, pgmigrations.Down(p.Context(), p.url, 1, "log"))
		return "set log is at version 1 of 2", func() { must(p.T, pgmigrations.Up(p.Context(), p.url, "log")) }
	},
	"OBX-018": func(p *patient) (string, func()) {
		p.exec("ALTER TABLE outbox_events RENAME source_bc TO origin")
		return "it lacks source_bc", func() { p.exec("ALTER TABLE outbox_events RENAME origin TO source_bc") }
	},
	"OBX-019": func(p *patient) (string, func()) {
		return "lacks privileges", p.login("nobody", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO nobody")
	},
	"OBX-020": func(p *patient) (string, func()) {
		return "row-level security hides the rows", p.login("stranger", "GRANT SELECT, INSERT, "+
			"UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO stranger")
	},
	"OBX-021": func(p *patient) (string, func()) {
		p.exec("DROP INDEX outbox_events_undelivered")
		return "has no index outbox_events_undelivered", p.remedied("OBX-021")
	},
	"OBX-022": func(p *patient) (string, func()) {
		p.exec(event("tenant_id", "generate_series(1, 2)"))
		if _, err := p.pool.Exec(p.Context(), "CREATE UNIQUE INDEX CONCURRENTLY broken ON outbox_events "+
			"(event_topic)"); err == nil {
			p.Fatal("two events of one topic are unique by it")
		}
		remedied := p.remedied("OBX-022")
		return "index broken of outbox_events is not valid", func() { remedied(); p.exec(noEvents) }
	},
	"OBX-023": func(p *patient) (string, func()) {
		return "cannot be reached from here", p.set("OUTBOX_SINK=redis://" + closedPort(p.T))
	},
	"OBX-024": func(p *patient) (string, func()) {
		p.tell("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
		return "evicts keys (maxmemory-policy " +
			"allkeys-lru)", func() { p.tell("CONFIG", "SET", "maxmemory-policy", "noeviction") }
	},
	"OBX-025": func(p *patient) (string, func()) {
		return "is on another machine (10.255.255.1", p.set("OUTBOX_SINK=redis://10.255.255.1:6379")
	},
	"OBX-026": func(p *patient) (string, func()) {
		address, ends := certified(p.T, 48*time.Hour), p.limits.Ends
		cured := p.set("OUTBOX_SINK=rediss+stream://" + address)
		return "the certificate of sink default ends in", func() {
			p.limits.Ends = time.Hour
			p.well()
			p.limits.Ends = ends
			cured()
		}
	},
	"OBX-027": func(p *patient) (string, func()) {
		stop := p.relay()
		must(p.T, p.redis.Kill())
		return "sink default is down", func() { must(p.T, p.redis.Restart()); p.eventuallyWell(); stop() }
	},
	"OBX-028": func(p *patient) (string, func()) {
		p.exec(debt)
		return "sink audit has not acknowledged events of outbox_events: 1 event waits, the oldest for 1h",
			p.cured(noDebts)
	},
	"OBX-029": func(p *patient) (string, func()) {
		p.exec(debt)
		return "no relay serves the pending deliveries of outbox_events to sink audit: 1 event waits", p.cured(noDebts)
	},
	"OBX-030": func(p *patient) (string, func()) {
		p.exec(event("tenant_id", "'acme'"))
		return "no relay serves outbox_events, where 1 event " +
			"waits", func() { stop := p.relay(); p.eventuallyWell(); stop(); p.exec(noEvents) }
	},
	"OBX-031": func(p *patient) (string, func()) {
		p.exec("DELETE FROM outbox_lanes", livingRow)
		return "64 of 64 lanes of outbox_events are held by no relay; alive: 1", p.cured(noRelays)
	},
	"OBX-032": func(p *patient) (string, func()) {
		stop := p.relay()
		p.exec("ALTER TABLE outbox_events RENAME processed_at TO done_at", event("tenant_id", "'acme'"))
		return "does not serve outbox_events", func() {
			p.exec("ALTER TABLE outbox_events RENAME done_at TO processed_at")
			p.eventuallyWell()
			stop()
			p.exec(noEvents)
		}
	},
	"OBX-033": func(p *patient) (string, func()) {
		stop := p.relay()
		return "one relay alone serves " +
			"outbox_events", func() { second := p.relay(); p.eventuallyWell(); second(); stop() }
	},
	"OBX-034": func(p *patient) (string, func()) {
		p.exec("INSERT INTO outbox_lanes (table_name, lane, crashes, trial_size) VALUES ('outbox_events', 7, 3, 4) " +
			"ON CONFLICT (table_name, lane) DO UPDATE SET crashes = 3, trial_size = 4")
		return "relays died repeatedly at 1 lane of outbox_events", p.cured("DELETE FROM " +
			"outbox_lanes")
	},
	"OBX-035": func(p *patient) (string, func()) {
		p.exec(event("created_at", "now() - interval '1 hour'"))
		return "events of outbox_events are late: 1 event waits, the oldest for 1h", p.cured(noEvents)
	},
	"OBX-036": func(p *patient) (string, func()) {
		p.exec(event("status, next_retry_at, retry_count, error_message", "'FAILED', now() + interval '1 hour', 2, "+
			"'boom'"), event("status", "'NEW'"))
		return "1 event of 1 key waits behind an event that fails; the first is", p.cured(noEvents)
	},
	"OBX-037": func(p *patient) (string, func()) {
		p.exec(event("status, next_retry_at", "'FAILED', 'infinity'"))
		return "of outbox_events is never tried again", p.cured(noEvents)
	},
	"OBX-038": func(p *patient) (string, func()) {
		p.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			 RAISE EXCEPTION 'not on my watch'; END $$`,
			`CREATE TRIGGER refuse BEFORE UPDATE ON outbox_events FOR EACH ROW
				WHEN (NEW.status = 'SENT') EXECUTE FUNCTION refuse()`,
			event("tenant_id", "'acme'"))
		stop := p.relay()
		return "does not let that be recorded: ", func() {
			p.exec("DROP FUNCTION refuse CASCADE", "UPDATE outbox_events SET next_retry_at = now()")
			p.eventuallyWell()
			stop()
			p.exec(noEvents)
		}
	},
	"OBX-039": func(p *patient) (string, func()) {
		p.exec("INSERT INTO outbox_pauses (table_name, topic, reason, actor) VALUES ('outbox_events', 'invoice.*', " +
			"'INC-4711', 'alice')")
		return "topic invoice.* of outbox_events has been paused since", p.cured("DELETE FROM outbox_pauses")
	},
	"OBX-040": func(p *patient) (string, func()) {
		p.exec(event("tenant_id", "'flood' FROM generate_series(1, 1500)"), event("tenant_id", "'acme'"))
		return "1500 of 1501 events that wait in outbox_events are those of tenant flood", p.cured(noEvents)
	},
	"OBX-041": func(p *patient) (string, func()) {
		p.exec(letter)
		return "1 dead letter of jobs is pending", p.cured(noLetters)
	},
	"OBX-043": func(p *patient) (string, func()) {
		p.limits.Kept = 50
		p.exec(event("status", "'SENT' FROM generate_series(1, 100)"), "ANALYZE outbox_events")
		cured := p.set("OUTBOX_RETENTION=0")
		return "outbox_events has about 100 " +
			"rows", func() { cured(); p.well(); p.exec(noEvents, "VACUUM outbox_events") }
	},
	"OBX-044": func(p *patient) (string, func()) {
		p.exec(livingRow, "INSERT INTO outbox_maintenance (table_name, ran_at) VALUES ('outbox_events', now() - "+
			"interval '2 days') "+
			"ON CONFLICT (table_name) DO UPDATE SET ran_at = excluded.ran_at")
		return "old rows of outbox_events were last removed at", p.cured("DELETE FROM outbox_maintenance", noRelays)
	},
	"OBX-045": func(p *patient) (string, func()) {
		p.limits.Idle = time.Millisecond
		p.exec("SELECT outbox_subscribe('billing', '-infinity')",
			"INSERT INTO outbox_log (event_topic, occurred_at, source_bc, payload) VALUES ('t', now(), 's', '{}')")
		time.Sleep(10 * time.Millisecond) // becomes older than the limit
		return "no consumer of subscription billing has acknowledged its events: 1 event waits", p.cured("DELETE FROM "+
			"outbox_subscriptions", "TRUNCATE outbox_log")
	},
	"OBX-046": func(p *patient) (string, func()) {
		p.exec(event("status", "'NEW'"), event("status, processed_at", "'SENT', now()"))
		return "which is behind it in its key, is delivered", p.cured(noEvents)
	},
	"OBX-047": func(p *patient) (string, func()) {
		p.exec(event("status, next_retry_at", "'SENT', now()"))
		return "1 rows of outbox_events are delivered without a time", p.cured(noEvents)
	},
	"OBX-048": func(p *patient) (string, func()) {
		p.exec(event("status", "'DEAD'"), "INSERT INTO job_dlq (source, original_job_id, app_id, type, payload, "+
			"error_reason, attempts, error_history, outbox_table) SELECT 'event', gen_random_uuid(), id, 't', '{}', "+
			"'DeliveryFailed', 1, '[]', 'outbox_events' FROM apps LIMIT 1")
		p.says("OBX-048", "which is not in outbox_events any more")
		return "is dead and has no letter", p.cured(noEvents, noLetters)
	},
	"OBX-049": func(p *patient) (string, func()) {
		p.exec(event("status", "'NEW'"), debt, "UPDATE outbox_deliveries SET event_id = (SELECT id FROM outbox_events)")
		return "audit owes event", p.cured(noDebts, noEvents)
	},
	"OBX-050": func(p *patient) (string, func()) {
		p.exec(debt)
		return "audit is owed 1 event of outbox_events, and these settings have no such sink", p.cured(noDebts)
	},
	"OBX-051": func(p *patient) (string, func()) {
		p.exec(strings.Replace(livingRow, "now() + interval '1 hour'", "'2999-01-01'", 1))
		return "the lease of relay somewhere on outbox_events ends at 2999-01-01", p.remedied("OBX-051")
	},
	"OBX-052": func(p *patient) (string, func()) {
		p.exec(event("status", "'NEW'"))
		p.canary.Table = "outbox_events"
		must(p.T, p.pool.QueryRow(p.Context(), "SELECT id FROM outbox_events").Scan(&p.canary.ID))
		return "is NEW in outbox_events", func() { stop := p.relay(); p.eventuallyWell(); stop(); p.exec(noEvents) }
	},
	"OBX-053": func(p *patient) (string, func()) {
		return "2 versions are connected to this database: v9.9.8 (relay), v9.9.9 (relay)",
			p.connected("outbox relay v9.9.8", "outbox relay v9.9.9")
	},
	"OBX-054": func(p *patient) (string, func()) {
		p.exec("INSERT INTO outbox_relays (table_name, owner, name, joined_at, expires_at) SELECT 'outbox_events', " +
			"gen_random_uuid(), 'web ' || n, now() - interval '1 minute', now() - interval '10 seconds' FROM " +
			"generate_series(1, 3) n")
		return "3 processes that served outbox_events ended within a minute without giving up their lanes: web",
			p.cured(noRelays)
	},
	"OBX-055": func(p *patient) (string, func()) {
		digits := p.settings().Fingerprint()
		mine, tables, _ := strings.Cut(digits, "/")
		stop := p.relay()
		end := p.connected("outbox relay v1 000000/"+tables,
			"outbox relay v1 111111/aaa") // the last serves other tables
		p.says("OBX-055", "relays of the same tables have 2 different settings: 000000 (by a socket), "+mine+" (")
		end()
		p.exec("UPDATE outbox_relays SET joined_at = now() - interval '12 minutes'",
			"INSERT INTO outbox_relays (table_name, owner, name, joined_at, expires_at, serves) SELECT table_name, "+
				"gen_random_uuid(), 'old', joined_at, now() + interval '1 hour', replace(serves, 'default', 'audit') "+
				"FROM outbox_relays WHERE table_name = 'outbox_events'")
		return " of outbox_events have different sinks or routes for 12m: only the first has all events to ",
			func() { p.exec("DELETE FROM outbox_relays WHERE name = 'old'"); stop() }
	},
	"OBX-057": func(p *patient) (string, func()) {
		p.exec("INSERT INTO outbox_inbox_consumers (consumer, keep) VALUES ('group:billing', '36 hours'), " +
			"('group:mail', '15 days')")
		return "consumer group:billing remembers ids for 1 day 12:00:00, and events can be replayed until their rows " +
			"are removed after 7 days", p.cured("DELETE FROM outbox_inbox_consumers")
	},
	"OBX-058": func(p *patient) (string, func()) {
		p.exec("CREATE TABLE mail_log (event uuid REFERENCES outbox_events (id))",
			"CREATE TABLE copies () INHERITS (event_outbox)", "ALTER TABLE outbox_deliveries SET UNLOGGED",
			"ALTER TABLE outbox_events SET (fillfactor = 20)",
			"CREATE RULE keep AS ON DELETE TO outbox_lanes DO INSTEAD NOTHING",
			"CREATE FUNCTION seen() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
			"CREATE TRIGGER seen AFTER INSERT ON outbox_events FOR EACH ROW EXECUTE FUNCTION seen()")
		for _, says := range []string{"table copies inherits from event_outbox", "outbox_deliveries is UNLOGGED",
			"outbox_events has fillfactor=20", "rule keep of outbox_lanes",
			"trigger seen of outbox_events calls seen()"} {
			p.says("OBX-058", says)
		}
		return "foreign key mail_log_event_fkey of mail_log refers to outbox_events: a row that is referred to cannot be " +
				"removed", func() {
				p.exec("DROP TABLE mail_log, copies", "ALTER TABLE outbox_deliveries SET LOGGED",
					"ALTER TABLE outbox_events RESET (fillfactor)", "DROP RULE keep ON outbox_lanes",
					"DROP FUNCTION seen CASCADE")
			}
	},
	"OBX-059": func(p *patient) (string, func()) {
		sessions := map[string]*pgx.Conn{}
		for _, name := range []string{"report", "shop"} {
			cfg, err := pgx.ParseConfig(p.url)
			must(p.T, err)
			cfg.RuntimeParams["application_name"] = name
			sessions[name], err = pgx.ConnectConfig(p.Context(), cfg)
			must(p.T, err)
		}
		_, err := sessions["report"].Exec(p.Context(), "BEGIN; LOCK TABLE outbox_events IN SHARE MODE")
		must(p.T, err)
		written := make(chan error)
		go func() {
			_, err := sessions["shop"].Exec(p.Context(), event("tenant_id", "'acme'"))
			written <- err
		}()
		p.says("OBX-059", fmt.Sprintf(`session %d of login postgres (application "shop"`,
			sessions["shop"].PgConn().PID()))
		return fmt.Sprintf(`which is blocked by session %d of login postgres (application "report"`,
				sessions["report"].PgConn().PID()), func() {
				must(p.T, sessions["report"].Close(p.Context()))
				must(p.T, <-written)
				must(p.T, sessions["shop"].Close(p.Context()))
				p.exec(noEvents)
			}
	},
	"OBX-056": func(p *patient) (string, func()) {
		stop := p.relay()
		ended, end := make(chan struct{}), make(chan struct{})
		go func() { // whatever it takes until the relay has published something meanwhile
			defer close(ended)
			for ; ; time.Sleep(100 * time.Millisecond) {
				select {
				case <-end:
					return
				default:
					p.tell("CLIENT", "PAUSE", "1500", "ALL")
					p.exec(event("tenant_id", "'acme'"))
					p.tell("PING")
				}
			}
		}()
		return "sink default is slow for ", func() {
			close(end)
			<-ended
			for range 10 {
				p.exec(event("tenant_id", "'acme'"))
				p.delivered()
			}
			p.eventuallyWell()
			stop()
			p.exec(noEvents)
		}
	},
}

// TestProvoked makes every condition of the catalogue true, finds it, takes its cause away, and
// finds it no more.
func TestProvoked(t *testing.T) {
	tier.Full(t)
	p := newPatient(t)
	for _, c := range condition.Catalogue {
		t.Run(c.ID+" "+c.Name, func(t *testing.T) {
			p := *p
			p.T, p.asking = t, c.ID
			if provoked[c.ID] == nil {
				t.Fatal("nothing provokes it")
			}
			if c.ID != "OBX-015" && c.ID != "OBX-030" {
				p.well()
			}
			says, cure := provoked[c.ID](&p)
			p.says(c.ID, says)
			cure()
			if c.ID != "OBX-030" {
				p.well()
			}
		})
	}
}

// certified serves a certificate that ends after a while.
func certified(t *testing.T, lasts time.Duration) (address string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(lasts),
		DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	must(t, err)
	listener, err := tls.Listen("tcp", "127.0.0.1:0",
		&tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _ = conn.(*tls.Conn).HandshakeContext(context.Background()); _ = conn.Close() }()
		}
	}()
	return listener.Addr().String()
}

// closedPort is an address at which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

package endpoint

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/operatetest"
	"github.com/outboxrelay/outbox/sink/webhook"
)

// stored are the rows of a test, and the version that was read last.
type stored struct {
	rows
	t       *testing.T
	version string
}

func store(db database) *stored {
	db.t.Helper()
	return &stored{rows: rows{db}, t: db.t}
}

// changed reads the rows, which must have changed since they were read last.
func (s *stored) changed() []row {
	s.t.Helper()
	all, version, err := s.read(s.t.Context(), s.version)
	if err != nil || version == s.version {
		s.t.Fatalf("version %q, error %v, want another version", version, err)
	}
	s.version = version
	if again, same, err := s.read(s.t.Context(), version); err != nil || again != nil || same != version {
		s.t.Fatalf("asked again: %v, version %q, error %v, want nothing new", again, same, err)
	}
	return all
}

func (s *stored) do(statement string, r row, want bool) {
	s.t.Helper()
	done, err := s.change(s.t.Context(), "endpoint_"+statement, r, Change{"endpoint-" + statement, "me", "because"})
	if err != nil || done != want {
		s.t.Fatalf("%s %s: %t, error %v, want %t", statement, r.Name, done, err, want)
	}
}

// same compares rows but for what the table draws itself.
func same(a, b row) bool {
	a.Revision, b.Revision = 0, 0
	return reflect.DeepEqual(a, b)
}

// Endpoints are kept as they are, and each change is seen and on the record.
func TestRowsAreKept(t *testing.T) {
	onStores(t, func(db database) {
		s, t := store(db), db.t
		if all := s.changed(); len(all) != 0 {
			t.Fatalf("a new table has %v", all)
		}
		acme := row{Endpoint: webhook.Endpoint{Name: "acme", Tenant: "t1", Topics: []string{"order.*", "ü"},
			Types: []string{"Order"}, URL: "https://acme.example/hook?a=%20&ü", Rate: 2.5,
			Timeout: 30 * time.Second, Concurrency: 7}, Values: map[string]string{"X-A": "env:A"},
			Sealed: []sealed{{Value: "env:NEW"},
				{Value: "sealed:1:x", Until: time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)}}}
		plain := row{Endpoint: webhook.Endpoint{Name: "plain", URL: "https://plain.example", Topics: []string{},
			Types: []string{}}, Values: map[string]string{}, Sealed: []sealed{{Value: "file:/run/secret"}}}
		s.do("add", plain, true)
		s.do("add", acme, true)
		s.do("add", acme, false)
		all := s.changed()
		if len(all) != 2 || !same(all[0], acme) || !same(all[1], plain) || all[0].Revision == 0 {
			t.Fatalf("endpoints are\n%+v, want\n%+v, %+v", all, acme, plain)
		}
		acme = all[0]
		acme.URL, acme.Rate, acme.Types = "https://new.example", 0, []string{"Invoice", "Order"}
		s.do("change", acme, true)
		if all = s.changed(); !same(all[0], acme) || !same(all[1], plain) {
			t.Errorf("after a change they are %+v", all)
		}
		s.do("remove", acme, true)
		if all = s.changed(); len(all) != 1 || !same(all[0], plain) {
			t.Errorf("after a removal they are %+v", all)
		}
		s.do("remove", acme, false)
		for action, want := range map[string]int{"add": 2, "change": 1, "remove": 1} {
			n := db.one("SELECT count(*) FROM outbox_audit WHERE actor = 'me' AND action = 'endpoint-" + action + "'")
			if n != want {
				t.Errorf("the record has %d of %s, want %d", n, action, want)
			}
		}
	})
}

// Nobody overwrites what another has changed of an endpoint.
func TestRowsOfOthers(t *testing.T) {
	onStores(t, func(db database) {
		s, t := store(db), db.t
		s.do("add", row{Endpoint: webhook.Endpoint{Name: "acme", URL: "https://a.example"},
			Sealed: []sealed{{Value: "env:A"}}}, true)
		read := s.changed()[0]
		changed := read
		changed.URL = "https://b.example"
		s.do("change", changed, true)
		s.do("change", read, false)
		read.Reason = "gone"
		s.do("disable", read, false)
		now := s.changed()[0]
		if now.URL != changed.URL || !now.Since.IsZero() || now.Revision == read.Revision {
			t.Fatalf("it is %+v, want the first change alone", now)
		}
		now.Reason = "gone"
		s.do("disable", now, true)
		now = s.changed()[0]
		if time.Since(now.Since).Abs() > time.Hour || now.Reason != "gone" {
			t.Fatalf("it is %+v, want it disabled", now)
		}
		since := now.Since
		now.Rate = 3
		s.do("change", now, true)
		if now = s.changed()[0]; !now.Since.Equal(since) {
			t.Errorf("it is disabled since %s, want %s still", now.Since, since)
		}
		now.Since, now.Reason = time.Time{}, ""
		s.do("change", now, true)
		if now = s.changed()[0]; !now.Since.IsZero() || now.Reason != "" {
			t.Errorf("it is %+v, want it enabled", now)
		}
	})
}

// With 10,000 endpoints, what concerns one of them is served by the primary key. What concerns them
// all reads the table once and sorts nothing that an index has in order.
func TestPlans(t *testing.T) {
	onStores(t, func(db database) {
		explain, key := "EXPLAIN", "Index Scan using outbox_endpoints_pkey on outbox_endpoints"
		numbers := "generate_series(1, 10000) AS s(i)"
		sqlite := strings.HasSuffix(db.t.Name(), "sqlite")
		if sqlite {
			explain = "EXPLAIN QUERY PLAN"
			key = "SEARCH outbox_endpoints USING INDEX sqlite_autoindex_outbox_endpoints_1 (name=?)"
			numbers = "(WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 10000) SELECT i FROM s)"
		}
		db.exec(`INSERT INTO outbox_endpoints (name, url, secrets, revision, created_at, updated_at)
			SELECT 'e' || i, 'https://example.com/' || i, '[]', i, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP FROM ` + numbers)
		db.exec("ANALYZE outbox_endpoints")
		of, plans := operatetest.Explained(db, explain)
		s, t := store(database{of, db.t}), db.t
		one := row{Endpoint: webhook.Endpoint{Name: "e77", URL: "https://example.com/"}, Revision: 77}
		s.do("add", one, false)
		if plan := plans()[0]; !sqlite && !strings.Contains(plan, "Conflict Arbiter Indexes: outbox_endpoints_pkey") {
			t.Errorf("adding does not ask the primary key:\n%s", plan)
		}
		for _, name := range []string{"endpoint_change", "endpoint_disable", "endpoint_remove"} {
			if _, err := s.change(t.Context(), name, one, by); err != nil {
				t.Fatal(err)
			}
			plan := plans()[0]
			if !strings.Contains(plan, key) || strings.Contains(plan, "Seq Scan") || strings.Count(plan, "Scan") > 1 {
				t.Errorf("%s: want %q:\n%s", name, key, plan)
			}
		}
		if _, _, err := s.read(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		for _, plan := range plans() {
			scans := strings.Count(plan, "Scan") + strings.Count(plan, "SCAN")
			if !strings.Contains(plan, "outbox_endpoints") || scans != 1 || sqlite && strings.Contains(plan, "TEMP B-TREE") {
				t.Errorf("it reads the table more than once, or sorts it:\n%s", plan)
			}
		}
	})
}

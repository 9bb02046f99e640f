package integration

import (
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// ids are the events that came, in their order.
func (h *hook) ids() (all []string) {
	for _, one := range h.requests() {
		all = append(all, one.header.Get("webhook-id"))
	}
	return all
}

// An event for * goes to the endpoints that subscribe to its topic, type and tenant, and one that
// is added while the relay runs gets the next. One that fails has the others get no copy, and the
// dead letter names it. An event to which nobody subscribes is delivered to nobody, which is no
// failure. It is the same by a route.
func TestEndpointsSubscribe(t *testing.T) {
	tier.Full(t)
	t.Run("by destination", func(t *testing.T) { testEndpointsSubscribe(t, "outbox_events", "") })
	t.Run("by route", func(t *testing.T) {
		testEndpointsSubscribe(t, "outbox_deliveries", "routes: [{table: outbox_events, to: ['default:*']}]")
	})
}

func testEndpointsSubscribe(t *testing.T, table, settings string) {
	url := migrated(t)
	t.Setenv("OUTBOX_ENDPOINT_KEY", base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32))))
	file := filepath.Join(t.TempDir(), "outbox.yaml")
	noError(t, os.WriteFile(file, []byte(settings), 0o600))
	c := &command{t: t, environ: []string{"OUTBOX_DATABASE_URL=" + url, "OUTBOX_TABLE=outbox_events",
		"OUTBOX_MAX_ATTEMPTS=3", "OUTBOX_CONFIG=" + file,
		"OUTBOX_SINK=webhook:table?allow=private,http&schedule=50ms", "OUTBOX_BACKOFF_BASE=10ms"}}
	run := func(args ...string) string { t.Helper(); return c.run(0, "", args...) }
	c.start("relay")
	pool, err := pgxpool.New(t.Context(), url)
	noError(t, err)
	defer pool.Close()
	settled := func(id, want string) {
		t.Helper()
		c.until(func() bool {
			var status string
			column := map[string]string{"outbox_events": "id", "outbox_deliveries": "event_id"}[table]
			err := pool.QueryRow(t.Context(), "SELECT upper(status) FROM "+table+" WHERE "+column+" = $1", id).Scan(&status)
			return err == nil && (status == want || want == "SENT" && status == "DELIVERED")
		})
	}
	event := func(topic, of, tenant string) (id string) {
		t.Helper()
		to := `["*"]`
		if table != "outbox_events" {
			to = `[]`
		}
		if err := pool.QueryRow(t.Context(), `INSERT INTO outbox_events (event_topic, aggregate_type, aggregate_id, tenant_id,
			occurred_at, source_bc, payload, destination_topics) VALUES ($1, $2, '1', $3, now(), 's', '{"n": 1}', $4::jsonb)
			RETURNING id::text`, topic, of, tenant, to).Scan(&id); err != nil {
			t.Fatal(err)
		}
		return id
	}
	settled(event("order.placed", "Order", "t1"), "SENT") // nobody is there

	all, orders, types, tenant := newHook(t), newHook(t), newHook(t), newHook(t)
	run("endpoints", "add", "all", "--url", all.URL, "--topic", "*")
	run("endpoints", "add", "orders", "--url", orders.URL, "--topic", "order.*,refund", "--type", "Order")
	run("endpoints", "add", "types", "--url", types.URL, "--type", "Invoice")
	run("endpoints", "add", "tenant", "--url", tenant.URL, "--topic", "*", "--tenant", "t2")
	run("endpoints", "add", "named", "--url", all.URL)
	list := strings.Join(strings.Fields(run("endpoints", "list")), " ")
	if !strings.Contains(list, "orders order.*,refund of Order http") {
		t.Errorf("the list is %s", list)
	}
	first := event("order.paid", "Order", "t1")
	settled(first, "SENT")
	invoice := event("invoice.sent", "Invoice", "t2")
	settled(invoice, "SENT")

	orders.answers(http.StatusBadRequest)
	failing := event("order.failed", "Order", "t1")
	settled(failing, "DEAD")
	var letter string
	if err := pool.QueryRow(t.Context(), `SELECT error_history::text FROM `+table+` WHERE upper(status) = 'DEAD'`).
		Scan(&letter); err != nil || !strings.Contains(letter, `orders\" answered 400`) || strings.Contains(letter, "all") {
		t.Errorf("the dead letter says %s, error %v", letter, err)
	}
	for who, want := range map[*hook][]string{all: {first, invoice, failing}, types: {invoice}, tenant: {invoice}} {
		if got := who.ids(); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	if got := orders.ids(); len(got) != 4 || got[0] != first || got[3] != failing {
		t.Errorf("the one that fails got %v, want %s and three times %s", got, first, failing)
	}
	c.until(func() bool { return strings.Contains(c.log.String(), `"without_subscriber":1`) })
}

package integration

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// hook is an endpoint that answers with a status and records the ids of the events that it got.
type hook struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	got    []string
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{status: http.StatusNoContent}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the test does not inspect the body
		h.mu.Lock()
		defer h.mu.Unlock()
		h.got = append(h.got, r.Header.Get("webhook-id"))
		w.WriteHeader(h.status)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) answers(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

// ids returns the event ids of all requests, in their order.
func (h *hook) ids() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.got)
}

// An event for * goes to the endpoints that subscribe to its topic, type and tenant. Endpoints that
// are added to the file while the relay runs get the next event. If one endpoint fails, the others
// get no duplicates, and the dead letter names the failed one. An event without subscribers is
// delivered to no endpoint, and that is not a failure. A route behaves the same way.
func TestEndpointsSubscribe(t *testing.T) {
	tier.Full(t)
	t.Run("by destination", func(t *testing.T) { testEndpointsSubscribe(t, "outbox_events", "") })
	t.Run("by route", func(t *testing.T) {
		testEndpointsSubscribe(t, "outbox_deliveries", "routes: [{table: outbox_events, to: ['default:*']}]")
	})
}

func testEndpointsSubscribe(t *testing.T, table, settings string) {
	url := migrated(t)
	file := filepath.Join(t.TempDir(), "outbox.yaml")
	noError(t, os.WriteFile(file, []byte(settings), 0o600))
	endpoints := filepath.Join(t.TempDir(), "endpoints.yaml")
	noError(t, os.WriteFile(endpoints, nil, 0o600))
	c := &command{t: t, environ: []string{"OUTBOX_DATABASE_URL=" + url, "OUTBOX_TABLE=outbox_events",
		"OUTBOX_MAX_ATTEMPTS=3", "OUTBOX_CONFIG=" + file,
		"OUTBOX_SINK=webhook:" + endpoints + "?allow=private,http&schedule=50ms", "OUTBOX_BACKOFF_BASE=10ms"}}
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
	settled(event("order.placed", "Order", "t1"), "SENT") // without subscribers

	all, orders, types, tenant := newHook(t), newHook(t), newHook(t), newHook(t)
	entry := func(name string, h *hook, filters string) string {
		return fmt.Sprintf("  - {name: %s, url: '%s', secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=]%s}\n",
			name, h.URL, filters)
	}
	noError(t, os.WriteFile(endpoints, []byte("endpoints:\n"+entry("all", all, `, topics: ["*"]`)+
		entry("orders", orders, `, topics: ["order.*", refund], types: [Order]`)+
		entry("types", types, ", types: [Invoice]")+
		entry("tenant", tenant, `, topics: ["*"], tenant: t2`)+entry("named", all, "")), 0o600))
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

package sources

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	otelattribute "go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/outboxrelay/outbox"
	outboxotel "github.com/outboxrelay/outbox/contrib/otel"
	"github.com/outboxrelay/outbox/inbox/group"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/cli"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/source"
	"github.com/outboxrelay/outbox/store/postgres"
)

var update = flag.Bool("update", false, "write the picture of the trace into docs/guide/tracing.md")

// traced are the URLs of the sinks of the brokers, and what OpenTelemetry calls them.
var traced = map[string]struct{ url, system string }{
	"kafka": {"kafka://%s", "kafka"},
	"nats":  {"%s?create=ORDERS&subjects=order.*", "nats"},
	"redis": {"redis+stream://%s?create=true", "redis"},
}

// One trace goes from a request through the table, the relay as a command, and the broker to the
// consumer's handler. The relay's span is a trace of its own with a link to it.
func TestOneTrace(t *testing.T) {
	tier.Full(t)
	for name, to := range traced {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, address := newCollector(t), brokers[name](t).address
			url := testenv.Prepared(t, "log", func(ctx context.Context, url string) error {
				return pgmigrations.Up(ctx, url, "core", "log")
			})
			stop := outboxRelay(t, url, fmt.Sprintf(to.url, address), c.URL)
			order(t, c, url)
			consume(t, c, url, name, address)
			stop() // and sends what it has
			isOneTrace(t, c, to.system)
			areListed(t, c)
			if name == "redis" {
				pictured(t, c)
			}
		})
	}
}

// outboxRelay runs the command until stop, or the end of the test.
func outboxRelay(t *testing.T, database, sink, otlp string, more ...string) (stop func() (said string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	said, ended := new(strings.Builder), make(chan int, 1)
	go func() {
		args := append([]string{"relay", "--database", database, "--sink", sink, "--table", "outbox_events", "--otlp", otlp},
			more...)
		ended <- cli.Main(ctx, args, cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: said}, nil, app.Sinks())
	}()
	stop = sync.OnceValue(func() string {
		cancel()
		select {
		case code := <-ended:
			if code != 0 || t.Failed() {
				t.Errorf("outbox relay: exit code %d:\n%s", code, said)
			}
			return said.String()
		case <-time.After(tier.Patience()):
			t.Error("outbox relay does not end")
			return ""
		}
	})
	t.Cleanup(func() { stop() })
	return stop
}

// service returns what makes spans, and sends them at once.
func service(t *testing.T, c *collector, name string) *sdktrace.TracerProvider {
	t.Helper()
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(c.URL+"/v1/traces"))
	must(t, err)
	p := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter),
		sdktrace.WithResource(resource.NewSchemaless(otelattribute.String("service.name", name))))
	t.Cleanup(func() { must(t, p.Shutdown(context.WithoutCancel(t.Context()))) })
	return p
}

// order asks a service for an order, which it notes with an event.
func order(t *testing.T, c *collector, url string) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	must(t, err)
	t.Cleanup(pool.Close)
	shop := service(t, c, "shop")
	tracing, err := outboxotel.New(outboxotel.Config{TracerProvider: shop, Create: true})
	must(t, err)
	w, err := postgres.NewWriter(outbox.WriterConfig{Source: "shop", Fill: tracing.Fill})
	must(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		ctx, span := shop.Tracer("http").Start(r.Context(), "POST /orders", trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			return w.Write(ctx, tx, outbox.Event{Topic: destination, AggregateID: "42", Payload: []byte(`{"key": "42"}`)})
		})
		if err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	answer, err := http.Post(server.URL+"/orders", "", nil)
	must(t, err)
	must(t, answer.Body.Close())
	if answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status)
	}
}

// consume has what the broker brings written into a log, and handled by a group.
func consume(t *testing.T, c *collector, url, name, address string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	pool, err := pgxpool.New(ctx, url)
	must(t, err)
	db, err := postgres.Connect(ctx, url, postgres.Config{})
	must(t, err)
	tracing, err := outboxotel.New(outboxotel.Config{TracerProvider: service(t, c, "billing"), Parent: true})
	must(t, err)
	g, err := group.New(db, postgres.Transactions(pool), group.Config{Name: "billing"})
	must(t, err)
	handled := make(chan struct{}, 1)
	group.Handle(g, destination, outboxotel.Handle(tracing, "billing",
		func(ctx context.Context, tx pgx.Tx, _ group.Message[placed]) error {
			_, err := tx.Exec(ctx, "SELECT 1")
			handled <- struct{}{}
			return err
		}))
	w, err := postgres.NewWriter(outbox.WriterConfig{Table: outbox.OutboxLog().Table})
	must(t, err)
	until(t, "the event is delivered", func() bool { // and so the relay has made the stream
		var sent int
		must(t, pool.QueryRow(ctx, "SELECT count(*) FROM outbox_events WHERE status = 'SENT'").Scan(&sent))
		return sent == 1
	})
	from, err := sources[name](address)
	must(t, err)
	ended := make(chan error, 2)
	go func() { ended <- g.Run(ctx) }()
	go func() {
		defer from.close()
		ended <- source.Run(ctx, from, postgres.Transactions(pool), w.Write, source.Config{Name: "orders"})
	}()
	t.Cleanup(func() {
		stop()
		for range cap(ended) {
			must(t, <-ended)
		}
		db.Close()
		pool.Close()
	})
	<-handled
	until(t, "the handler's span comes", func() bool { return len(c.of("process "+destination)) > 0 })
}

func isOneTrace(t *testing.T, c *collector, system string) {
	t.Helper()
	request, create := c.one(t, "POST /orders"), c.one(t, "create "+destination)
	send, process := c.one(t, "send "+destination), c.one(t, "process "+destination)
	for _, s := range []struct {
		span    span
		kind    traces.Span_SpanKind
		service string
		trace   string
		parent  string
		system  string
	}{
		{request, traces.Span_SPAN_KIND_SERVER, "shop", id(request.TraceId), "", ""},
		{create, traces.Span_SPAN_KIND_PRODUCER, "shop", id(request.TraceId), id(request.SpanId), "outbox"},
		{send, traces.Span_SPAN_KIND_CLIENT, "outbox", id(send.TraceId), "", system},
		{process, traces.Span_SPAN_KIND_CONSUMER, "billing", id(request.TraceId), id(create.SpanId), "outbox"},
	} {
		if s.span.Kind != s.kind || s.span.service != s.service || id(s.span.TraceId) != s.trace ||
			id(s.span.ParentSpanId) != s.parent || attribute(s.span.Attributes, "messaging.system") != s.system ||
			s.span.Status.GetCode() == traces.Status_STATUS_CODE_ERROR {
			t.Errorf("%s is %v of %s, want %+v", s.span.Name, s.span, s.span.service, s)
		}
	}
	if id(send.TraceId) == id(request.TraceId) || len(send.Links) != 1 || len(process.Links) != 0 {
		t.Fatalf("%s is of trace %x, with links %v", send.Name, send.TraceId, send.Links)
	}
	link := send.Links[0]
	if id(link.TraceId) != id(create.TraceId) || id(link.SpanId) != id(create.SpanId) ||
		attribute(link.Attributes, "messaging.message.id") != attribute(process.Attributes, "messaging.message.id") {
		t.Errorf("%s has the link %v", send.Name, link)
	}
	latency := c.metrics["outbox_delivery_latency_seconds"].GetHistogram()
	if latency == nil || latency.DataPoints[0].GetCount() != 1 || len(latency.DataPoints[0].Exemplars) != 1 ||
		id(latency.DataPoints[0].Exemplars[0].TraceId) != id(request.TraceId) {
		t.Errorf("the latencies are %v, want one with the request's trace", latency)
	}
}

// areListed asks for what came as metrics in the page of the metrics that Prometheus gets.
func areListed(t *testing.T, c *collector) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/reference/metrics.md")
	must(t, err)
	own := 0
	for name := range c.metrics {
		if strings.HasPrefix(name, "outbox_") {
			own++
			if !strings.Contains(string(page), "\n| `"+name+"` | ") {
				t.Errorf("the metric %s is none of Prometheus's", name)
			}
		}
	}
	published := c.metrics["outbox_published_total"].GetSum()
	if own < 20 || published == nil || !published.IsMonotonic || published.DataPoints[0].GetAsDouble() != 1 {
		t.Errorf("%d metrics came, events published are %v", own, published)
	}
}

// A collector that is away, refuses or does not answer costs no event and does not hold up the
// relay, nor its end. The relay says so.
func TestCollectorAway(t *testing.T) {
	tier.Full(t)
	// Each batch is a span and an attempt to send it, and there is room for few.
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "2")
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000") // ms: it is not the exporter's patience that ends it
	released := make(chan struct{})
	for name, answer := range map[string]http.HandlerFunc{
		"away":     nil,
		"refusing": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"denying":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"slow":     func(http.ResponseWriter, *http.Request) { <-released },
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				answer(w, r)
			}))
			if answer == nil {
				server.Close()
			}
			url := testenv.Prepared(t, "log", func(ctx context.Context, url string) error {
				return pgmigrations.Up(ctx, url, "core", "log")
			})
			pool, err := pgxpool.New(t.Context(), url)
			must(t, err)
			t.Cleanup(pool.Close)
			const events = 500
			_, err = pool.Exec(t.Context(), `INSERT INTO outbox_events (id, event_topic, occurred_at, aggregate_id, source_bc, payload)
				SELECT gen_random_uuid(), 'order.placed', now(), n, 'shop', '1' FROM generate_series(1, $1) n`, events)
			must(t, err)
			redis := redisBroker(t)
			stop := outboxRelay(t, url, fmt.Sprintf(traced["redis"].url, redis.address), server.URL, "--batch", "10")
			until(t, "all events are delivered", func() bool {
				var sent int
				must(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM outbox_events WHERE status = 'SENT'").Scan(&sent))
				return sent == events
			})
			until(t, "the collector was asked", func() bool { return answer == nil || asked.Load() > 0 })
			said := stop()
			if !strings.Contains(said, "cannot send to OpenTelemetry") && !strings.Contains(said, "not all that was measured") {
				t.Errorf("the relay says nothing of it:\n%s", said)
			}
			if name == "slow" {
				close(released)
			}
			server.Close()
		})
	}
}

// pictured compares the page of the docs with the spans that came.
func pictured(t *testing.T, c *collector) {
	t.Helper()
	names := map[string]string{}
	for _, s := range c.all() {
		names[id(s.SpanId)] = s.Name
	}
	var picture strings.Builder
	var rows []span
	var draw func(parent, indent string)
	draw = func(parent, indent string) {
		for _, s := range c.all() {
			if id(s.ParentSpanId) != parent {
				continue
			}
			rows = append(rows, s)
			kind := strings.ToLower(strings.TrimPrefix(s.Kind.String(), "SPAN_KIND_"))
			line := fmt.Sprintf("%-32s %-9s %-9s", indent+s.Name, kind, s.service)
			for _, l := range s.Links {
				line += " link to " + names[id(l.SpanId)]
			}
			fmt.Fprintf(&picture, "    %s\n", strings.TrimRight(line, " "))
			draw(id(s.SpanId), indent+"  ")
		}
	}
	draw("", "")
	const page, begin, end = "../../../docs/guide/tracing.md", "<!-- spans -->\n\n", "\n<!-- end -->"
	const drawing = "../../../docs/guide/tracing.svg"
	text, err := os.ReadFile(page)
	must(t, err)
	before, rest, found := strings.Cut(string(text), begin)
	old, after, ends := strings.Cut(rest, end)
	switch {
	case !found || !ends:
		t.Fatalf("%s has no place for the picture", page)
	case *update:
		must(t, os.WriteFile(drawing, []byte(drawn(rows)), 0o600))
		must(t, os.WriteFile(page, []byte(before+begin+picture.String()+end+after), 0o600))
	case old != picture.String():
		t.Errorf("%s has\n%s\nbut what came is (-update writes it)\n%s", page, old, picture.String())
	}
}

// drawn is an SVG of spans, each a bar from its beginning to its end, with an arrow to what it has
// a link to.
func drawn(rows []span) string {
	const label, width, height = 330, 560, 26
	first, last, at := rows[0].StartTimeUnixNano, uint64(0), map[string]int{}
	for i, s := range rows {
		last, at[id(s.SpanId)] = max(last, s.EndTimeUnixNano), i
	}
	x := func(t uint64) int { return label + int((t-first)*width/(last-first)) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="monospace" font-size="12">
<rect width="100%%" height="100%%" fill="#fff"/>
`, label+width+110, height*len(rows)+10)
	colours := map[string]string{"shop": "#2563eb", "outbox": "#d97706", "billing": "#059669"}
	for i, s := range rows {
		from, y := x(s.StartTimeUnixNano), i*height+8
		size := max(x(s.EndTimeUnixNano)-from, 3)
		fmt.Fprintf(&b, `<text x="8" y="%d">%s: %s</text>`, y+13, s.service, s.Name)
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="18" rx="3" fill="%s"/>`, from, y, size, colours[s.service])
		took := float64(s.EndTimeUnixNano-s.StartTimeUnixNano) / 1e6
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#555">%.1f ms</text>`, from+size+6, y+13, took)
		for _, l := range s.Links {
			to := at[id(l.SpanId)]
			fmt.Fprintf(&b, `<path d="M%d %d L%d %d" stroke="#d97706" stroke-dasharray="4 3" fill="none"/>`, from, y+9,
				x(rows[to].EndTimeUnixNano)+2, to*height+17)
		}
		b.WriteString("\n")
	}
	return b.String() + "</svg>\n"
}

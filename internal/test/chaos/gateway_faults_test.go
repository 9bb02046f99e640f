package chaos

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/server/crawl"
)

// gatewayFault is one line of the table of what people do to a gateway.
type gatewayFault struct {
	name   string
	sqlite bool
	flags  []string
	strike func(*served) (struck int, about string)
}

var gatewayFaults = []gatewayFault{
	{name: "list-asked-by-60-who-do-not-read", strike: listNotRead},
	{name: "token-revoked-while-streaming", strike: tokenRevoked},
	{name: "token-expired-while-streaming", strike: tokenExpired},
	{name: "token-over-while-streaming-sqlite", sqlite: true, strike: tokenOver},
	{name: "topics-flood", strike: topicsFlood},
	{name: "token-in-log", strike: tokenInLog},
	{name: "hostile-requests", strike: hostileRequests},
	{name: "hostile-requests-sqlite", sqlite: true, strike: hostileRequests},
}

// forgeries are faults of streams: every viewer must end up with the log of its run, and nothing
// may disconnect it.
var forgeries = []streamFault{
	{name: "run-channel-forged-row", flags: []string{"--table", "outbox_events"}, view: view{stay: true},
		strike: forgedRow},
	{name: "run-channel-forged-publish", view: view{stay: true}, strike: forgedPublish},
}

// TestGatewayChaos runs the table.
func TestGatewayChaos(t *testing.T) {
	t.Parallel()
	for _, f := range gatewayFaults {
		row(t, f.name, false, func(t *testing.T) {
			s := serveWithTokens(t, f.name, f.sqlite, f.flags...)
			struck, about := f.strike(s)
			if s.process.running() {
				s.process.terminate(t)
			} else {
				t.Errorf("the gateway has ended: %v", s.process.err)
			}
			line(t, f.name, struck, s.began, "%s", about)
		})
	}
	for _, f := range forgeries {
		row(t, f.name, false, func(t *testing.T) {
			s := newStreaming(t, f)
			s.begin()
			s.finish(f.strike(s))
		})
	}
}

// listNotRead is the largest list, asked for by sixty connections that read nothing of it, beside a
// tenant that asks for a little.
func listNotRead(s *served) (struck int, about string) {
	const clients, most = 60, 300 // MB
	_, hostile := s.token("acme", "read")
	_, other := s.token("beta", "read")
	s.exec(`INSERT INTO crawl_runs (tenant_id, app_package, goal, device_config)
		SELECT 'acme', 'a', repeat(chr(128169), 10000), jsonb_build_object('a', repeat('x', 16000)) FROM generate_series(1, 500)`)
	s.exec(`INSERT INTO crawl_runs (tenant_id, app_package) VALUES ('beta', 'b')`)
	for range 20 {
		s.expect(200, other, "GET", "/v1/runs?limit=1", "")
	}
	before := s.peak()
	for range clients {
		s.raw("GET /v1/runs?limit=500 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + hostile + "\r\n\r\n")
	}
	var took []time.Duration
	for end := time.Now().Add(12 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		began := time.Now()
		s.expect(200, other, "GET", "/v1/runs?limit=1", "")
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	if peak := s.peak(); peak > most {
		s.t.Errorf("the gateway had %d MB, want %d at most", peak, most)
	}
	if p99 > time.Second { // 100 ms on a machine that does nothing else
		s.t.Errorf("another tenant waited %s for a page of one run, want 100 ms", p99)
	}
	eventually(s.t, "each is answered or cut off",
		func() bool { return strings.Count(s.process.said(), `"query":"limit=500"`) == clients })
	return clients,
		fmt.Sprintf("resident %d MB before, %d MB at most; another tenant's %d requests meanwhile p50 %s, p99 %s, max %s",
			before, s.peak(), len(took),
			took[len(took)/2].Round(time.Millisecond/10), p99.Round(time.Millisecond/10),
			took[len(took)-1].Round(time.Millisecond/10))
}

// overWithin is how long a stream may outlive its token.
const overWithin = 5 * time.Second // 2 s, and what a busy machine needs

// untilEnd reads a stream of a run, appending to it meanwhile, until it has ended since over was
// called. It must have ended properly, in time.
func (s *served) untilEnd(reader, writer, run string, over func() time.Time) (after time.Duration, events int) {
	s.t.Helper()
	resp := s.open(reader, "/v1/runs/"+run+"/stream")
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		s.t.Fatalf("open the stream: %d", resp.StatusCode)
	}
	var seen atomic.Int64
	ended := make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "event: ") {
				seen.Add(1)
			}
		}
		ended <- lines.Err()
	}()
	add := func() {
		s.expect(201, writer, "POST", "/v1/runs/"+run+"/events", `{"events":[{"type":"ACTION_EXECUTED"}]}`)
	}
	add()
	eventually(s.t, "the stream has events", func() bool { return seen.Load() == 2 })
	began := over()
	for {
		select {
		case err := <-ended:
			if after = time.Since(began); err != nil || after > overWithin {
				s.t.Errorf("the stream ended %s after its token, with %v; want within %s and properly", after, err, overWithin)
			}
			if status, _ := s.ask(reader, "GET", "/v1/runs/"+run+"/stream", ""); status != http.StatusUnauthorized {
				s.t.Errorf("it may come back: %d", status)
			}
			return after, int(seen.Load())
		case <-time.After(500 * time.Millisecond):
			add()
		}
		if time.Since(began) > 2*overWithin {
			s.t.Fatalf("the stream goes on %s after its token", time.Since(began))
		}
	}
}

func tokenRevoked(s *served) (struck int, about string) {
	id, reader := s.token("acme", "read")
	_, writer := s.token("acme", "read,write,operate")
	run := s.run(writer, `{"appPackage":"a"}`)
	after, events := s.untilEnd(reader, writer, run, func() time.Time {
		s.outbox("token", "revoke", "--yes", id)
		return time.Now()
	})
	if n := s.number("SELECT count(*) FROM outbox_audit WHERE action = 'token revoke' AND filter->>'token' = $1",
		id); n != 1 {
		s.t.Errorf("%d entries of the revocation in outbox_audit", n)
	}
	if !strings.Contains(s.process.said(), fmt.Sprintf(`"token":%q`, id)) ||
		!strings.Contains(s.process.said(), `"refused":"revoked"`) {
		s.t.Error("the log does not say who was refused, and why")
	}
	return 1, fmt.Sprintf("ended %s after the revocation, with %d events", after.Round(100*time.Millisecond), events)
}

func tokenExpired(s *served) (struck int, about string) {
	began := time.Now()
	_, reader := s.token("acme", "read", "--expires", "6s")
	_, writer := s.token("acme", "read,write,operate")
	run := s.run(writer, `{"appPackage":"a"}`)
	after, events := s.untilEnd(reader, writer, run, func() time.Time { return began.Add(6 * time.Second) })
	if !strings.Contains(s.process.said(), `"refused":"expired"`) {
		s.t.Error("the log does not say why it was refused")
	}
	return 1, fmt.Sprintf("ended %s after its time, with %d events", after.Round(100*time.Millisecond), events)
}

// tokenOver is both, one after the other.
func tokenOver(s *served) (struck int, about string) {
	id, reader := s.token("acme", "read")
	_, writer := s.token("acme", "read,write,operate")
	run := s.run(writer, `{"appPackage":"a"}`)
	revoked, _ := s.untilEnd(reader, writer, run, func() time.Time {
		s.outbox("token", "revoke", "--yes", id)
		return time.Now()
	})
	began := time.Now()
	_, reader = s.token("acme", "read", "--expires", "6s")
	run = s.run(writer, `{"appPackage":"a"}`)
	expired, _ := s.untilEnd(reader, writer, run, func() time.Time { return began.Add(6 * time.Second) })
	return 2, fmt.Sprintf("ended %s after the revocation, %s after its time", revoked.Round(100*time.Millisecond),
		expired.Round(100*time.Millisecond))
}

// topicsFlood is one token that names as many topics as it is let.
func topicsFlood(s *served) (struck int, about string) {
	const each, limit = 50, 1000
	_, flooding := s.token("acme", "read")
	_, other := s.token("beta", "read")
	var open []io.Closer
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for n := range 40 {
		var topics []string
		for i := range each {
			topics = append(topics, fmt.Sprintf("%s.%d.%d", strings.Repeat("t", 100), n, i))
		}
		resp := s.open(flooding, "/v1/stream?topics="+strings.Join(topics, ",")) //nolint:bodyclose // kept open
		open = append(open, resp.Body)
		switch resp.StatusCode {
		case http.StatusOK:
		case http.StatusTooManyRequests:
			text, _ := io.ReadAll(resp.Body)
			if struck++; !strings.Contains(string(text), "different topics") || n < limit/each {
				s.t.Errorf("stream %d is refused with %s", n, text)
			}
		default:
			s.t.Fatalf("stream %d: %d", n, resp.StatusCode)
		}
	}
	if struck != 40-limit/each {
		s.t.Errorf("%d streams were refused", struck)
	}
	again := s.open(flooding, "/v1/stream?topics="+strings.Repeat("t", 100)+".0.0") //nolint:bodyclose // kept open
	others := s.open(other, "/v1/stream?topics=order.placed")                       //nolint:bodyclose // kept open
	open = append(open, again.Body, others.Body)
	if again.StatusCode != http.StatusOK || others.StatusCode != http.StatusOK {
		s.t.Errorf("a topic that is followed: %d, another tenant: %d", again.StatusCode, others.StatusCode)
	}
	return struck, fmt.Sprintf("%d topics followed, resident %d MB", limit+1, s.peak())
}

// forgedRow writes rows of another table that go to the channels of runs.
func forgedRow(s *streaming) (struck int) {
	for range 15 {
		run := s.ids[s.rng.IntN(len(s.ids))]
		for ahead, of := range []string{crawl.ActionExecuted, crawl.RunCompleted} {
			s.exec(`INSERT INTO outbox_events (event_topic, occurred_at, tenant_id, source_bc, aggregate_id, payload, destination_topics, position)
				SELECT $1, now(), 'default', 'x', $2::uuid::text, '{"forged": true}', jsonb_build_array('run:' || $2::uuid), max(seq) + $3::int + 1 FROM crawl_events WHERE crawl_id = $2::uuid
				ON CONFLICT DO NOTHING`, of, run, ahead)
		}
		s.arrives(3)
	}
	s.eventually("the forged rows are dead", `SELECT count(*) = 0 FROM outbox_events WHERE status IN ('NEW', 'FAILED')`)
	return s.number(`SELECT count(*) FROM job_dlq WHERE error_history::text LIKE '%is reserved for the events of another table%'`)
}

// forgedPublish is somebody who may PUBLISH what the relay would.
func forgedPublish(s *streaming) (struck int) {
	for range 60 {
		run := s.ids[s.rng.IntN(len(s.ids))]
		top := s.number("SELECT max(seq) FROM crawl_events WHERE crawl_id = $1", run)
		for ahead, of := range []string{crawl.RunCompleted, crawl.ActionExecuted, crawl.RunFailed} {
			e := crawl.Event{Run: run, Tenant: crawl.DefaultTenant, Seq: int64(top + ahead), ID: uuid.New(), Type: of,
				CreatedAt: time.Now(), Payload: []byte(`{"forged": true}`)}
			d := e.Delivery()
			heard, _ := s.command("PUBLISH", "run:"+run.String(), outbox.CloudEvent(nil, &d)).(int64)
			struck += int(heard)
		}
		s.arrives(1)
	}
	return struck
}

// tokenInLog puts tokens where they do not belong, and looks for them in the log and the answers.
func tokenInLog(s *served) (struck int, about string) {
	id, text := s.token("acme", "read,write,operate")
	secret := text[strings.LastIndex(text, "_")+1:]
	var ticket struct{ Ticket string }
	decode(s.t, s.expect(201, text, "POST", "/v1/stream-tickets", ""), &ticket)
	var all sync.WaitGroup
	for _, place := range []string{
		"GET /v1/runs/%s", "GET /v1/runs?%s", "GET /v1/runs?%s=1", "GET /v1/runs?x=%s", "GET /v1/runs?cursor=%s",
		"GET /v1/runs?status=%s", "GET /v1/runs;token=%s",
		"GET /v1/runs?a=b;token=%s", "GET /%s", "GET /v1/stream?%s", "GET /v1/stream?topics=a&%s",
		"GET /v1/stream?topics=run:%s", "GET /v1/stream?topics=a&ticket=%s",
		"GET /v1/stream?topics=a&lastEventId=%s", "POST /v1/runs/%s/start", "PUT /%s", "%s /v1/runs",
	} {
		for _, secret := range []string{text, ticket.Ticket, strings.ToUpper(text),
			strings.Replace(text, "obx_", "%6fbx_", 1), strings.Replace(text, "obx_", "%256fbx_", 1)} {
			request := strings.Replace(place, "%s", secret, 1) + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
			all.Go(func() {
				for _, more := range []string{"", "X-Request-Id: " + secret + "\r\n",
					"Authorization: Bearer " + text + "\r\nX-Request-Id: " + secret + "\r\n"} {
					if _, answer := s.exchange(request + more + "\r\n"); strings.Contains(strings.ToLower(answer),
						secret[len(secret)-40:]) {
						s.t.Errorf("%s: the answer has it: %s", place, answer)
					}
				}
			})
		}
	}
	all.Wait()
	said := strings.ToLower(s.process.said())
	for what, part := range map[string]string{"token": secret, "ticket": ticket.Ticket[4:]} {
		if strings.Contains(said, part[:40]) || strings.Contains(said, part[len(part)-40:]) {
			s.t.Errorf("the %s is in the log", what)
		}
	}
	if !strings.Contains(said, fmt.Sprintf(`"token":%q`, id)) || !strings.Contains(said, `"remote":"127.0.0.1:`) {
		s.t.Error("the log does not say who asked")
	}
	struck = strings.Count(said, `"msg":"request"`)
	return struck, "lines, none with a token or ticket"
}

package integration

import (
	"bytes"
	"fmt"
	"net/http"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"
	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/outboxrelay/outbox/internal/testenv"
)

// natsAt starts a NATS server with JetStream at a port, 0 for a free one.
func natsAt(t *testing.T, dir string, port int) *natsserver.Server {
	t.Helper()
	if port == 0 {
		port = natsserver.RANDOM_PORT
	}
	s, err := natsserver.NewServer(&natsserver.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(testenv.Patience) {
		t.Fatal("no NATS server")
	}
	return s
}

// serveCommand starts `outbox serve` and returns where it serves the API and its metrics.
func serveCommand(t *testing.T, database string, args ...string) (api, health string) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, append([]string{"serve", "--database", database, "--http", "127.0.0.1:0", "--listen",
		"127.0.0.1:0", "--auth", "none"}, args...)...)
	var log said
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended, which it must not have
		if err := <-ended; err != nil {
			t.Errorf("outbox serve ended with %v", err)
		}
		if t.Failed() {
			t.Logf("outbox serve said:\n%s", &log)
		}
	})
	address := func(message string) string {
		found := regexp.MustCompile(`"` + message + `".*"address":"([^"]+)"`)
		until(t, &log, func() bool { return found.MatchString(log.String()) })
		return "http://" + found.FindStringSubmatch(log.String())[1]
	}
	return address("serving the API"), address("listening")
}

// A gateway hears runs and topics at NATS as it does at Redis. While NATS is away runs come from the database, and a
// stream of a topic is told afterwards that it may have missed something.
func TestGatewayHearsNATS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	nats := natsAt(t, dir, 0)
	database := migrated(t)
	api, health := serveCommand(t, database,
		"--sink", nats.ClientURL()+"?create=EVENTS&subjects=order.>,run.>", "--destination", "crawl_outbox=run.{key}")
	d := &developing{t: t, database: database, url: api}
	post := func(path, body string) string {
		t.Helper()
		status, answer := d.call(http.MethodPost, path, body)
		if status >= 300 {
			t.Fatalf("POST %s: status %d: %s", path, status, answer)
		}
		return answer
	}
	id := regexp.MustCompile(`"runId":"([^"]+)"`).FindStringSubmatch(post("/v1/runs", `{"appPackage":"shop"}`))
	if id == nil {
		t.Fatal("the API made no run")
	}
	run := uuid.MustParse(id[1])
	post("/v1/runs/"+run.String()+"/start", "{}")
	b := &tab{url: api + "/v1/stream?topics=run:" + run.String() + ",order.placed", runs: map[string][]string{}}
	leave := b.watch(t)
	b.has(t, 0, map[uuid.UUID]int{run: 1}, 0)
	placed, appended := 0, 1
	order := func(count int) {
		t.Helper()
		var lines bytes.Buffer
		for range count {
			placed++
			for _, tenant := range []string{"other", "default"} {
				fmt.Fprintf(&lines, `{"topic":"order.placed","key":"one","tenant":%q,"payload":{"n":%d}}`+"\n", tenant, placed)
			}
		}
		d.command(lines.String(), "write", "--jsonl", "--aggregate-type", "Order", "--source", "shop")
	}
	step := func(count int) {
		t.Helper()
		appended += count
		post("/v1/runs/"+run.String()+"/events", `{"events":[`+
			strings.TrimSuffix(strings.Repeat(`{"type":"ACTION_EXECUTED","payload":{"tap":true}},`, count), ",")+`]}`)
	}
	order(10)
	step(5)
	b.has(t, 10, map[uuid.UUID]int{run: appended}, 0)
	metric := func(name string) int {
		t.Helper()
		_, text := (&developing{t: t, url: health}).call(http.MethodGet, "/metrics", "")
		found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("no metric %s in:\n%s", name, text)
		}
		n, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	// One channel is the run's and one the topic's, whose orders have come by no other way.
	if up, channels, heard := metric("outbox_stream_broker_up"), metric("outbox_stream_channels"),
		metric("outbox_stream_live_total"); up != 1 || channels != 2 || heard < placed {
		t.Errorf("broker up %d, %d channels, %d events heard live", up, channels, heard)
	}

	port := nats.Addr().(interface{ AddrPort() netip.AddrPort }).AddrPort().Port()
	nats.Shutdown()
	nats.WaitForShutdown()
	eventually(t, "the gateway knows that NATS is away", func() bool { return metric("outbox_stream_broker_up") == 0 })
	step(5)
	b.has(t, 10, map[uuid.UUID]int{run: appended}, 0)
	natsAt(t, dir, int(port))
	b.has(t, 10, nil, 1)
	order(5)
	eventually(t, "the last order is heard", func() bool { // a copy of one, whose answer was lost, is heard too
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.orders[len(b.orders)-1] == placed
	})
	leave()
	if !slices.IsSorted(b.orders) {
		t.Errorf("orders %v, want them in their order", b.orders)
	}
	for i, seq := range b.runs[run.String()] {
		if seq != fmt.Sprintf("%019d", i+1) {
			t.Errorf("place %d of the run has event %s", i, seq)
		}
	}
}

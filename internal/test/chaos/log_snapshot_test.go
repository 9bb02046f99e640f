package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/outboxtest"
)

// TestSnapshotHeldOnLog runs a log under load: `make snapshot-log MINUTES=10 RATE=2000`. A session
// of the same database and one of another hold a snapshot all the time, and transactions that have
// written an event commit a fifth of the time later. It writes the log's size, its dead rows and
// its lag, second by second, as JSON and as a plot, and compares what was written with what
// arrived.
func TestSnapshotHeldOnLog(t *testing.T) {
	tier.All(t)
	t.Parallel()
	if *lasts == 0 || *rate == 0 {
		tier.Skip(t, "needs a flag", "needs the flag -soak; run: make snapshot-log")
	}
	w := newWorld(t, fault{name: "snapshot-held-log", postgres: own,
		load: load{producers: 6, perSecond: *rate, keys: 500, events: 39}})
	inLog(func(*world) int { return 0 })(w)
	sessions := w.holdElsewhere()
	retention := (*lasts / 5).String()
	w.relay(nil, "--retention", retention)
	w.relay(nil, "--retention", retention)
	w.produce()
	w.arrive(1)
	run := logRun{world: w, waiting: map[string]time.Time{}, early: map[string]time.Time{}}
	late := run.commitLate(*lasts / 5)
	for end := time.Now().Add(*lasts); time.Now().Before(end); {
		time.Sleep(time.Until(w.began.Add(time.Duration(len(run.samples)+1) * time.Second)))
		run.sample()
		for _, r := range w.relays {
			if !r.running() {
				t.Fatalf("a relay has ended: %v", r.err)
			}
		}
	}
	if n := w.number(`SELECT count(*) FROM pg_stat_activity WHERE pid = ANY ($1) AND backend_xmin IS NOT NULL`,
		sessions); n != len(sessions) {
		t.Errorf("%d of %d sessions still hold their snapshot", n, len(sessions))
	}
	committed := late()
	w.healed(takeOver)
	w.finish("snapshot-held-log", committed)
	figures, err := json.Marshal(run.samples)
	w.must(err)
	w.must(os.WriteFile(*out+".json", append(figures, '\n'), 0o644))
	w.must(os.WriteFile(*out+".svg", run.plot(), 0o644))
}

// holdElsewhere opens a session with a snapshot in this database, which has read another table, and
// one in another database. It returns their processes.
func (w *world) holdElsewhere() (processes []int32) {
	w.t.Helper()
	w.exec("CREATE DATABASE neighbour")
	for _, database := range []string{w.database(), "neighbour"} {
		conn, _ := w.session(database)
		_, err := conn.Exec(w.t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class`)
		w.must(err)
		processes = append(processes, int32(conn.PgConn().PID()))
	}
	return processes
}

// logSample is one second of a run.
type logSample struct {
	Second int     `json:"second"`
	Sent   int     `json:"events"`  // that have arrived in it
	MB     float64 `json:"mb"`      // of the log and its positions, indexes too
	Dead   int     `json:"dead"`    // rows of the log
	Noted  int     `json:"noted"`   // dead rows of the positions
	Median float64 `json:"p50_ms"`  // from the commit's reply to the subscriber
	Most   float64 `json:"max_ms"`  // likewise
	Behind int     `json:"waiting"` // acknowledged and not arrived
	Undone int     `json:"undone"`  // rows that producers have rolled back, since the beginning
}

// logRun is what has been sampled of a world.
type logRun struct {
	*world
	samples        []logSample
	noted, arrived int                  // how much of what was written and received is counted
	waiting        map[string]time.Time // when they were acknowledged
	early          map[string]time.Time // of those that arrived before: when
	undone         int
}

// commitLate begins transactions, one after the other, that write an event at once and commit so
// much later. What is returned waits for the last one, and tells how many there were.
func (r *logRun) commitLate(after time.Duration) (end func() int) {
	stop, done := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { done <- n }()
		for {
			tx, err := r.pool.Begin(context.Background())
			if err != nil {
				r.t.Error(err)
				return
			}
			e := outbox.Event{ID: uuid.New(), Topic: "order.changed", AggregateType: "Order",
				AggregateID: fmt.Sprint("late", n), Payload: json.RawMessage("{}")}
			if err := r.writer.Write(context.Background(), tx, e); err != nil {
				r.t.Error(err)
				return
			}
			var stopped bool
			select {
			case <-stop:
				stopped = true
			case <-time.After(after):
			}
			if err := tx.Commit(context.Background()); err != nil {
				r.t.Error(err)
				return
			}
			n++
			r.note(outboxtest.Written{ID: e.ID.String(), Key: e.AggregateID, Order: 1, Outcome: outboxtest.Acknowledged,
				At: time.Now()})
			if stopped {
				return
			}
		}
	}()
	return func() int { close(stop); return <-done }
}

// sample adds a second.
func (r *logRun) sample() {
	r.t.Helper()
	s := logSample{Second: len(r.samples) + 1}
	const tables = `SELECT sum(pg_total_relation_size(relid)) / 1e6,
			sum(n_dead_tup) FILTER (WHERE relname <> 'outbox_log_positions'),
			sum(n_dead_tup) FILTER (WHERE relname = 'outbox_log_positions')
		FROM pg_stat_user_tables WHERE relname ~ '^outbox_log_([0-3]|positions)$'`
	r.must(r.pool.QueryRow(r.t.Context(), tables).Scan(&s.MB, &s.Dead, &s.Noted))
	r.mu.Lock()
	written := r.written[r.noted:]
	r.mu.Unlock()
	r.heard.mu.Lock()
	received := r.heard.received[r.arrived:]
	r.heard.mu.Unlock()
	r.noted, r.arrived = r.noted+len(written), r.arrived+len(received)
	for _, e := range written {
		_, early := r.early[e.ID]
		switch {
		case early:
			delete(r.early, e.ID)
		case e.Outcome == outboxtest.Acknowledged:
			r.waiting[e.ID] = e.At
		default:
			r.undone++
		}
	}
	took := []float64{0}
	for _, e := range received {
		at, known := r.waiting[e.ID]
		if !known {
			r.early[e.ID] = e.At
			continue
		}
		delete(r.waiting, e.ID)
		took = append(took, float64(max(0, e.At.Sub(at)).Microseconds())/1000)
	}
	slices.Sort(took)
	s.Sent, s.Median, s.Most = len(received), took[len(took)/2], took[len(took)-1]
	s.Behind, s.Undone = len(r.waiting), r.undone
	if s.Dead > s.Undone {
		r.t.Errorf("second %d: %d dead rows in the log, %d were rolled back", s.Second, s.Dead, s.Undone)
	}
	r.samples = append(r.samples, s)
	if s.Second%10 == 0 {
		fmt.Printf("%5d s  arrived %6d/s  waiting %6d  p50 %6.1f ms  max %7.1f ms  %7.1f MB  dead rows %d, of positions %d\n",
			s.Second, s.Sent, s.Behind, s.Median, s.Most, s.MB, s.Dead, s.Noted)
	}
}

// plot draws the samples: a panel for each thing, over the seconds.
func (r *logRun) plot() []byte {
	const left, width, height, gap = 70, 800, 110, 46
	panels := []struct {
		title  string
		values []func(logSample) float64
	}{
		{"events that arrived, a second", []func(logSample) float64{func(s logSample) float64 { return float64(s.Sent) }}},
		{"the log and its positions, MB", []func(logSample) float64{func(s logSample) float64 { return s.MB }}},
		{"dead rows: of the log (blue), of its positions (red)", []func(logSample) float64{
			func(s logSample) float64 { return float64(s.Dead) }, func(s logSample) float64 { return float64(s.Noted) }}},
		{"from commit to subscriber, ms: median (blue) and longest (red)", []func(logSample) float64{
			func(s logSample) float64 { return s.Median }, func(s logSample) float64 { return s.Most }}},
	}
	var b bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img">`,
		left+width+20, len(panels)*(height+gap)+20)
	line("<title>A log under a held snapshot, second by second</title>")
	line("<style>text{font:13px system-ui,sans-serif;fill:#1f2328}.axis{stroke:#8c959f}" +
		"polyline{fill:none;stroke-width:1.5}.s0{stroke:#3b82c4}.s1{stroke:#cf5a4c}" +
		"@media (prefers-color-scheme:dark){text{fill:#e6edf3}}</style>")
	for i, panel := range panels {
		top := i*(height+gap) + 30
		most := 1.0
		for _, value := range panel.values {
			for _, s := range r.samples {
				most = max(most, value(s))
			}
		}
		line(`<text x="%d" y="%d">%s</text>`, left, top-8, panel.title)
		line(`<text x="%d" y="%d" text-anchor="end">%.0f</text>`, left-6, top+10, most)
		line(`<text x="%d" y="%d" text-anchor="end">0</text>`, left-6, top+height)
		line(`<text x="%d" y="%d" text-anchor="end">%d s</text>`, left+width, top+height+15, len(r.samples))
		line(`<path class="axis" fill="none" d="M%d %dV%dH%d"/>`, left, top, top+height, left+width)
		for n, value := range slices.Backward(panel.values) {
			var points []string
			for _, s := range r.samples {
				points = append(points, fmt.Sprintf("%.1f,%.1f", left+width*float64(s.Second)/float64(len(r.samples)),
					float64(top)+height*(1-value(s)/most)))
			}
			line(`<polyline class="s%d" points="%s"/>`, n, strings.Join(points, " "))
		}
	}
	line("</svg>")
	return b.Bytes()
}

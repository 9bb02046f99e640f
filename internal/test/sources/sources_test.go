package sources

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/internal/test/tracetest"
	"github.com/outboxrelay/outbox/store/postgres"
)

var (
	lasts = flag.Duration("storm", 0, "how long everything is killed in turn, the database too; 0: once, and not that")
	rate  = flag.Int("rate", 100, "events a second that producers write")
)

const (
	destination = "order.placed"
	producers   = 4
	backlog     = 30 // seconds of events
)

// keys are so many of each producer; the first one of all fails for a while.
func keys() int { return max(10, *rate/10) }

// broker is a server that can be killed.
type broker struct {
	address       string
	kill, restart func() error // nil: the consumer is the server
}

// What producers commit has its effect once and in the order of its key, although each process
// between is killed in turn, the source's between commit and acknowledgement, and each server. A
// key that fails holds up no other.
func TestEffectsOnce(t *testing.T) {
	tier.Full(t)
	for name, open := range brokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begin(t, name, open(t))
			produced := s.produce()
			s.flows()
			for end := time.Now().Add(*lasts); ; {
				s.strikes()
				if time.Now().After(end) {
					break
				}
			}
			produced()
			s.ends()
		})
	}
}

// storm is what is killed, and what it is judged by.
type storm struct {
	*testing.T
	name string
	broker
	database *testenv.Postgres // nil: one that others use too
	url      string
	pool     *pgxpool.Pool
	running  map[string][]*process
	struck   map[string]int
	began    time.Time
}

func begin(t *testing.T, name string, b broker) *storm {
	s := &storm{T: t, name: name, broker: b, running: map[string][]*process{}, struck: map[string]int{}}
	up := func(ctx context.Context, url string) error { return pgmigrations.Up(ctx, url, "core", "log") }
	if *lasts > 0 {
		s.database = testenv.PostgresServer(t, testenv.PostgresConfig{})
		s.url = s.database.URL("postgres")
		must(t, up(t.Context(), s.url))
		_, err := pgmigrations.SwitchIndexes(t.Context(), s.url, pgmigrations.LeanIndexes, func(string) {})
		must(t, err)
	} else {
		s.url = testenv.Prepared(t, "log", up)
	}
	var err error
	s.pool, err = pgxpool.New(t.Context(), s.url)
	must(t, err)
	t.Cleanup(s.pool.Close)
	_, err = s.pool.Exec(t.Context(), `CREATE TABLE counters (key text PRIMARY KEY, n int NOT NULL);
		CREATE TABLE effects (at bigserial PRIMARY KEY, key text, n int);
		CREATE INDEX ON effects (key, n);
		CREATE TABLE again (messages int);
		CREATE TABLE refused (messages int);
		CREATE TABLE held AS SELECT '0' AS key`)
	must(t, err)
	must(t, tracetest.Watch(t.Context(), s.pool, "effects", "1", "2", "3", "6"))
	for _, p := range []string{"relay", "source", "source", "group", "group"} {
		if p == "source" && b.kill == nil && len(s.running[p]) == 1 {
			continue // there is one server at an address
		}
		s.running[p] = append(s.running[p], nil)
		s.start(p, len(s.running[p])-1)
	}
	return s
}

// start starts a process, which ends with the test.
func (s *storm) start(name string, i int) {
	s.Helper()
	s.running[name][i] = run(s.T, part+"="+name, kind+"="+s.name, database+"="+s.url, server+"="+s.address,
		member+"="+fmt.Sprint(i))
}

// produce has producers write, and returns what ends that. How many events of a key there are is
// what a transaction that is committed says, also one whose producer was not told. Where effects
// stay behind for too long producers wait.
func (s *storm) produce() (stop func()) {
	w, err := postgres.NewWriter(outbox.WriterConfig{})
	must(s.T, err)
	ctx, cancel := context.WithCancel(s.Context())
	var all sync.WaitGroup
	var behind atomic.Int64
	s.began = time.Now()
	const pace = 50 * time.Millisecond
	for p := range producers {
		all.Go(func() {
			share := max(1, *rate*int(pace/time.Millisecond)/1000/producers)
			own := make([]string, share)
			each := time.Duration(share*producers) * time.Second / time.Duration(*rate)
			for next, due := 0, s.began; ctx.Err() == nil; {
				if now := time.Now(); now.Before(due) || behind.Load() > int64(*rate*backlog) {
					time.Sleep(max(due.Sub(now), time.Millisecond))
					continue
				}
				for i := range own {
					own[i], next = fmt.Sprint(next%keys()*producers+p), next+1
				}
				if s.write(w, own) == nil { // what could not be written in its time is written as soon as it can
					due = due.Add(each)
				}
			}
		})
	}
	all.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(pace) {
			var n int64
			if s.pool.QueryRow(ctx, "SELECT sum(n) - (SELECT coalesce(max(at), 0) FROM effects) FROM counters").
				Scan(&n) == nil {
				behind.Store(n)
			}
		}
	})
	return func() { cancel(); all.Wait() }
}

func (s *storm) write(w *postgres.Writer, keys []string) error {
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
	defer cancel()
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // after Commit it does nothing
	rows, _ := tx.Query(ctx, `INSERT INTO counters SELECT unnest($1::text[]), 1
		ON CONFLICT (key) DO UPDATE SET n = counters.n + 1 RETURNING key, n`, keys)
	placed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[placed])
	if err != nil {
		return err
	}
	events := make([]outbox.Event, len(placed))
	for i, p := range placed {
		if events[i], err = outbox.NewEvent(destination, p); err != nil {
			return err
		}
		events[i].AggregateType, events[i].AggregateID, events[i].Source = "Order", p.Key, "shop"
	}
	if err := w.Write(ctx, tx, events...); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// strikes kills one of everything after the other, each once what was written since the last has
// its effect.
func (s *storm) strikes() {
	s.Helper()
	for _, name := range []string{"relay", "group"} {
		s.strike(name, func() {
			i := s.struck[name] % len(s.running[name])
			must(s.T, s.running[name][i].cmd.Process.Kill())
			s.died(name, i)
			s.start(name, i)
		})
	}
	s.strike("source", func() {
		for _, p := range s.running["source"] { // one may have nothing to acknowledge until the other is dead
			_, err := p.stdin.Write([]byte("die\n"))
			must(s.T, err)
		}
		for i := range s.running["source"] { // another one might take the queue from the second
			s.died("source", i)
		}
		for i := range s.running["source"] {
			s.start("source", i)
		}
	})
	if s.kill != nil {
		s.strike("broker", func() { must(s.T, errors.Join(s.kill(), s.restart())) })
	}
	if s.database != nil {
		s.strike("database", func() {
			must(s.T, errors.Join(s.database.Kill(), s.database.Restart()))
			s.pool.Reset()
		})
	}
	s.Logf("after %s: %s", time.Since(s.began).Round(time.Second), s.told())
}

func (s *storm) strike(what string, kill func()) {
	s.Helper()
	s.runs()
	kill()
	s.struck[what]++
	s.flows()
}

// runs fails if a process has ended by itself.
func (s *storm) runs() {
	s.Helper()
	for name, of := range s.running {
		for i, p := range of {
			select {
			case <-p.done:
				s.Fatalf("the %s %d has ended by itself: %v", name, i, p.err)
			default:
			}
		}
	}
}

// died waits for the end of a process that was killed.
func (s *storm) died(name string, i int) {
	s.Helper()
	if died := s.running[name][i].wait(); !killed(died) {
		s.Fatalf("the %s ended with %v, want it killed", name, died)
	}
}

// flows waits until each key but the one that fails has an effect of what is written from now on.
func (s *storm) flows() {
	s.Helper()
	var before []byte
	s.until("the counters are read", func() bool {
		return s.pool.QueryRow(s.Context(), "SELECT coalesce(jsonb_object_agg(key, n), '{}') FROM counters").
			Scan(&before) == nil
	})
	s.until("what is written has its effect", func() (all bool) {
		return s.pool.QueryRow(s.Context(), `SELECT count(*) = 0 AND EXISTS (SELECT FROM effects)
			FROM jsonb_each_text($1) c WHERE key <> '0'
			AND (SELECT coalesce(max(n), 0) FROM effects e WHERE e.key = c.key) <= value::int`, before).Scan(&all) == nil && all
	})
}

// ends waits for the rest, and asks that all is as if nothing had been killed.
func (s *storm) ends() {
	s.Helper()
	count := func(what string) (n int) {
		must(s.T, s.pool.QueryRow(s.Context(), "SELECT "+what).Scan(&n))
		return n
	}
	written, sustained := count("sum(n) FROM counters"), time.Since(s.began)
	left := written - count("count(*) FROM effects")
	if n := count("count(*) FROM effects WHERE key = '0'"); n != 0 {
		s.Fatalf("the key that fails has %d effects", n)
	}
	_, err := s.pool.Exec(s.Context(), "DELETE FROM held")
	must(s.T, err)
	s.until("all have their effects", func() bool { return count("count(*) FROM effects") >= written })
	s.runs()
	rows, _ := s.pool.Query(s.Context(), `SELECT format('key %s: %s effects of %s events, %s out of order', c.key,
			count(e.n), c.n, count(*) FILTER (WHERE e.n <> place))
		FROM counters c LEFT JOIN (SELECT *, row_number() OVER (PARTITION BY key ORDER BY at) AS place FROM effects) e
		USING (key) GROUP BY c.key, c.n HAVING count(e.n) <> c.n OR bool_or(e.n <> place)`)
	wrong, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(s.T, err)
	for _, key := range wrong {
		s.Error(key)
	}
	asked, err := tracetest.Watched(s.Context(), s.pool, true, false)
	if err != nil || asked == 0 {
		s.Errorf("the model has no such run, asked of %d pairs of events: %v", asked, err)
	}
	log, letters := count("count(*) FROM outbox_log"), count("count(*) FROM job_dlq")
	if log != written || letters > 0 {
		s.Errorf("%d rows of %d events, and %d letters", log, written, letters)
	}
	again := count("coalesce(sum(messages), 0) FROM again")
	if again <= 0 {
		s.Error("no message has come again")
	}
	s.Logf("%s: %d events in %s (%.0f/s), each with its effect once and in order, %d of them after it within %s; "+
		"%d messages came again, %d copies refused by the group; runs of the model: %d; killed: %s", s.name, written,
		sustained.Round(time.Second), float64(written)/sustained.Seconds(), left,
		(time.Since(s.began) - sustained).Round(time.Second), again,
		count("coalesce(sum(messages), 0) FROM refused"), asked, s.told())
}

// until is until of this package, with the time that a storm's backlog takes: as long as effects
// come.
func (s *storm) until(what string, holds func() bool) {
	s.Helper()
	pause := 50 * time.Millisecond
	if *lasts > 0 {
		pause *= 10 // what is asked took a sixth of the database's time
	}
	for had, deadline := 0, time.Now().Add(tier.Patience()); !holds(); time.Sleep(pause) {
		var have int
		err := s.pool.QueryRow(s.Context(), "SELECT coalesce(max(at), 0) FROM effects").Scan(&have)
		if err == nil && have > had {
			had, deadline = have, time.Now().Add(tier.Patience())
		}
		if time.Now().After(deadline) {
			s.Fatalf("never came true: %s (%d effects, struck %v)", what, had, s.struck)
		}
	}
}

// told says what was killed how often.
func (s *storm) told() (text string) {
	for _, what := range slices.Sorted(maps.Keys(s.struck)) {
		text += fmt.Sprintf("%s %d, ", what, s.struck[what])
	}
	return strings.TrimSuffix(text, ", ")
}

type process struct {
	cmd   *exec.Cmd
	stdin io.Writer
	done  chan struct{}
	err   error
}

func (p *process) wait() error {
	select {
	case <-p.done:
		return p.err
	case <-time.After(tier.Patience()):
		return errors.New("it did not end")
	}
}

// run starts this binary in another role.
func run(t *testing.T, settings ...string) *process {
	t.Helper()
	program, err := os.Executable()
	must(t, err)
	p := &process{cmd: exec.Command(program), done: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), "GOGC=400"), settings...) // six processes share few cores
	said := new(bytes.Buffer)
	p.cmd.Stderr = said
	p.stdin, err = p.cmd.StdinPipe() // ends with this process, however that ends
	must(t, errors.Join(err, p.cmd.Start()))
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // fails if it has ended
		<-p.done
		if t.Failed() || testing.Verbose() {
			t.Logf("the process %s said:\n%s", settings[0], said)
		}
	})
	return p
}

func killed(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(tier.Patience()); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

package sources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

const (
	destination = "order.placed"
	keys, each  = 6, 30 // events; the first key fails for a while
)

// patience is for what other processes do in their own time.
const patience = time.Minute

// broker is a server that can be killed, and a sink that sends to it.
type broker struct {
	sink          outbox.Sink
	address       string
	kill, restart func() error // nil: the consumer is the server
	again         func()       // has the sink not rest after failures; nil: it does not
}

// What our sinks send is written, and has its effect once and in the order of its key, although a process dies between
// commit and acknowledgement, and the server too. A key that fails holds up no other.
func TestEffectsOnce(t *testing.T) {
	for name, open := range brokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			effectsOnce(t, name, open(t))
		})
	}
}

func effectsOnce(t *testing.T, name string, b broker) {
	url := testenv.Prepared(t, "log", func(ctx context.Context, url string) error {
		return pgmigrations.Up(ctx, url, "core", "log")
	})
	pool, err := pgxpool.New(t.Context(), url)
	must(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), `CREATE TABLE effects (at bigserial, key text, n int);
		CREATE TABLE received (messages int);
		CREATE TABLE held AS SELECT '0' AS key`)
	must(t, err)
	count := func(what string) (n int) {
		must(t, pool.QueryRow(t.Context(), "SELECT "+what).Scan(&n))
		return n
	}
	third := keys * each / 3
	events := make([]outbox.Delivery, keys*each)
	for i := range events {
		events[i] = event(t, i%keys, i/keys)
	}

	first := start(t, name, url, b, "one", "1")
	sent, done := make(chan struct{}), make(chan struct{})
	go func() { // an endpoint listens in its own time, and is soon dead
		defer close(sent)
		publish(t, b, events[:third])
	}()
	if died := first.wait(); !killed(died) {
		t.Fatalf("the consumer ended with %v, want it killed between commit and acknowledgement", died)
	}
	if count("count(*) FROM outbox_log") == 0 {
		t.Fatal("nothing was committed before the kill")
	}
	second := start(t, name, url, b, "one", "")
	<-sent
	until(t, "the first events have their effects", func() bool {
		return count("count(*) FROM effects") == third/keys*(keys-1)
	})
	until(t, "messages come again", func() bool { return count("sum(messages) FROM received") > third })

	if b.kill != nil {
		start(t, name, url, b, "two", "") // shares the work, or waits for its turn
	}
	publish(t, b, events[third:2*third])
	if b.kill != nil {
		must(t, b.kill())
		must(t, b.restart())
	}
	go func() {
		defer close(done)
		publish(t, b, events[2*third:])
	}()
	written := count("count(*) FROM outbox_log")
	until(t, "what was sent since is written", func() bool { return count("count(*) FROM outbox_log") > written })
	must(t, second.cmd.Process.Kill())
	if died := second.wait(); !killed(died) {
		t.Fatalf("the second consumer ended with %v, want it killed", died)
	}
	start(t, name, url, b, "one", "")
	<-done
	until(t, "the other keys have their effects", func() bool {
		return count("count(*) FROM effects WHERE key <> '0'") == each*(keys-1)
	})
	if n := count("count(*) FROM effects WHERE key = '0'"); n != 0 {
		t.Fatalf("the key that fails has %d effects", n)
	}
	_, err = pool.Exec(t.Context(), "DELETE FROM held")
	must(t, err)
	until(t, "all have their effects", func() bool { return count("count(*) FROM effects") >= keys*each })
	for key := range keys {
		rows, _ := pool.Query(t.Context(), "SELECT n FROM effects WHERE key = $1 ORDER BY at", fmt.Sprint(key))
		got, err := pgx.CollectRows(rows, pgx.RowTo[int])
		must(t, err)
		if len(got) != each || !slices.IsSorted(got) {
			t.Errorf("key %d has the effects %v, want %d in order", key, got, each)
		}
	}
	rows, letters := count("count(*) FROM outbox_log"), count("count(*) FROM job_dlq")
	if rows != keys*each || letters > 0 {
		t.Errorf("%d rows of %d events, and %d letters", rows, keys*each, letters)
	}
}

func event(t *testing.T, key, n int) outbox.Delivery {
	t.Helper()
	id, err := outbox.NewID()
	must(t, err)
	return outbox.Delivery{Destination: destination, Record: &outbox.Record{
		Position: int64(n*keys + key + 1), Keyed: true, OrderKey: int64(key),
		Event: outbox.Event{ID: id, Topic: destination, AggregateType: "Order", AggregateID: fmt.Sprint(key),
			Source: "shop", OccurredAt: time.Now(), Payload: fmt.Appendf(nil, `{"key":"%d","n":%d}`, key, n)},
	}}
}

// publish sends events, each until it is taken, a few at a time and in the order of their keys.
func publish(t *testing.T, b broker, events []outbox.Delivery) {
	t.Helper()
	for piece := range slices.Chunk(events, 2*keys) {
		for deadline := time.Now().Add(testenv.Patience); len(piece) > 0; {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			var left []outbox.Delivery
			for i, result := range b.sink.Publish(ctx, piece) {
				if result.Err != nil {
					left = append(left, piece[i])
				}
				if result.Err != nil && time.Now().After(deadline) {
					t.Errorf("publish: %v", result.Err)
					cancel()
					return
				}
			}
			cancel()
			if b.again != nil {
				b.again()
			}
			if piece = left; len(piece) > 0 {
				time.Sleep(50 * time.Millisecond)
			}
		}
	}
}

type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

func (p *process) wait() error {
	select {
	case <-p.done:
		return p.err
	case <-time.After(testenv.Patience):
		return errors.New("it did not end")
	}
}

// start starts a consumer, which ends with the test.
func start(t *testing.T, name, url string, b broker, instance, die string) *process {
	t.Helper()
	return run(t, consumer+"="+name, database+"="+url, server+"="+b.address, member+"="+instance, dieAt+"="+die)
}

// run starts this binary in another role.
func run(t *testing.T, settings ...string) *process {
	t.Helper()
	program, err := os.Executable()
	must(t, err)
	p := &process{cmd: exec.Command(program), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), settings...)
	said := new(bytes.Buffer)
	p.cmd.Stderr = said
	_, err = p.cmd.StdinPipe() // ends with this process, however that ends
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
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
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

package consumers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

const orders = 5 // each of which is sent twice

var folder string // of the programs; TestMain removes it

func TestMain(m *testing.M) {
	testenv.AtOnce(8)
	testenv.Main(m)
	_ = os.RemoveAll(folder) // a temporary directory, or none
}

// programs builds the programs once and returns their folder.
var programs = sync.OnceValues(func() (_ string, err error) {
	if folder, err = os.MkdirTemp("", "consumers-"); err != nil {
		return "", err
	}
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", folder, "./...").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return folder, nil
})

// broker is what a consumer listens to.
type broker struct {
	sink        outbox.Sink
	destination string
	settings    []string // the consumer's, besides DATABASE_URL
	database    string   // the consumer's; "" for one of its own

	// missed tells whether the consumer hears only what is sent while it listens, which ready
	// tells. Then the sender sends again what may not have arrived.
	missed bool
	ready  func() bool
	// left counts the messages that are not acknowledged; nil where the sender has the answer or
	// there is none.
	left func() int
}

// Every event is sent twice, as after an operator's replay, and the consumer is killed after a
// commit and before it can hear of it, let alone acknowledge. Each order is shipped once, and what
// was sent is acknowledged in the end.
func TestConsumersShipOnce(t *testing.T) {
	tier.Full(t)
	for name, open := range map[string]func(*testing.T) broker{
		"redispubsub": redisPubSub, "redisstreams": redisStreams, "nats": natsJetStream, "kafka": kafkaTopic,
		"rabbitmq": rabbitQueue, "webhook": webhookEndpoint, "postgres": postgresTable,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testConsumer(t, name, open(t))
		})
	}
}

func testConsumer(t *testing.T, name string, b broker) {
	if b.database == "" {
		b.database = testenv.Database(t)
	}
	db, err := pgxpool.New(t.Context(), b.database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	sent := make([]outbox.Delivery, orders)
	for i := range sent {
		sent[i] = b.event(t, i+1)
	}
	if err := migrations.Up(t.Context(), b.database, "core", "log"); err != nil {
		t.Fatal(err)
	}
	guard := interpose(t, b.database)
	send := func() error { return errors.Join(b.publish(t, sent, 0), b.publish(t, sent, 1)) }
	if !b.missed {
		if err := send(); err != nil {
			t.Fatalf("send: %v", err)
		}
	}
	first := start(t, name, append(b.settings, "DATABASE_URL="+guard.url))
	sending := make(chan error, 1)
	if b.missed {
		until(t, "the consumer listens", b.ready)
		go func() { sending <- send() }()
	}
	guard.strike(t, first)
	if b.missed {
		if err := <-sending; err != nil {
			t.Logf("the sender heard: %v", err)
		}
	}
	if err := first.Wait(); !killed(err) {
		t.Fatalf("the consumer ended with %v, want it killed:\n%s", err, first.Stderr)
	}
	var written int
	if err := db.QueryRow(t.Context(), "SELECT count(*) FROM outbox_log").Scan(&written); err != nil || written == 0 {
		t.Fatalf("%d messages were written before the kill, error %v", written, err)
	}
	if got := shipped(t, db); len(got) != 0 {
		t.Fatalf("shipped before the kill: %v, want none", got)
	}
	if b.left != nil {
		until(t, "nothing is acknowledged", func() bool { return b.left() >= 2*orders })
	}

	second := start(t, name, append(b.settings, "DATABASE_URL="+b.database))
	if b.missed {
		until(t, "the consumer listens again", b.ready)
	}
	last := b.event(t, orders+1) // sent and shipped after all others
	if b.missed {
		if err := errors.Join(b.publish(t, sent, 2), b.publish(t, sent, 3)); err != nil {
			t.Fatalf("send again: %v", err)
		}
	}
	if err := b.publish(t, []outbox.Delivery{last}, 0); err != nil {
		t.Fatalf("send the last one: %v", err)
	}
	until(t, "the last order is shipped", func() bool { return slices.Contains(shipped(t, db), orders+1) })
	if b.left != nil {
		until(t, "all is acknowledged", func() bool { return b.left() == 0 })
	}
	if err := errors.Join(second.Process.Signal(syscall.SIGTERM), second.Wait()); err != nil {
		t.Errorf("the consumer ended with %v:\n%s", err, second.Stderr)
	}
	if b.left != nil && b.left() != 0 { // RabbitMQ has what was not acknowledged in the queue again
		t.Errorf("%d messages are not acknowledged", b.left())
	}
	if got := shipped(t, db); !slices.Equal(got, []int64{1, 2, 3, 4, 5, 6}) {
		t.Errorf("shipped %v, want each order once and in order", got)
	}
}

func (b broker) event(t *testing.T, order int) outbox.Delivery {
	t.Helper()
	id, err := outbox.NewID()
	if err != nil {
		t.Fatal(err)
	}
	return outbox.Delivery{Destination: b.destination, Record: &outbox.Record{
		Position: int64(order), Keyed: true, OrderKey: 1,
		Event: outbox.Event{ID: id, Topic: "order.placed", AggregateType: "Order", AggregateID: "1", Source: "shop",
			OccurredAt: time.Now(), Payload: fmt.Appendf(nil, `{"order": %d}`, order)},
	}}
}

// publish sends events in a generation: an operator's replay has a higher one, and no broker
// refuses it as a copy.
func (b broker) publish(t *testing.T, events []outbox.Delivery, generation int) (err error) {
	t.Helper()
	batch := slices.Clone(events)
	for i := range batch {
		record := *batch[i].Record
		record.Generation = generation
		batch[i].Record = &record
	}
	ctx, cancel := context.WithTimeout(t.Context(), tier.Patience())
	defer cancel()
	for _, result := range b.sink.Publish(ctx, batch) {
		err = errors.Join(err, result.Err)
	}
	return err
}

func start(t *testing.T, name string, settings []string) *exec.Cmd {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	program := exec.Command(filepath.Join(dir, name))
	program.Env = append(os.Environ(), settings...)
	program.Stderr = new(bytes.Buffer)
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _ = program.Process.Kill(); t.Failed() { // fails if it has ended, as it should have
			t.Logf("the consumer said:\n%s", program.Stderr)
		}
	})
	return program
}

func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signal() == syscall.SIGKILL
}

func shipped(t *testing.T, db *pgxpool.Pool) (all []int64) {
	t.Helper()
	// One row, whatever there is: an aggregate of no rows is NULL.
	if err := db.QueryRow(t.Context(), "SELECT array_agg(order_id ORDER BY shipped_at, order_id) FROM shipments").
		Scan(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(tier.Patience()); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", what)
		}
	}
}

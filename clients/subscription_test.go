package clients

import (
	"bufio"
	"errors"
	"strings"
	"syscall"
	"testing"
)

func TestSubscriptions(t *testing.T) {
	t.Parallel()
	newWorld(t).run("typescript", "node", "--test", "test/subscription.test.mjs")
}

func TestConsumer(t *testing.T) {
	t.Parallel()
	newWorld(t).unittest("test_subscription.py")
}

// The examples of consumers handle an event, and end when they are told to.
func TestReadmesOfConsumers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.query(`WITH written AS (
		INSERT INTO outbox_log (event_topic, occurred_at, source_bc, aggregate_type, aggregate_id, payload)
		VALUES ('order.placed', now(), 'shop', 'Order', '42', '7') RETURNING 1)
		SELECT count(*) FROM written`)
	for _, c := range [][]string{
		{"typescript", "node", "--input-type=module", "--eval", example(t, "typescript/README.md", "billing.consume")},
		{"python", "env", "PYTHONPATH=src", python(t), "-c", example(t, "python/README.md", "billing.consume")},
	} {
		// The second subscription is another one of the same events.
		code := strings.ReplaceAll(c[len(c)-1], `"billing"`, `"`+c[0]+`"`)
		command := w.program(t.Context(), c[0], c[1], append(c[2:len(c)-1:len(c)-1], code)...)
		out, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if line != "invoice 42 7\n" {
			t.Errorf("%s: %q, %v", c[0], line, err)
		}
		if err := errors.Join(command.Process.Signal(syscall.SIGTERM), command.Wait()); err != nil {
			t.Errorf("%s: %v", c[0], err)
		}
	}
}

package outboxtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/outboxrelay/outbox"
)

// defectEnv names the defect that TestSuite's sink has in a child process of TestSuiteFindsDefects.
const defectEnv = "OUTBOXTEST_DEFECT"

// TestSuite: a right sink passes.
func TestSuite(t *testing.T) {
	defect := os.Getenv(defectEnv)
	features := SinkFeatures{RefusesDuplicates: true, Durable: true, Headers: "ce-", LargestMessage: largest}
	SinkSuite(t, features, func(*testing.T) SinkHarness {
		b := &board{defect: defect, subscribers: map[string]chan Arrived{}, seen: map[string]bool{},
			stored: map[string][]Arrived{}}
		return SinkHarness{Sink: b, Binary: b.inBinary(), Listen: b.listen, Stored: b.first, Restart: b.restart,
			Refusing: "refusing", Forbidden: []string{"a*"}, Stall: b.stall}
	})
}

// TestSuiteFindsDefects: a sink with any of these defects fails. Each runs in a process of its own,
// because a failed subtest fails its parent.
func TestSuiteFindsDefects(t *testing.T) {
	for defect, finder := range map[string]string{
		"loses":           "answers_every_delivery",
		"answers too few": "answers_every_delivery",
		"reorders":        "keeps_the_order_of_a_key",
		"no check":        "refuses_a_copy",
		"no generation":   "lets_a_replay_through",
		"by event only":   "serves_each_destination_of_an_event",
		"goes on":         "holds_a_key_behind_its_failed_event",
		"gives up":        "holds_a_key_behind_its_failed_event",
		"forgets to hold": "holds_a_key_across_a_large_batch",
		"holds the event": "serves_other_destinations_of_a_failed_event",
		"remembers held":  "holds_a_key_behind_its_failed_event",
		"ignores context": "answers_unavailable_when_its_context_has_ended",
		"hides outage":    "answers_unavailable_when_its_context_has_ended",
		"wrong envelope":  "builds_a_CloudEvent",
		"forgets":         "keeps_what_it_acknowledged",
		"no headers":      "sends_attributes_as_headers",
		"takes too large": "refuses_a_message_that_is_too_large",
		"tries forbidden": "refuses_forbidden_destinations",
	} {
		t.Run(defect, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSuite$/^"+finder+"$")
			cmd.Env = append(os.Environ(), defectEnv+"="+defect)
			out, err := cmd.CombinedOutput()
			var failed *exec.ExitError
			if !errors.As(err, &failed) || !strings.Contains(string(out), "--- FAIL: TestSuite/"+finder) {
				t.Errorf("%q does not find it: %v\n%s", finder, err, out)
			}
		})
	}
}

// largest is what a board takes in one message, in bytes.
const largest = 2 << 20

// board is a sink that hands messages to subscribers in its own process.
type board struct {
	defect string

	mu          sync.Mutex
	subscribers map[string]chan Arrived
	seen        map[string]bool
	stored      map[string][]Arrived // by destination
	stalled     bool
	binary      bool
}

// inBinary is a board for the same subscribers that sends attributes as headers.
func (b *board) inBinary() *board {
	return &board{defect: b.defect, subscribers: b.subscribers, seen: b.seen, stored: b.stored, binary: true}
}

func (b *board) first(t *testing.T, destination string, n int) []Arrived {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.stored[destination]
	if len(all) < n {
		t.Fatalf("%d of %d messages are stored", len(all), n)
	}
	return all[:n]
}

func (b *board) restart(*testing.T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.defect == "forgets" {
		clear(b.stored)
	}
}

func (b *board) listen(t *testing.T) (string, <-chan Arrived) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := strconv.Itoa(len(b.subscribers))
	b.subscribers[name] = make(chan Arrived, 10000)
	return name, b.subscribers[name]
}

func (b *board) stall(*testing.T) func() {
	b.set(true)
	return func() { b.set(false) }
}

func (b *board) set(stalled bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stalled = stalled
}

func (b *board) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	results := make([]outbox.Result, len(batch))
	if b.stalled {
		<-ctx.Done()
	}
	if ctx.Err() != nil && b.defect != "ignores context" {
		for i := range results {
			results[i].Err = outbox.Unavailable(ctx.Err())
			if b.defect == "hides outage" {
				results[i].Err = ctx.Err()
			}
		}
		return results
	}
	held := map[int64]string{}
	for i := range batch {
		if b.defect == "forgets to hold" && i%1000 == 0 {
			clear(held)
		}
		results[i] = b.publish(&batch[i], held)
	}
	if b.defect == "reorders" && len(batch) > 100 {
		b.swap(batch[0].Destination)
	}
	if b.defect == "answers too few" && len(results) > 1 {
		results = results[1:]
	}
	return results
}

func (b *board) publish(d *outbox.Delivery, held map[int64]string) outbox.Result {
	event := d.ID.String()
	member := strings.Join([]string{event, d.Destination, strconv.Itoa(d.Generation)}, " ")
	if first, ok := held[d.OrderKey]; ok && d.Keyed && b.defect != "goes on" &&
		(first != event || b.defect == "holds the event") {
		b.seen[member] = b.defect == "remembers held"
		return outbox.Result{Err: outbox.ErrNotAttempted}
	}
	switch b.defect {
	case "no generation":
		member = event + d.Destination
	case "by event only":
		member = event
	}
	if b.seen[member] && b.defect != "no check" {
		return outbox.Result{Duplicate: true}
	}
	if d.Destination == "refusing" {
		if d.Keyed {
			held[d.OrderKey] = event
		}
		if b.defect == "gives up" {
			return outbox.Result{Err: outbox.Unavailable(errors.New("refused"))}
		}
		return outbox.Result{Err: errors.New("refused")}
	}
	if d.Destination == "a*" {
		return outbox.Result{Err: b.forGood("tries forbidden", "a name with a wildcard")}
	}
	if len(d.Payload) > largest {
		return outbox.Result{Err: b.forGood("takes too large", "too large")}
	}
	b.seen[member] = true
	if b.defect == "loses" && d.Sequence == 7 {
		return outbox.Result{}
	}
	message := Arrived{Body: outbox.CloudEvent(nil, d)}
	if b.defect == "wrong envelope" {
		message.Body = slices.Concat([]byte(`{"id":"`), []byte(event), []byte(`"}`))
	}
	if b.binary {
		message = Arrived{Body: d.Payload, Headers: map[string]string{}}
		for name, value := range d.Attributes() {
			if b.defect != "no headers" {
				message.Headers["CE-"+name] = value
			}
		}
	}
	b.stored[d.Destination] = append(b.stored[d.Destination], message)
	b.subscribers[d.Destination] <- message
	return outbox.Result{}
}

// forGood is the answer to what will never be taken, unless the board has that defect.
func (b *board) forGood(defect, problem string) error {
	if b.defect == defect {
		return errors.New(problem)
	}
	return outbox.Permanent(errors.New(problem))
}

// swap exchanges two of the last messages of the destination.
func (b *board) swap(destination string) {
	messages := b.subscribers[destination]
	var all []Arrived
	for len(messages) > 0 {
		all = append(all, <-messages)
	}
	last := len(all) - 1
	all[last], all[last-10] = all[last-10], all[last] // of one key
	for _, m := range all {
		messages <- m
	}
}

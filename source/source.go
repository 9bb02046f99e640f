package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/internal/backoff"
)

// Source is where messages come from. It is for one goroutine.
type Source interface {
	// Receive waits for messages. It is called again once the batch was acknowledged, or once that
	// has failed. An error that is outbox.Permanent ends Run; after any other it is called again.
	Receive(ctx context.Context) (Batch, error)
}

// Batch is messages in their order, and what acknowledges them all.
type Batch struct {
	Messages []Message
	Ack      func(ctx context.Context) error
}

// gatherFor is how long a batch waits for more messages.
const gatherFor = 2 * time.Millisecond

// Gather waits for what a client hands out one by one, and for what comes soon after the first:
// most at most. At the end of ctx it is what has come by then. It is nothing once the channel is
// closed: what had come is handed out again.
func Gather[T any](ctx context.Context, from <-chan T, most int) (batch []T) {
	var soon <-chan time.Time
	for len(batch) < most {
		select {
		case <-ctx.Done():
			return batch
		case <-soon:
			return batch
		case one, open := <-from:
			if !open {
				return nil
			}
			if batch = append(batch, one); soon == nil {
				soon = time.After(gatherFor)
			}
		}
	}
	return batch
}

// Config says what a source is called. Zero means the default in parentheses.
type Config struct {
	// Name is the source's: of what it remembers, and of events that name no source of their own.
	// Keep it when a program is renamed. Required; letters, digits, - and _, at most 40.
	Name string
	// Type is the type of events that do not name theirs (the topic, subject, queue or stream).
	Type string
	// Window is how long ids are remembered at least, and Copies how late a message can come again
	// (as inbox.Config).
	Window time.Duration
	Copies map[string]time.Duration
	Logger *slog.Logger // (slog.Default)
}

var names = regexp.MustCompile(`^[A-Za-z0-9_-]{1,40}$`)

// waits are for a broker or a database that is away.
var waits = backoff.Backoff{Base: 50 * time.Millisecond, Factor: 2, Cap: 5 * time.Second, Jitter: 0.2}

const ackTimeout = 10 * time.Second

// Run writes the messages of a source into a table, until ctx ends: it then returns nil. tx are the
// transactions of the consumer's database, and write a writer's Write. Several processes may run it
// under one name.
//
// While the database is away Run waits, with the batch that it has. Errors of a database that
// waiting does not cure end Run, such as a table that is not there: what was not acknowledged comes
// again. All problems of cfg are told at once.
func Run[Tx any](
	ctx context.Context, from Source, tx inbox.Transactions[Tx],
	write func(ctx context.Context, tx Tx, events ...outbox.Event) error, cfg Config,
) error {
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	var problem error
	if !names.MatchString(cfg.Name) {
		problem = fmt.Errorf("Name is %q, must be 1 to 40 letters, digits, - and _", cfg.Name)
	}
	in, err := tx.Inbox(inbox.Config{Consumer: "source:" + cfg.Name, Window: cfg.Window, Copies: cfg.Copies})
	if err := errors.Join(problem, err); err != nil {
		return fmt.Errorf("configure source: %w", err)
	}
	r := run[Tx]{cfg, from, tx, in, write}
	err = tx.Register(ctx, in, func() error { return nil }, func(err error) { r.warn("waiting for the database", err) })
	if err != nil {
		return fmt.Errorf("begin source %s: %w", cfg.Name, err)
	}
	var sweeping sync.WaitGroup
	defer sweeping.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	sweeping.Go(func() { tx.Sweep(ctx, in, func(err error) { r.warn("cannot forget old ids", err) }) })
	return r.loop(ctx)
}

type run[Tx any] struct {
	cfg   Config
	from  Source
	tx    inbox.Transactions[Tx]
	in    *inbox.Inbox[Tx]
	write func(ctx context.Context, tx Tx, events ...outbox.Event) error
}

func (r *run[Tx]) loop(ctx context.Context) error {
	for {
		var batch Batch
		err := r.again(ctx, "cannot receive", func(class outbox.Class) bool { return class != outbox.ClassPermanent },
			func() (err error) { batch, err = r.from.Receive(ctx); return err })
		if err != nil || ctx.Err() != nil {
			return err
		}
		committed := false
		err = r.again(ctx, "cannot write what was received", func(class outbox.Class) bool {
			return class == outbox.ClassUnavailable || class == outbox.ClassPostponed
		}, func() error {
			err := r.put(ctx, batch.Messages)
			committed = err == nil
			return err
		})
		if !committed {
			return err
		}
		// What is committed is acknowledged, also at the end of ctx. If it fails the messages come
		// again, as copies.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackTimeout)
		if err := batch.Ack(limited); err != nil && ctx.Err() == nil {
			r.warn("cannot acknowledge", err)
		}
		cancel()
	}
}

// again calls fn until it succeeds, fails for good, or ctx ends: then it returns nil. Of failures
// in a row it logs one.
func (r *run[Tx]) again(ctx context.Context, what string, passes func(outbox.Class) bool, fn func() error) error {
	for failures := 0; ; failures++ {
		err := fn()
		class, _ := outbox.Classify(err)
		switch {
		case err == nil && failures > 0:
			r.cfg.Logger.Info("works again", "source", r.cfg.Name, "failures", failures)
			return nil
		case err == nil, ctx.Err() != nil:
			return nil
		case !passes(class):
			return fmt.Errorf("source %s: %s: %w", r.cfg.Name, what, err)
		case failures == 0:
			r.warn(what, err)
		}
		backoff.Wait(ctx, waits.Delay(failures+1))
	}
}

func (r *run[Tx]) warn(what string, err error) {
	r.cfg.Logger.Warn(what, "source", r.cfg.Name, "error", err)
}

// put writes the messages that are new in a transaction that remembers them. The same id with
// another body is no copy: the group makes a DuplicateEvent letter of it.
func (r *run[Tx]) put(ctx context.Context, messages []Message) error {
	var ids []inbox.ID
	var known []int // the messages that have an id
	events := make([]outbox.Event, len(messages))
	fresh := make([]bool, len(messages))
	for i := range messages {
		m := &messages[i]
		if events[i] = m.event(&r.cfg); m.Problem != "" {
			events[i] = m.unreadable(&r.cfg, events[i], m.Problem, true)
		}
		if fresh[i] = events[i].ID == uuid.Nil; !fresh[i] {
			ids = append(ids, inbox.ID{Event: fmt.Sprintf("%s %x", events[i].ID, sha256.Sum256(m.Body)),
				Tenant: events[i].TenantID})
			known = append(known, i)
		}
	}
	return r.tx.Remember(ctx, r.in, ids, func(tx Tx, answers []inbox.Answer) error {
		for at, i := range known {
			fresh[i] = answers[at].Result == inbox.Done
		}
		var left []outbox.Event
		var of []*Message
		for i := range events {
			if fresh[i] {
				left, of = append(left, events[i]), append(of, &messages[i])
			}
		}
		return r.writeAll(ctx, tx, left, of)
	})
}

// writeAll writes events. One that the writer refuses, which it does before it asks the database,
// is replaced by what says so, and that by a shorter one.
func (r *run[Tx]) writeAll(ctx context.Context, tx Tx, events []outbox.Event, of []*Message) error {
	replaced := make([]int, len(events))
	for len(events) > 0 {
		err := r.write(ctx, tx, events...)
		var refused *outbox.FieldError
		if !errors.As(err, &refused) || refused.Event >= len(events) || replaced[refused.Event] == 2 {
			return err
		}
		i := refused.Event
		events[i] = of[i].unreadable(&r.cfg, events[i], refused.Field+" "+refused.Problem, replaced[i] == 1)
		replaced[i]++
		r.warn("a message is no event: it is written as a text", fmt.Errorf("%s: %w", of[i].Place, refused))
	}
	return nil
}

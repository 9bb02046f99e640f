package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/backoff"
	"github.com/outboxrelay/outbox/internal/store/pooler"
)

const wakeChannel = "outbox_wake"

// Notifier tells relays in other processes which tables have new events. Waking is a courtesy: one
// that is lost costs the relay's poll interval and nothing else.
type Notifier struct {
	pool     *pgxpool.Pool
	sql      string
	interval time.Duration
	due      chan struct{}

	mu     sync.Mutex
	tables map[string]struct{} // to be told
}

// NewNotifier returns a Notifier; Run must be running for it to do anything. Notifications are at
// least interval apart (0 means 2 ms), so that a busy producer does not spend its database on them.
func NewNotifier(pool *pgxpool.Pool, interval time.Duration) (*Notifier, error) {
	if interval <= 0 {
		interval = 2 * time.Millisecond
	}
	sql, err := plain("wake")
	if err != nil {
		return nil, err
	}
	return &Notifier{
		pool: pool, sql: sql, interval: interval, due: make(chan struct{}, 1), tables: map[string]struct{}{},
	}, nil
}

// Wake asks for a notification. It never blocks; several calls for a table in one interval are one
// notification.
func (n *Notifier) Wake(table string) {
	n.mu.Lock()
	n.tables[table] = struct{}{}
	n.mu.Unlock()
	select {
	case n.due <- struct{}{}:
	default:
	}
}

// Run sends the notifications until ctx ends, and then the last one if one is due. Failures are not
// reported: the producer's own use of the database reports them, and the relay polls anyway.
func (n *Notifier) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-n.due:
			n.send(ctx)
			backoff.Wait(ctx, n.interval)
		}
	}
	select {
	case <-n.due:
		n.send(ctx)
	default:
	}
	return nil
}

func (n *Notifier) send(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	n.mu.Lock()
	tables := slices.Collect(maps.Keys(n.tables))
	clear(n.tables)
	n.mu.Unlock()
	for _, table := range tables {
		_, _ = n.pool.Exec(ctx, n.sql, table) // see Run
	}
}

// Listen implements outbox.Database: it calls wake with the name of a table whenever a Notifier
// reports new events. It takes a connection for itself and reconnects when it breaks. Behind a
// pooler it says once that there is nothing to listen to, and waits. LISTEN would be accepted,
// would stay with a session that others get, and would never be answered. That notifications arrive
// is tested at every connect all the same.
func (d served) Listen(ctx context.Context, log *slog.Logger, wake func(table string)) error {
	sql, err := plain("wake")
	if err != nil {
		return err
	}
	pause, complained := time.Second, false
	for {
		err := listen(ctx, d.pool, sql, func() {
			if complained {
				log.Info("listening for new events again")
			}
			pause, complained = time.Second, false
		}, wake)
		if ctx.Err() != nil {
			return nil
		}
		switch {
		case complained:
		case errors.Is(err, errPooled):
			log.Info("a pooler is between this process and PostgreSQL: settings go with each transaction, and new " +
				"events are found by polling")
		default:
			log.Warn("cannot listen for new events, polling only", "error", err)
		}
		complained = true
		if !backoff.Wait(ctx, pause) {
			return nil
		}
		pause = min(2*pause, time.Minute)
	}
}

var errPooled = errors.New("a pooler has no sessions to listen in")

// listen calls ready once it is certain that notifications arrive.
func listen(ctx context.Context, pool *pgxpool.Pool, sql string, ready func(), wake func(table string)) error {
	pooled, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	conn := pooled.Hijack() // out of the pool for good, but made by its hooks: they may fetch a password
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	switch pooled, err := pooler.Between(ctx, conn); {
	case err != nil:
		return err
	case pooled:
		return errPooled
	}
	for _, sql := range []string{"SET idle_session_timeout = 0", "LISTEN " + wakeChannel} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("listen: %w", err)
		}
	}
	if err := probe(ctx, pool, sql, conn, wake); err != nil {
		return err
	}
	ready()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return fmt.Errorf("wait for notification: %w", err)
		}
		if !strings.HasPrefix(n.Payload, probePrefix) {
			wake(n.Payload)
		}
	}
}

const probePrefix = "probe:"

// probe sends a notification through the pool and waits for it on conn. Others that arrive
// meanwhile are real.
func probe(ctx context.Context, pool *pgxpool.Pool, sql string, conn *pgx.Conn, wake func(table string)) error {
	token := probePrefix + uuid.NewString()
	if _, err := pool.Exec(ctx, sql, token); err != nil {
		return fmt.Errorf("send test notification: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return errors.New("a test notification did not arrive: is there a transaction pooler in between? Connect " +
				"the relay to PostgreSQL itself")
		case err != nil:
			return fmt.Errorf("wait for test notification: %w", err)
		case n.Payload == token:
			return nil
		case !strings.HasPrefix(n.Payload, probePrefix):
			wake(n.Payload)
		}
	}
}

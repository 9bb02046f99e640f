package webhook

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/outboxrelay/outbox"
)

// Table is a database's table of endpoints, for the URL webhook:table.
type Table interface {
	// Read returns all endpoints, or nil if they are those that it has returned before. An error
	// beside them says what is wrong with some, and one without them, why they cannot be read now.
	Read(ctx context.Context) (List, error)
	// Gone disables an endpoint that answered 410 Gone, unless somebody has changed it since it was
	// read.
	Gone(ctx context.Context, e Endpoint) error
}

// known are Endpoints that are kept in a file or a table. While they are in use it asks once a
// second whether they have changed. If they cannot be read, those that were read last stay in use.
type known struct {
	read func(ctx context.Context) (List, error) // as Table has it
	gone func(ctx context.Context, e Endpoint) error
	log  *slog.Logger

	mu      sync.Mutex
	checked time.Time
	list    List
	away    error // why they could not be read again
	defects error // of some of them
}

const checkEvery = time.Second

// Lookup implements Endpoints. A name that is not known makes it look for it at once.
func (k *known) Lookup(ctx context.Context, names ...string) (map[string]Endpoint, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fresh := time.Since(k.checked) >= checkEvery
	if fresh {
		k.refresh(ctx)
	}
	found, _ := k.list.Lookup(ctx, names...) // it never fails
	if len(found) < len(names) && !fresh {
		k.refresh(ctx)
		found, _ = k.list.Lookup(ctx, names...)
	}
	if len(found) < len(names) && k.unanswered() {
		return nil, k.away
	}
	return found, nil
}

// unanswered tells whether nobody can say which endpoints there are. One who has broken a file has
// said it.
func (k *known) unanswered() bool {
	class, _ := outbox.Classify(k.away)
	return k.away != nil && class == outbox.ClassUnavailable
}

// refresh reads what has changed.
func (k *known) refresh(ctx context.Context) {
	k.checked = time.Now()
	list, err := k.read(ctx)
	if list == nil {
		if err != nil && k.list != nil && !sameText(k.away, err) {
			k.log.Error("cannot read webhook endpoints, the former ones stay in use", "error", err)
		}
		if err == nil && k.away != nil {
			k.log.Info("webhook endpoints are read again")
		}
		k.away = err
		return
	}
	if err != nil && !sameText(k.defects, err) {
		k.log.Error("cannot use webhook endpoints, their events wait", "error", err)
	}
	k.list, k.away, k.defects = list, nil, err
}

func sameText(a, b error) bool { return a != nil && b != nil && a.Error() == b.Error() }

// all returns the endpoints as they are now.
func (k *known) all(ctx context.Context) (List, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refresh(ctx); k.unanswered() {
		return nil, k.away
	}
	return k.list, nil
}

func (k *known) longest() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.list.longest()
}

// failure is what is wrong, nil if all is well.
func (k *known) failure() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.away != nil:
		return fmt.Errorf("the former webhook endpoints are still in use: %w", k.away)
	case k.defects != nil:
		return fmt.Errorf("the events of some webhook endpoints wait: %w", k.defects)
	}
	return nil
}

// disable makes it known to all processes that an endpoint of a table wants no more.
func (k *known) disable(ctx context.Context, e Endpoint) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.checked = time.Time{}
	return k.gone(ctx, e)
}

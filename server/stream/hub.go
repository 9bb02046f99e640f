package stream

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/backoff"
)

// Log is the history of runs: what was committed. A page may be read at any time, by many readers
// at once.
type Log interface {
	// Page returns at most limit events of a run with a greater number than after, in order.
	Page(ctx context.Context, tenant string, run uuid.UUID, after int64, limit int) ([]Message, error)
	// News is Page for what has just been committed: it does not wait behind pages. A hub asks for
	// a few at once, whatever is published.
	News(ctx context.Context, tenant string, run uuid.UUID, after int64, limit int) ([]Message, error)
	// Tops returns the number of the last event of each of these runs; a run without events may be
	// left out.
	Tops(ctx context.Context, tenant string, runs []uuid.UUID) (map[uuid.UUID]int64, error)
	// Ended returns those of these runs that have a final status, with the number of the last
	// event, or 0.
	Ended(ctx context.Context, tenant string, runs []uuid.UUID) (map[uuid.UUID]int64, error)
}

// endInterval is how often the log is asked which runs have a final status. A run ends with its
// terminal event, unless the application sets the status alone.
const endInterval = time.Second

// pollInterval is how often the log is asked for events that did not arrive live (FR-005's).
const pollInterval = 200 * time.Millisecond

const (
	pageSize   = 500              // events that are read from the log at once
	logTimeout = 10 * time.Second // of one read of the log
	// subscribeTimeout is how long a reader's beginning waits for the broker to acknowledge; after
	// it, it begins with the log alone.
	subscribeTimeout = time.Second
	// linger is how long the messages of a topic are kept after its last reader has gone, so that
	// one that comes back goes on where it was.
	linger = time.Minute
)

// Config holds a Hub's settings. The zero value is good.
type Config struct {
	// RunChannel names the channel of a run ("run:" and its id, FR-005).
	RunChannel func(tenant string, run uuid.UUID) (string, error)
	// TopicChannel names the channel of a topic (the topic itself).
	TopicChannel func(tenant, topic string) (string, error)
	Logger       *slog.Logger // nil: slog.Default
}

func (c Config) withDefaults() Config {
	if c.RunChannel == nil {
		c.RunChannel = func(_ string, run uuid.UUID) (string, error) { return "run:" + run.String(), nil }
	}
	if c.TopicChannel == nil {
		c.TopicChannel = func(_, topic string) (string, error) { return topic, nil }
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Hub serves the streams of one process. Each run or topic that has readers is followed once,
// however many they are.
type Hub struct {
	log  Log
	live outbox.Subscriber
	cfg  Config

	mu    sync.Mutex
	tails map[Source]tail
	// lingering counts the tails without readers that are kept.
	lingering int

	fills chan *runTail // whose log is to be read for all their readers
	stats counters
}

type counters struct {
	readers, fromLive, fromLog, gaps, resets, logErrors atomic.Int64
}

// Stats are counted since the process began, but for Readers and Sources, which are now.
type Stats struct {
	Readers   int64 // open
	Sources   int64 // runs and topics that are followed
	FromLive  int64 // events of runs that were read when the broker told of new ones, and events of topics
	FromLog   int64 // events that readers read from the log: history, and what they were too slow for
	Gaps      int64 // events that the broker had not told of when a later one, or the poll, showed that they exist
	Resets    int64 // readers of a topic that were told that they missed something
	LogErrors int64 // failed reads of the log
}

// Source is what can be followed: a run, or a topic.
type Source struct {
	Tenant string
	Run    uuid.UUID // uuid.Nil: Topic
	Topic  string
}

// tail follows one source for all its readers.
type tail interface {
	// begin makes the source ready. It is called once, before any next.
	begin(ctx context.Context)
	// beginning returns where a reader without a cursor begins.
	beginning() int64
	// position returns where a reader goes on after a reset.
	position() int64
	// next returns messages after cursor, which may need the log, or none if there are none now.
	// reset says that some may have been missed.
	next(ctx context.Context, cursor int64) (messages []Message, reset bool, err error)
	// keeps tells whether there is something that a reader could come back for, after the last has
	// gone.
	keeps() bool
	// end stops following.
	end()
	common() *following
}

// New returns a hub. It does nothing until Run.
func New(log Log, live outbox.Subscriber, cfg Config) *Hub {
	return &Hub{log: log, live: live, cfg: cfg.withDefaults(), tails: map[Source]tail{},
		fills: make(chan *runTail, fillsWaiting)}
}

const (
	fillsWaiting = 1024
	fillers      = 4 // reads of the log at once, besides those that readers do themselves
)

// Run looks for lost events until ctx ends. Without it, what the broker loses is found only when
// the next event arrives.
func (h *Hub) Run(ctx context.Context) error {
	var filling sync.WaitGroup
	defer filling.Wait()
	for range fillers {
		filling.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case t := <-h.fills:
					t.read(ctx)
				}
			}
		})
	}
	failing, asked := false, time.Time{}
	for pause := pollInterval; backoff.Wait(ctx, pause); {
		began := time.Now()
		err := h.poll(ctx, h.ask)
		if err == nil && began.Sub(asked) >= endInterval {
			err, asked = h.poll(ctx, h.askEnds), began
		}
		if err != nil && ctx.Err() == nil {
			if !failing {
				h.cfg.Logger.Error("streams cannot ask the log for lost events, trying again", "error", err)
			}
		}
		if failing && err == nil {
			h.cfg.Logger.Info("streams ask the log again")
		}
		failing = err != nil
		// A log that is slow to answer is not asked all the time.
		pause = max(pollInterval, 2*time.Since(began))
	}
	return nil
}

// topsAtOnce bounds one question: each run costs a probe of an index.
const topsAtOnce = 500

// poll asks the log about every followed run. One question serves all readers.
func (h *Hub) poll(ctx context.Context, ask func(context.Context, string, ...*runTail) error) error {
	h.mu.Lock()
	byTenant := map[string][]*runTail{}
	for source, t := range h.tails {
		if run, ok := t.(*runTail); ok {
			byTenant[source.Tenant] = append(byTenant[source.Tenant], run)
		}
	}
	h.mu.Unlock()
	var problems []error
	for tenant, tails := range byTenant {
		for len(tails) > 0 {
			some := tails[:min(len(tails), topsAtOnce)]
			tails = tails[len(some):]
			problems = append(problems, ask(ctx, tenant, some...))
		}
	}
	return errors.Join(problems...)
}

// ask asks the log for the last numbers of some runs of a tenant, and has events read that did not
// arrive.
func (h *Hub) ask(ctx context.Context, tenant string, tails ...*runTail) error {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	runs, before := make([]uuid.UUID, len(tails)), make([]int64, len(tails))
	for i, t := range tails {
		runs[i], before[i] = t.source.Run, t.last()
	}
	tops, err := h.log.Tops(ctx, tenant, runs)
	if err != nil {
		h.stats.logErrors.Add(1)
		return err
	}
	for i, t := range tails {
		t.reached(tops[runs[i]], before[i])
	}
	return nil
}

// askEnds asks the log which of some runs of a tenant have a final status, and tells those.
func (h *Hub) askEnds(ctx context.Context, tenant string, tails ...*runTail) error {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	runs := make([]uuid.UUID, len(tails))
	for i, t := range tails {
		runs[i] = t.source.Run
	}
	ends, err := h.log.Ended(ctx, tenant, runs)
	if err != nil {
		h.stats.logErrors.Add(1)
		return err
	}
	for i, t := range tails {
		last, ended := ends[runs[i]]
		t.mark(ended, last)
	}
	return nil
}

func (h *Hub) read(
	ctx context.Context, ask func(context.Context, string, uuid.UUID, int64, int) ([]Message, error), s Source,
	after int64,
) ([]Message, error) {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	messages, err := ask(ctx, s.Tenant, s.Run, after, pageSize)
	if err != nil {
		h.stats.logErrors.Add(1)
	}
	return messages, err
}

// Stats returns what happened so far.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	sources := len(h.tails)
	h.mu.Unlock()
	c := &h.stats
	return Stats{
		Readers: c.readers.Load(), Sources: int64(sources), FromLive: c.fromLive.Load(), FromLog: c.fromLog.Load(),
		Gaps: c.gaps.Load(), Resets: c.resets.Load(), LogErrors: c.logErrors.Load(),
	}
}

package crawl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/backoff"
)

// crawling is the work of one worker on one run, from claiming it to letting go of it.
type crawling struct {
	worker  *Worker
	store   Store
	cfg     *WorkerConfig
	log     *slog.Logger
	crawler Crawler

	id     uuid.UUID
	tenant string
	lease  Hold
	run    Run
	at     Progress
	doubt  bool // whether the database may be further than at: a change got no clear answer, and none has succeeded since
	done   int  // nodes finished

	// held lasts as long as the run is this worker's, working until it is told to stop or held
	// ends. A node works under working; that its result is committed outlives a stop, because the
	// node would have to be begun again.
	held, working context.Context
	lose          func(cause error) // ends both

	nodes sync.WaitGroup
}

// crawl works on a run until it has ended, is another's, or ctx ends.
func (w *Worker) crawl(ctx context.Context, claim Claim, asked time.Time) {
	c := &crawling{
		worker: w, store: w.store, cfg: &w.cfg,
		log:     w.cfg.Logger.With("run", claim.Run.ID, "crawler", claim.Run.Crawler),
		crawler: w.crawlers[claim.Run.Crawler],
		id:      claim.Run.ID, tenant: claim.Run.Tenant, lease: claim.Hold, run: claim.Run, at: claim.Progress,
	}
	began := "claimed a run"
	if claim.Resumed {
		began = "resumed a run that another claim had begun"
	}
	c.log.Info(began, "resumed", claim.Resumed, "steps", c.at.Steps)
	working, quit := context.WithCancelCause(ctx)
	held, drop := context.WithCancelCause(context.WithoutCancel(ctx))
	c.working, c.held = working, held
	c.lose = func(cause error) { drop(cause); quit(cause) }
	var keeper sync.WaitGroup
	keeper.Go(func() { c.keep(asked) })

	status, err := c.work()
	if state, ok := errors.AsType[*StateError](err); ok {
		status, err = state.Status, nil // somebody ended it
	}
	log := c.log.With("resumed", claim.Resumed, "status", status, "steps", c.at.Steps, "took",
		time.Since(asked).Round(time.Millisecond).String())
	switch {
	case err == nil:
		log.Info("run ended")
	case held.Err() == nil && ctx.Err() != nil:
		if err := c.release(); err != nil {
			log.Warn("stopped without releasing the run: its lease lapses by itself", "error", err)
		} else {
			log.Info("stopped, and released the run for another worker")
		}
	default:
		log.Warn("let go of the run", "error", err)
	}
	c.lose(context.Canceled)
	keeper.Wait()
	if w.cfg.Observer != nil {
		w.cfg.Observer.ObserveRun(RunReport{Crawler: c.run.Crawler, Resumed: claim.Resumed, Status: status, Steps: c.done,
			Took: time.Since(asked)})
	}
	c.nodes.Wait() // one that does not return keeps its place among the runs: nothing can end it
}

// work visits nodes until the run ends. An error says why it has not.
func (c *crawling) work() (Status, error) {
	if c.at.Attempts > c.cfg.MaxAttempts {
		return c.fail(fmt.Errorf("workers began it %d times in a row and none finished it", c.at.Attempts-1))
	}
	if c.at.Node == "" && c.run.LastSeq < 2 { // started over the API, which knows no nodes
		begin := Change{Events: []NewEvent{c.worker.nodeStart(c.run.Crawler)}, Progress: Progress{Node: c.crawler.First}}
		if err := c.commit(begin); err != nil {
			return Running, err
		}
	}
	for {
		result, err := c.visit()
		if err != nil && c.working.Err() != nil {
			return Running, context.Cause(c.working)
		}
		if err != nil {
			return c.fail(err)
		}
		step := c.step(result)
		err = c.commit(step)
		switch {
		case errors.Is(err, ErrInvalid), errors.Is(err, ErrEventReused):
			return c.fail(err)
		case err != nil:
			return Running, err
		}
		if c.done++; step.To != "" {
			return step.To, nil
		}
	}
}

// node is the name of the node that comes next.
func (c *crawling) node() string {
	if c.at.Node == "" {
		return c.crawler.First
	}
	return c.at.Node
}

// nodeGrace is how long a node may take to return when its time is over.
const nodeGrace = time.Second

// visit visits the next node and checks what it returned.
func (c *crawling) visit() (Result, error) {
	node, err := c.crawler.find(c.node())
	if err != nil {
		return Result{}, err
	}
	ctx, cancel := c.nodeContext()
	defer cancel()
	type answer struct {
		result Result
		err    error
	}
	answered := make(chan answer, 1)
	run, at := c.run, c.at // one that does not return may outlast them
	c.nodes.Go(func() {
		var a answer
		a.result, a.err = c.call(ctx, node, run, at)
		answered <- a
	})
	var a answer
	select {
	case a = <-answered:
	case <-ctx.Done():
		select {
		case a = <-answered:
		case <-time.After(nodeGrace):
			c.log.Warn("a node does not return although its context has ended", "node", c.node())
			a.err = ctx.Err()
		}
	}
	switch {
	case a.err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return Result{}, fmt.Errorf("it took longer than %s", c.cfg.NodeTimeout)
	case a.err != nil:
		return Result{}, a.err
	}
	return a.result, c.check(&a.result)
}

// nodeContext returns the context for one visit.
func (c *crawling) nodeContext() (context.Context, context.CancelFunc) {
	if c.cfg.NodeTimeout > 0 {
		return context.WithTimeout(c.working, c.cfg.NodeTimeout)
	}
	return context.WithCancel(c.working)
}

// call calls a node. A panic is the node's error: it would end the process, and with it every other
// run, again and again.
func (c *crawling) call(ctx context.Context, node Node, run Run, at Progress) (r Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("a node panicked", "step", at.Steps+1, "panic", p, "stack", string(debug.Stack()))
			r, err = Result{}, fmt.Errorf("panic: %v", p)
		}
	}()
	return node.Visit(ctx, run, at.State)
}

// check completes a result, and reports what of it could not be committed: the run has to fail
// then, not to be tried for ever.
func (c *crawling) check(r *Result) error {
	r.Events = slices.Clone(r.Events)
	if err := complete(r.Events, outbox.DefaultMaxPayload); err != nil {
		return err
	}
	if r.State != nil {
		if err := checkJSON("state", r.State, outbox.DefaultMaxPayload); err != nil {
			return err
		}
	}
	if r.Next == "" {
		return nil
	}
	_, err := c.crawler.find(r.Next)
	return err
}

// step is the change that a finished node makes: its events, that it is complete, and what comes
// then.
func (c *crawling) step(r Result) Change {
	n := c.at.Steps + 1
	change := Change{
		Events:   append(r.Events, newEvent(NodeComplete, nodeVisit{Node: c.node(), Step: n})),
		Progress: Progress{Node: r.Next, State: r.State, Steps: n},
	}
	var last NewEvent
	switch {
	case r.Next == "":
		change.To, last = Completed, newEvent(RunCompleted, reason{ReasonFinished})
	case n >= c.run.MaxSteps:
		change.To, last = Completed, newEvent(RunCompleted, reason{ReasonMaxSteps})
	default:
		last = newEvent(NodeStart, nodeVisit{Node: r.Next, Step: n + 1})
	}
	change.Events = append(change.Events, last)
	return change
}

// fail ends the run with an error of its next node.
func (c *crawling) fail(err error) (Status, error) {
	step := c.at.Steps + 1
	message := errorText(fmt.Sprintf("node %s (step %d): %v", c.node(), step, err))
	err = c.commit(Change{To: Failed, Error: message, Progress: c.at, Events: []NewEvent{
		newEvent(ErrorOccurred, nodeVisit{Node: c.node(), Step: step, Error: errorText(err.Error())}),
		newEvent(RunFailed, failure{message}),
	}})
	if err != nil {
		return Running, err
	}
	return Failed, nil
}

// commit makes a change under the lease. While the database is down it keeps the change and tries
// again, until the lease is over.
//
// It gives up too when the change has failed for the time of a lease and the lease could be
// renewed. What the database refuses time after time is the change. The run is claimed again when
// the lease lapses, and fails when that has happened MaxAttempts times.
func (c *crawling) commit(change Change) error {
	change.From, change.Hold = []Status{Running}, &c.lease
	if err := identify(change.Events); err != nil {
		return err
	}
	began := time.Now()
	for wait := time.Duration(0); ; {
		changed, err := c.change(change)
		if err == nil {
			c.run, c.at, c.doubt = changed.Run, change.Progress, false
			return nil
		}
		_, ended := errors.AsType[*StateError](err)
		switch {
		case ended, errors.Is(err, ErrLeaseLost), errors.Is(err, ErrNotFound), errors.Is(err, ErrInvalid),
			errors.Is(err, ErrEventReused):
			return err
		}
		c.doubt = true
		switch {
		case c.held.Err() != nil:
			return context.Cause(c.held)
		case time.Since(began) > c.cfg.LeaseTTL:
			return err
		}
		c.worker.outage.failed(err)
		wait = longer(wait)
		if !backoff.Wait(c.working, wait) {
			return context.Cause(c.working)
		}
	}
}

func (c *crawling) change(change Change) (Changed, error) {
	ctx, cancel := context.WithTimeout(c.held, c.cfg.LeaseTTL/3)
	defer cancel()
	return c.store.Change(ctx, c.tenant, c.id, change)
}

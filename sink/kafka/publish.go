package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/fault"
	"github.com/outboxrelay/outbox/internal/sink/rounds"
)

// Publish implements outbox.Sink. What can be refused beforehand (the name of a topic, a topic that
// is not there, the size) is no error of anything else. An outcome that is unknown when ctx ends is
// of class outbox.ClassUnavailable, and such a delivery may be published.
//
// It returns as soon as ctx ends. What it leaves in the client is not sent any more, but for what
// was being sent.
func (s *Sink) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	p := &publication{
		Sink: s, session: s.current(), batch: batch,
		results: make([]outbox.Result, len(batch)), records: make([]*kgo.Record, len(batch)), placing: newPlacing(),
	}
	todo := make([]int, len(batch))
	for i := range todo {
		todo[i] = i
	}
	if s.cfg.TransactionalID != "" {
		p.transactions(ctx, todo)
	} else {
		p.rounds(ctx, todo)
	}
	return p.results
}

// publication is one call of Publish.
type publication struct {
	*Sink
	*session
	batch   []outbox.Delivery
	results []outbox.Result
	records []*kgo.Record // made when they are first needed
	placing placing
	failed  map[int64]failure  // by ordering key
	most    map[*partition]int // records of a chunk, where more were refused together
	absent  map[*topic]error   // topics that cannot be published to
}

// failure is the first event of an ordering key that failed, and where it is in the batch.
type failure struct {
	event uuid.UUID
	at    int
}

// held tells whether a delivery is behind a failed event of its key. The other destinations of that
// event are served.
func (p *publication) held(i int) bool {
	d := &p.batch[i]
	f, ok := p.failed[d.OrderKey]
	return d.Keyed && ok && i > f.at && d.ID != f.event
}

func (p *publication) fail(i int, err error) {
	p.results[i] = outbox.Result{Err: err}
	d := &p.batch[i]
	if f, ok := p.failed[d.OrderKey]; !d.Keyed || ok && f.at <= i {
		return
	}
	if p.failed == nil {
		p.failed = map[int64]failure{}
	}
	p.failed[d.OrderKey] = failure{d.ID, i}
}

// hold answers a delivery that is behind a failed event of its key, and tells whether it is.
func (p *publication) hold(i int) bool {
	held := p.held(i)
	if held {
		p.results[i] = outbox.Result{Err: outbox.ErrNotAttempted}
	}
	return held
}

// rounds publishes what todo names, in as many rounds as it takes.
func (p *publication) rounds(ctx context.Context, todo []int) {
	found := p.find(ctx, todo)
	for len(todo) > 0 {
		if ctx.Err() != nil {
			p.interrupt(ctx, todo)
			return
		}
		r := p.plan(todo)
		todo = r.later
		if len(r.chunks) > 0 {
			todo = append(todo, p.send(ctx, r.chunks)...)
			slices.Sort(todo)
		}
		if len(r.chunks) == 0 && found == nil {
			found = p.find(ctx, todo) // a topic has gone since
		}
		if len(todo) > 0 && found != nil {
			p.learn(ctx, found)
			found = nil
		}
		if len(todo) > 0 {
			fault.Hit(fault.MidBatch)
		}
	}
}

func (p *publication) interrupt(ctx context.Context, deliveries []int) {
	for _, i := range deliveries {
		p.results[i] = outbox.Result{Err: interrupted(ctx)}
	}
}

func interrupted(ctx context.Context) error {
	return outbox.Unavailable(fmt.Errorf("publish to Kafka: %w", ctx.Err()))
}

// find looks for the topics that nobody has published to yet, while others are published to. It is
// nil if there are none.
func (p *publication) find(ctx context.Context, todo []int) <-chan map[*topic]error {
	var unknown []*topic
	for _, i := range todo {
		name := p.batch[i].Destination
		if checkTopic(name) != nil {
			continue
		}
		if t := p.topic(name); t.count.Load() == 0 && !slices.Contains(unknown, t) {
			unknown = append(unknown, t)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	found := make(chan map[*topic]error, 1)
	p.working.Go(func() { found <- p.discover(ctx, unknown, p.cfg.Create) })
	return found
}

// learn waits for what find has started.
func (p *publication) learn(ctx context.Context, found <-chan map[*topic]error) {
	select {
	case absent := <-found:
		if p.absent == nil {
			p.absent = map[*topic]error{}
		}
		maps.Copy(p.absent, absent)
	case <-ctx.Done():
	}
}

// round is what is published at once.
type round struct {
	chunks []*chunk
	later  []int // deliveries for which there is no room in it, or whose topic is being looked for
}

// plan takes a round out of todo, and answers what is refused beforehand.
func (p *publication) plan(todo []int) (r round) {
	keys := rounds.Keys[*partition]{}
	chunks := map[*partition]*chunk{}
	free := map[*topic]int{} // the partition of this round's events without a key
	later := func(i int) {
		keys.Close(p.batch[i].Record)
		r.later = append(r.later, i)
	}
	for _, i := range todo {
		d := &p.batch[i]
		if p.hold(i) {
			continue
		}
		if keys.Closed(d.Record) {
			later(i)
			continue
		}
		t, n, err := p.prepare(i)
		if err != nil {
			// What the same round has of the key may fail yet, and this event is not the first to
			// fail then.
			if keys.Behind(d.Record) {
				later(i)
			} else {
				p.fail(i, err)
			}
			continue
		}
		to := p.place(d, p.records[i], t, n, free)
		if to == nil || !p.room(chunks[to], to, p.records[i]) || !keys.Join(d.Record, to) {
			if !d.Keyed && to != nil {
				free[t]++ // the next partition in the next round
			}
			later(i)
			continue
		}
		if chunks[to] == nil {
			chunks[to] = newChunk(to)
			r.chunks = append(r.chunks, chunks[to])
		}
		chunks[to].add(i, p.records[i])
	}
	return r
}

// prepare makes the record of a delivery. It returns its topic with the number of its partitions, 0
// if that is not known yet, and what is wrong with the record or the topic.
func (p *publication) prepare(i int) (t *topic, n int, err error) {
	d := &p.batch[i]
	if p.records[i] == nil {
		if p.records[i], err = p.record(d); err != nil {
			return nil, 0, outbox.Permanent(err)
		}
	}
	t = p.topic(d.Destination)
	if err := p.absent[t]; err != nil {
		return nil, 0, err
	}
	return t, int(t.count.Load()), nil
}

// place returns where a delivery goes, of n partitions; nil if there are none.
func (p *publication) place(d *outbox.Delivery, r *kgo.Record, t *topic, n int, free map[*topic]int) *partition {
	if n == 0 {
		return nil
	}
	if d.Keyed {
		return t.partition(p.placing.partition(d, r, n))
	}
	if _, ok := free[t]; !ok {
		free[t] = int(t.next.Add(1))
	}
	return t.partition(free[t] % n)
}

// room tells whether a partition's one batch of this round has room for a record.
func (p *publication) room(c *chunk, to *partition, r *kgo.Record) bool {
	if c == nil {
		return true
	}
	limit := p.cfg.MaxMessageBytes
	if learnt := int(to.limit.Load()); learnt > 0 {
		limit = min(limit, learnt)
	}
	if most := p.most[to]; most > 0 && len(c.records) >= most {
		return false
	}
	return c.size+sizeOf(r) <= limit
}

package admin

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/backoff"
	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// DeskConfig is what a Desk is made of.
type DeskConfig struct {
	Config      config.Config
	Database    Database
	Examination condition.Examination // of Config and Database
	Wake        func(table string)    // tells the relays of a table that it has something to deliver
	Which       condition.Selection   // of the conditions
	ReadOnly    bool
	Logger      *slog.Logger
}

// Desk is the admin API of a process. It is safe for concurrent use.
type Desk struct {
	DeskConfig

	mu      sync.Mutex
	now     Overview
	seen    bool
	history []Sample
	next    chan struct{} // is closed when now is another
	viewers int
	wanted  chan struct{}    // has a value while an operator looks
	report  condition.Report // of the conditions that are not live
	ending  chan struct{}    // is closed when answers that come bit by bit must end
	drained sync.Once
	shared  map[string]*shared // by request
	store   deadletter.Store
	opened  time.Time // store was
}

// NewDesk returns a desk whose Run must be called.
func NewDesk(c DeskConfig) *Desk {
	return &Desk{DeskConfig: c, now: unknown(), next: make(chan struct{}),
		wanted: make(chan struct{}, 1), ending: make(chan struct{}), shared: map[string]*shared{}}
}

// Overview is the state of everything, as it was At.
type Overview struct {
	At         time.Time           `json:"at"`
	Worst      condition.Severity  `json:"worst"`
	Sentence   string              `json:"sentence"`
	Findings   []condition.Finding `json:"findings" nullable:"false"`
	Unseen     []condition.Unseen  `json:"unseen" nullable:"false"`
	ExaminedAt time.Time           `json:"examinedAt,omitzero"`
	Tables     []TableState        `json:"tables" nullable:"false"`
	Sinks      []SinkState         `json:"sinks" nullable:"false"`
	Blocked    []Blocked           `json:"blocked" nullable:"false" doc:"Events that are tried again; at most 20."`
	Letters    LetterCount         `json:"letters"`
	Pauses     []operate.Pause     `json:"pauses" nullable:"false"`
	Error      string              `json:"error,omitempty" doc:"Why nothing newer is known."`
}

// unknown is the state before anything is known.
func unknown() Overview {
	return Overview{Tables: []TableState{}, Sinks: []SinkState{}, Blocked: []Blocked{}, Pauses: []operate.Pause{}}
}

// TableState is a table, and who serves it.
type TableState struct {
	Table              string              `json:"table"`
	Group              string              `json:"group,omitempty" doc:"The consumer group that reads the table."`
	Sink               string              `json:"sink,omitempty"`
	Why                string              `json:"why,omitempty" doc:"Why the counts are not known."`
	Log                bool                `json:"log"`
	Hidden             bool                `json:"hidden"`
	Paused             bool                `json:"paused"`
	Backlog            int                 `json:"backlog"`
	Bounded            bool                `json:"bounded"`
	Oldest             *float64            `json:"oldestSeconds,omitempty"`
	Retrying           int                 `json:"retrying"`
	HeldKeys           int                 `json:"heldKeys"`
	Held               int                 `json:"held"`
	WrittenPerSecond   *float64            `json:"writtenPerSecond,omitempty"`
	DeliveredPerSecond *float64            `json:"deliveredPerSecond,omitempty"`
	Relays             []operate.RelayView `json:"relays" nullable:"false"`
	FreeLanes          int                 `json:"freeLanes"`
	LapsedLanes        int                 `json:"lapsedLanes"`

	queue   string
	written *int64
	at      time.Time
}

// SinkState is a sink, as relays have told and as its debts are.
type SinkState struct {
	Name     string     `json:"name"`
	URL      string     `json:"url,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
	Owed     int        `json:"owed"`
	Retrying int        `json:"retrying"`
	Held     int        `json:"held" doc:"Deliveries that wait behind a failing one of their key."`
	HeldKeys int        `json:"heldKeys"`
	Oldest   *float64   `json:"oldestSeconds,omitempty"`
	Dead     int        `json:"dead"`
	Tables   []string   `json:"tables" nullable:"false"`
	// State is available, down, slow, or unknown: no live relay reports the sink.
	State string `json:"state" enum:"available,down,slow,unknown"`
}

// Blocked is an event that is tried again.
type Blocked struct {
	operate.Failing
	Table string `json:"table"`
	To    string `json:"to,omitempty" doc:"The sink whose pending delivery it is."`
}

// LetterCount is how many letters nobody has replayed or discarded.
type LetterCount struct {
	Pending int  `json:"pending"`
	Bounded bool `json:"bounded"`
}

// Sample is one moment of the tables.
type Sample struct {
	At     time.Time              `json:"at"`
	Tables map[string]TableSample `json:"tables"`
}

// TableSample is a table at that moment.
type TableSample struct {
	Backlog            int      `json:"backlog"`
	Oldest             *float64 `json:"oldestSeconds,omitempty"`
	WrittenPerSecond   *float64 `json:"writtenPerSecond,omitempty"`
	DeliveredPerSecond *float64 `json:"deliveredPerSecond,omitempty"`
}

const (
	// A sample takes three statements. While an operator looks, it is taken every sampleEvery, and
	// the conditions that are not found in facts are examined every examineEvery.
	sampleEvery  = time.Second
	sampleLimit  = 5 * time.Second
	examineEvery = time.Minute
	historyKept  = 15 * time.Minute
	openFor      = 30 * time.Second
	blockedShown = 20
	// countedForSample bounds the count of undelivered events of a queue in a sample.
	countedForSample = 20_000
	// lookedFor is the time for which samples are taken after an operator who does not watch has
	// looked.
	lookedFor = 5 * time.Second
)

// Run asks the database while somebody looks, until ctx ends.
func (d *Desk) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-d.wanted:
		}
		for end := time.Now().Add(lookedFor); ctx.Err() == nil; {
			began := time.Now()
			d.Sample(ctx)
			backoff.Wait(ctx, max(sampleEvery-time.Since(began), sampleEvery/4))
			d.mu.Lock()
			watched := d.viewers > 0
			d.mu.Unlock()
			if !watched && time.Now().After(end) {
				break
			}
		}
	}
	return nil
}

// Drain ends the answers that come bit by bit: a replay after the page that it is at.
func (d *Desk) Drain() { d.drained.Do(func() { close(d.ending) }) }

// live returns a context that ends with ctx or with Drain.
func (d *Desk) live(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-d.ending:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// want has Run ask the database.
func (d *Desk) want() {
	select {
	case d.wanted <- struct{}{}:
	default:
	}
}

// Sample reads the facts once and judges them. If the database does not answer, the overview is the
// previous one with Error set.
func (d *Desk) Sample(ctx context.Context) Overview {
	d.mu.Lock()
	before, examined := d.now, d.report
	d.mu.Unlock()
	if time.Since(examined.At) > examineEvery {
		x := d.Examination
		examined = x.Examine(ctx, d.Which)
	}
	now := d.read(ctx, before, examined)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now, d.seen, d.report = now, true, examined
	if now.Error == "" {
		d.remember(now)
	}
	close(d.next)
	d.next = make(chan struct{})
	return now
}

func (d *Desk) remember(now Overview) {
	s := Sample{now.At, map[string]TableSample{}}
	for _, t := range now.Tables {
		s.Tables[t.queue] = TableSample{t.Backlog, t.Oldest, t.WrittenPerSecond, t.DeliveredPerSecond}
	}
	d.history = append(d.history, s)
	old := 0
	for now.At.Sub(d.history[old].At) > historyKept {
		old++
	}
	d.history = slices.Delete(d.history, 0, old)
}

// Overview returns what is known, which is read first if nobody has looked of late.
func (d *Desk) Overview(ctx context.Context) (Overview, error) {
	d.want()
	d.mu.Lock()
	now, next, fresh := d.now, d.next, d.seen && time.Since(d.now.At) < lookedFor
	d.mu.Unlock()
	if fresh {
		return now, nil
	}
	return d.after(ctx, next)
}

// after waits for the next overview.
func (d *Desk) after(ctx context.Context, next <-chan struct{}) (Overview, error) {
	select {
	case <-next:
	case <-ctx.Done():
		return Overview{}, ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now, nil
}

// watch calls fn with each overview until it fails or ctx ends.
func (d *Desk) watch(ctx context.Context, fn func(Overview) error) error {
	d.mu.Lock()
	d.viewers++
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.viewers--
		d.mu.Unlock()
	}()
	now, err := d.Overview(ctx)
	for err == nil {
		if err = fn(now); err != nil {
			break
		}
		d.want()
		d.mu.Lock()
		next := d.next
		d.mu.Unlock()
		now, err = d.after(ctx, next)
	}
	return err
}

// read reads the facts and judges them, together with what an earlier examination found beyond
// facts.
func (d *Desk) read(ctx context.Context, before Overview, examined condition.Report) Overview {
	ctx, cancel := context.WithTimeout(ctx, sampleLimit)
	defer cancel()
	x := d.Examination
	x.Count = countedForSample
	status := x.Status(ctx)
	now := unknown()
	now.At = time.Now().UTC()
	if status.Facts == nil {
		now = before
		now.Error = status.Err.Error()
	} else {
		d.add(status.Facts, &now, before)
	}
	report := status.With(examined)
	now.Worst, now.Findings, now.Unseen, now.ExaminedAt = report.Worst, report.Findings, report.Unseen, examined.At
	now.Sentence = report.Sentence(status.Facts)
	return now
}

// add adds the facts to an overview.
func (d *Desk) add(f *operate.Facts, now *Overview, before Overview) {
	for i := range f.Queues {
		q := &f.Queues[i]
		if q.State == operate.NotInstalled {
			continue
		}
		if q.Sink == "" {
			now.Tables = append(now.Tables, d.tableState(q, before))
		}
		for _, e := range q.Failing {
			if len(now.Blocked) < blockedShown && e.Attempts > 0 {
				now.Blocked = append(now.Blocked, Blocked{e, q.Table, q.Sink})
			}
		}
	}
	now.Pauses = f.Pauses
	for _, p := range f.DeadLetters {
		now.Letters.Pending += p.Letters
	}
	now.Letters.Bounded = now.Letters.Pending >= countedForSample
	d.addSinks(f, now)
}

// tableState returns the state of a table, or of a log for one of its readers.
func (d *Desk) tableState(q *operate.Queue, before Overview) TableState {
	s := TableState{Table: q.Table, Group: q.Group, Log: q.Log, Hidden: q.State != operate.Known, Why: q.Why,
		Paused:  q.Paused,
		Backlog: q.Waiting, Bounded: q.Bounded, Oldest: q.Oldest, Retrying: q.Retrying, HeldKeys: q.Keys,
		Held:        q.Blocked,
		LapsedLanes: q.Expired, FreeLanes: outbox.LaneCount - q.Held - q.Expired, Relays: []operate.RelayView{},
		queue: q.Name, written: q.Inserted, at: time.Now()}
	if to, err := d.Config.SinkOf(q.Table); err == nil && q.Group == "" {
		s.Sink = to.Name
	}
	for _, p := range q.Processes {
		s.Relays = append(s.Relays, operate.RelayView{Owner: p.Owner, Name: p.Name, JoinedAt: p.JoinedAt,
			ExpiresIn: p.ExpiresIn,
			Lanes:     p.Lanes})
	}
	s.rates(before)
	return s
}

// rates sets the rates since the sample before.
func (s *TableState) rates(before Overview) {
	i := slices.IndexFunc(before.Tables, func(t TableState) bool { return t.queue == s.queue })
	if i < 0 || before.Error != "" || s.written == nil || before.Tables[i].written == nil {
		return
	}
	was := before.Tables[i]
	seconds := s.at.Sub(was.at).Seconds()
	if seconds <= 0 || *s.written < *was.written {
		return
	}
	written := float64(*s.written-*was.written) / seconds
	s.WrittenPerSecond = &written
	if !s.Bounded && !was.Bounded && !s.Hidden {
		delivered := max(written-float64(s.Backlog-was.Backlog)/seconds, 0)
		s.DeliveredPerSecond = &delivered
	}
}

// addSinks joins the sinks of the settings, those that live relays report, and those that have
// pending deliveries.
func (d *Desk) addSinks(f *operate.Facts, now *Overview) {
	find := func(name string) *SinkState {
		for i := range now.Sinks {
			if now.Sinks[i].Name == name {
				return &now.Sinks[i]
			}
		}
		now.Sinks = append(now.Sinks, SinkState{Name: name, State: "unknown", Tables: []string{}})
		return &now.Sinks[len(now.Sinks)-1]
	}
	for _, s := range d.Config.AllSinks() {
		find(s.Name).URL = s.Masked()
	}
	for i := range f.Queues {
		q := &f.Queues[i]
		if q.Group == "" {
			for _, name := range condition.ServedSinks(q) {
				find(name).report("available", "", nil)
			}
		}
		for _, p := range q.Alive() {
			for name, why := range p.Slow {
				find(name).report("slow", why, p.Since)
			}
			for name, why := range p.Sinks {
				find(name).report("down", why, p.Since)
			}
		}
		if q.Sink == "" {
			continue
		}
		s := find(q.Sink)
		s.Owed += q.Waiting
		s.Retrying += q.Retrying
		s.Held += q.Blocked
		s.HeldKeys += q.Keys
		s.Dead += f.Dead[[2]string{q.Table, q.Sink}]
		s.Tables = append(s.Tables, q.Table)
		if q.Oldest != nil && (s.Oldest == nil || *q.Oldest > *s.Oldest) {
			s.Oldest = q.Oldest
		}
	}
	slices.SortStableFunc(now.Sinks, func(a, b SinkState) int { return cmp.Compare(a.Name, b.Name) })
}

// report takes over the state that a live relay reports, unless another relay reports a worse one.
func (s *SinkState) report(state, why string, since *time.Time) {
	if order := []string{"unknown", "available", "slow", "down"}; slices.Index(order, state) > slices.Index(order,
		s.State) {
		s.State, s.Reason, s.Since = state, why, since
	}
}

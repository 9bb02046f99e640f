package admin

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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
	wanted  chan struct{} // has one while somebody looks
	report  condition.Report
	judged  Overview      // as it was when the conditions were examined
	ending  chan struct{} // is closed when answers that come bit by bit must end
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
	Sink               string              `json:"sink,omitempty"`
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

	written int64
	at      time.Time
}

// SinkState is a sink, as relays have told and as its debts are.
type SinkState struct {
	Name     string     `json:"name"`
	URL      string     `json:"url,omitempty"`
	Ready    bool       `json:"ready"`
	Reason   string     `json:"reason,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
	Owed     int        `json:"owed"`
	Retrying int        `json:"retrying"`
	Oldest   *float64   `json:"oldestSeconds,omitempty"`
	Dead     int        `json:"dead"`
	Tables   []string   `json:"tables" nullable:"false"`
}

// Blocked is an event that is tried again.
type Blocked struct {
	operate.EventRow
	Table string `json:"table"`
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
	// Looking costs the database five statements a second, however many look: these, and an
	// examination a minute.
	statementEvery   = 320 * time.Millisecond
	tableStatements  = 5 // of a sample, for each table
	otherStatements  = 4
	sampleLimit      = 5 * time.Second
	examineEvery     = time.Minute
	examineAgain     = 3 * time.Second // where something has come or gone meanwhile
	historyKept      = 15 * time.Minute
	openFor          = 30 * time.Second
	blockedShown     = 20
	countedForSample = 20_000
	lettersCounted   = 10_000
	// lookedFor is how long the database is asked after the last look of somebody who does not
	// watch.
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
			_, every := d.Sample(ctx)
			backoff.Wait(ctx, every-time.Since(began))
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

// Sample asks the database once and returns how long the caller has to wait before the next sample.
// If the database does not answer, the overview is the previous one with Error set.
func (d *Desk) Sample(ctx context.Context) (_ Overview, every time.Duration) {
	reading, cancel := context.WithTimeout(ctx, sampleLimit)
	defer cancel()
	d.mu.Lock()
	before := d.now
	examined, judged := d.report, d.judged
	d.mu.Unlock()
	now, err := d.read(reading, before)
	if err != nil {
		now = before
		now.Error = err.Error()
	} else if age := time.Since(examined.At); age > examineEvery || age > examineAgain && now.turned(judged) {
		x := d.Examination
		examined, judged = x.Examine(ctx, d.Which), now
	}
	now.judge(examined)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now, d.seen, d.report, d.judged = now, true, examined, judged
	if err == nil {
		d.remember(now)
	}
	close(d.next)
	d.next = make(chan struct{})
	statements := len(now.Tables)*tableStatements + otherStatements
	return now, max(time.Second, time.Duration(statements)*statementEvery)
}

// turned tells whether something has come or gone that conditions are about: they would contradict
// what is beside them.
func (o Overview) turned(before Overview) bool {
	away := func(o Overview) (names []string) {
		for _, s := range o.Sinks {
			if !s.Ready {
				names = append(names, s.Name)
			}
		}
		return names
	}
	return !slices.Equal(away(o), away(before)) || len(o.Pauses) != len(before.Pauses) ||
		(len(o.Blocked) > 0) != (len(before.Blocked) > 0) || (o.Letters.Pending > 0) != (before.Letters.Pending > 0)
}

func (d *Desk) remember(now Overview) {
	s := Sample{now.At, map[string]TableSample{}}
	for _, t := range now.Tables {
		s.Tables[t.Table] = TableSample{t.Backlog, t.Oldest, t.WrittenPerSecond, t.DeliveredPerSecond}
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

// read asks the database for all but the conditions.
func (d *Desk) read(ctx context.Context, before Overview) (now Overview, err error) {
	now = unknown()
	now.At = time.Now().UTC()
	tables, err := d.Config.Tables()
	if err != nil {
		return now, err
	}
	if err := d.Database.Ping(ctx); err != nil {
		return now, err
	}
	for _, t := range tables {
		b, err := d.Database.Browser(ctx, t.Layout)
		if err != nil {
			continue // the conditions say why
		}
		if err := d.readTable(ctx, t, b, &now, before); err != nil {
			return now, err
		}
	}
	if now.Pauses, err = AllPauses(ctx, d.Database); err != nil || now.Pauses == nil {
		now.Pauses = []operate.Pause{} // a role that may not see them, or an older database, has none to show
	}
	d.readSinks(ctx, &now)
	// Letters that this role may not see: a condition says so.
	pending, _ := d.Database.PendingLetters(ctx, lettersCounted)
	for _, p := range pending {
		now.Letters.Pending += p.Letters
	}
	now.Letters.Bounded = now.Letters.Pending >= lettersCounted
	return now, nil
}

func (d *Desk) readTable(ctx context.Context, t config.Table, b *operate.Browser, now *Overview,
	before Overview) error {
	lanes, err := b.Lanes(ctx, countedForSample)
	if err != nil {
		return err
	}
	s := TableState{Table: t.Name(), Log: !t.Layout.KeepsState(), Hidden: lanes.Hidden, Backlog: lanes.Counted,
		Bounded: lanes.Bounded, Relays: lanes.Relays, at: time.Now()}
	if to, err := d.Config.SinkOf(t.Name()); err == nil {
		s.Sink = to.Name
	}
	for _, l := range lanes.Lanes {
		s.Retrying += l.Retrying
		s.Held += l.Held
		s.HeldKeys += l.HeldKeys
		if l.Oldest != nil && (s.Oldest == nil || *l.Oldest > *s.Oldest) {
			s.Oldest = l.Oldest
		}
		switch l.State {
		case "free":
			s.FreeLanes++
		case "lapsed":
			s.LapsedLanes++
		}
	}
	s.Paused = slices.ContainsFunc(lanes.Pauses,
		func(p operate.Pause) bool { return p.Topic == "" && p.Destination == "" })
	if s.written, err = b.Written(ctx); err == nil {
		s.rates(before)
	}
	if s.Retrying > 0 && !s.Log && !s.Hidden && len(now.Blocked) < blockedShown {
		rows, _, err := b.List(ctx, operate.Filter{Statuses: retrying(t.Layout),
			Limit: blockedShown - len(now.Blocked)})
		if err != nil {
			return err
		}
		for _, r := range rows {
			if r.WaitsBehind == nil && r.Attempts > 0 {
				now.Blocked = append(now.Blocked, Blocked{r, t.Name()})
			}
		}
	}
	now.Tables = append(now.Tables, s)
	return nil
}

// retrying is the status of an event that has failed and is tried again.
func retrying(l outbox.Layout) []string {
	switch {
	case l.Status == "":
		return []string{"retry"}
	case l.Retrying != "":
		return []string{l.Retrying}
	}
	return []string{l.Pending}
}

// rates are what was written and delivered since the sample before.
func (s *TableState) rates(before Overview) {
	i := slices.IndexFunc(before.Tables, func(t TableState) bool { return t.Table == s.Table })
	if i < 0 || before.Error != "" {
		return
	}
	was := before.Tables[i]
	seconds := s.at.Sub(was.at).Seconds()
	if seconds <= 0 || s.written < was.written {
		return
	}
	written := float64(s.written-was.written) / seconds
	s.WrittenPerSecond = &written
	if !s.Bounded && !was.Bounded && !s.Hidden {
		delivered := max(written-float64(s.Backlog-was.Backlog)/seconds, 0)
		s.DeliveredPerSecond = &delivered
	}
}

// readSinks joins the settings, what relays have told, and the debts.
func (d *Desk) readSinks(ctx context.Context, now *Overview) {
	find := func(name string) *SinkState {
		for i := range now.Sinks {
			if now.Sinks[i].Name == name {
				return &now.Sinks[i]
			}
		}
		now.Sinks = append(now.Sinks, SinkState{Name: name, Ready: true, Tables: []string{}})
		return &now.Sinks[len(now.Sinks)-1]
	}
	for _, s := range d.Config.AllSinks() {
		find(s.Name).URL = s.Masked()
	}
	for _, t := range TroublesOf(ctx, d.Database, "") {
		for name, why := range t.Sinks {
			s := find(name)
			s.Ready, s.Reason, s.Since = false, why, t.Since
		}
	}
	debts, err := d.Database.Debts(ctx)
	if err != nil {
		return // there are none, or this role may not see them
	}
	for _, debt := range debts {
		s := find(debt.Sink)
		s.Owed += debt.Owed
		s.Retrying += debt.Retrying
		s.Dead += debt.Dead
		s.Tables = append(s.Tables, debt.Table)
		if debt.Oldest != nil && (s.Oldest == nil || *debt.Oldest > *s.Oldest) {
			s.Oldest = debt.Oldest
		}
	}
	slices.SortStableFunc(now.Sinks, func(a, b SinkState) int { return cmp.Compare(a.Name, b.Name) })
}

// headline is a finding's sentence without what waited when it was found, and without what its list
// says in full where it is longer than one reads at a glance.
func headline(says string) string {
	const most, least = 100, 30
	for _, behind := range []string{", where ", ": "} {
		if what, waited, _ := strings.Cut(says, behind); strings.Contains(waited, "the oldest for") {
			says = what
		}
	}
	for _, detail := range []string{": ", "; "} {
		if at := strings.Index(says, detail); len(says) > most && at >= least {
			says = says[:at]
		}
	}
	return says
}

// judge takes over what an examination has found, and says in one sentence how it stands.
func (o *Overview) judge(r condition.Report) {
	o.Worst, o.Findings, o.Unseen, o.ExaminedAt = r.Worst, r.Findings, r.Unseen, r.At
	if o.Findings == nil {
		o.Findings, o.Unseen = []condition.Finding{}, []condition.Unseen{}
	}
	waiting, bounded := 0, ""
	var oldest float64
	for _, t := range o.Tables {
		waiting += t.Backlog
		if t.Bounded {
			bounded = "at least "
		}
		if t.Oldest != nil {
			oldest = max(oldest, *t.Oldest)
		}
	}
	for _, s := range o.Sinks {
		waiting += s.Owed
		if s.Oldest != nil {
			oldest = max(oldest, *s.Oldest)
		}
	}
	waits := "nothing waits"
	if waiting > 0 {
		age := time.Duration(oldest * float64(time.Second))
		waits = fmt.Sprintf("%s%d wait, the oldest "+
			"%s", bounded, waiting, age.Round(max(time.Second, age/100).Round(time.Second)))
		if age < time.Second {
			waits = fmt.Sprintf("%s%d wait, the oldest less than a second", bounded, waiting)
		}
	}
	switch {
	case o.Error != "":
		o.Worst, o.Sentence = condition.Critical, "The database cannot be asked: "+o.Error
	case len(o.Findings) == 0:
		o.Sentence = "All is well: " + waits + "."
	case o.Worst == condition.Notice:
		// What has begun at some time tells more than how the installation is.
		news := max(slices.IndexFunc(o.Findings, func(f condition.Finding) bool { return f.Since != nil }), 0)
		o.Sentence = fmt.Sprintf("All is well: %s. Worth knowing: "+
			"%s.", waits, strings.TrimSuffix(o.Findings[news].Says, "."))
	default:
		first := headline(strings.TrimSuffix(o.Findings[0].Says, "."))
		if word, _, _ := strings.Cut(first, " "); !strings.ContainsAny(word, "_.") { // else it is a table's name
			first = strings.ToUpper(first[:1]) + first[1:]
		}
		o.Sentence = first + "; " + waits + "."
	}
}

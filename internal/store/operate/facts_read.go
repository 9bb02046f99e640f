package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// stateTables are the tables that facts are read from, beside the outbox tables.
var stateTables = []string{"outbox_lanes", "outbox_relays", "outbox_readers", "outbox_pauses", "outbox_deliveries",
	"job_dlq", "outbox_log", "outbox_log_positions", "outbox_subscriptions", "outbox_subscription_events",
	"sqlite_sequence"}

// allSets are the migration sets that a database may have.
var allSets = slices.Concat(migration.Sets, migration.Optional)

// factsQuery is the data of the status statements.
type factsQuery struct {
	Now           time.Time
	Count         int
	Quoted, Names []string
	Sees          struct {
		Readers, Relays, Lanes, Pauses, Deliveries, DeadLetters, Positions, Subscriptions, Sequence bool
	}
	Sets          []versionTable // that can be read
	Tables        []*query
	Logs          []*logQuery
	Subscriptions bool
}

// versionTable is the table in which a migration set is recorded.
type versionTable struct{ Set, Table string }

type logQuery struct {
	*query
	Readers []string // names in leases
}

// Facts reads the state of the tables, and of everything that serves or reads them. Undelivered
// events are counted up to limit for each queue. An error means that nothing is known.
func (d Database) Facts(ctx context.Context, tables []Watched, limit int) (Facts, error) {
	r := factsReader{db: d.db, limit: limit, tables: map[string]*catalogued{},
		asked: factsQuery{Now: time.Now(), Count: limit, Names: slices.Clone(stateTables),
			Quoted: slices.Clone(stateTables)},
		facts: Facts{Sets: map[string]Applied{}, Locked: map[string]Session{}, Parts: map[string]Sight{}, Queues: []Queue{},
			Subscriptions: []Subscribed{}, DeadLetters: []Pending{},
			Pauses: []Pause{}, Waits: []LockWait{}, Dead: map[[2]string]int{}}}
	for _, set := range allSets {
		r.asked.Names = append(r.asked.Names, migration.VersionTable(set))
		r.asked.Quoted = append(r.asked.Quoted, migration.VersionTable(set))
	}
	for _, t := range tables {
		r.asked.Names = append(r.asked.Names, t.Layout.Table)
		r.asked.Quoted = append(r.asked.Quoted, d.db.Quote(t.Layout).Table)
	}
	if err := r.each(ctx, "status_catalog", &r.asked, r.addCatalog); err != nil {
		return Facts{}, fmt.Errorf("read which tables exist: %w", err)
	}
	r.look(ctx, tables)
	return r.facts, ctx.Err()
}

// Watched is a table whose facts are read.
type Watched struct {
	Layout outbox.Layout
	Wanted bool // the settings name it, so its absence is a problem
}

type factsReader struct {
	db     cold.Database
	limit  int
	asked  factsQuery
	tables map[string]*catalogued
	state  []stated
	facts  Facts
}

// catalogued is a table as the catalog describes it.
type catalogued struct {
	Name                     string
	Exists, Readable, Hidden bool
	Leased                   string
	Columns                  []string
	Locked                   *Session
}

// stated is an object of status_state.
type stated struct {
	Table, Owner, Name, Serves, Sink, Source, Reader string
	Topic, Destination, Reason, Actor                string
	Tenant                                           *string
	JoinedAt, ExpiresAt, HealthSince, At             string
	AskedAt, KeepUntil, Now, SeenAt, PausedAt        string
	Health                                           json.RawMessage
	Lanes, Suspect, Dead, Letters                    int
	Held, Dirty                                      bool
	Version                                          int64

	kind string
}

// each calls row with the kind and the object of each row of a statement.
func (r *factsReader) each(ctx context.Context, statement string, data any, row func(kind, object string) error) error {
	return cold.Ask(ctx, r.db, statement, data, func(rows cold.Rows) error {
		var kind string
		var object sqltable.Text
		if err := rows.Scan(&kind, &object); err != nil {
			return err
		}
		return row(kind, object.S)
	})
}

func (r *factsReader) addCatalog(kind, object string) (err error) {
	switch kind {
	case "table":
		var t catalogued
		err = json.Unmarshal([]byte(object), &t)
		r.tables[t.Name] = &t
		if t.Locked != nil {
			r.facts.Locked[t.Name] = *t.Locked
		}
	case "blocked":
		var w LockWait
		err = json.Unmarshal([]byte(object), &w)
		r.facts.Waits = append(r.facts.Waits, w)
	case "server":
		err = json.Unmarshal([]byte(object), &r.facts)
	}
	return err
}

// sight tells whether the columns of a table can be read.
func (r *factsReader) sight(table string, columns []string) Sight {
	t := r.tables[table]
	if t == nil || !t.Exists {
		return Sight{NotInstalled, "table " + table + " does not exist"}
	}
	lacking := slices.DeleteFunc(slices.Clone(columns), func(c string) bool { return slices.Contains(t.Columns, c) })
	switch {
	case len(lacking) > 0:
		return Sight{Unknown, fmt.Sprintf("table %s has no column %s; run outbox migrate up, or correct its layout", table,
			strings.Join(lacking, ", "))}
	case !t.Readable:
		return Sight{NotVisible, "this login may not read " + table}
	case t.Locked != nil:
		return Sight{Unknown, fmt.Sprintf("table %s is locked by %s; to end it: %s", table, t.Locked, t.Locked.End())}
	case t.Hidden:
		return Sight{NotVisible, "row-level security hides rows of " + table + " from this login"}
	}
	return Sight{State: Known}
}

// look reads the state and then the queues.
func (r *factsReader) look(ctx context.Context, tables []Watched) {
	for _, name := range stateTables[:len(stateTables)-1] {
		r.facts.Parts[name] = r.sight(name, nil)
	}
	s := &r.asked.Sees
	s.Readers, s.Relays, s.Lanes = r.sees("outbox_readers"), r.sees("outbox_relays"), r.sees("outbox_lanes")
	s.Pauses, s.Deliveries, s.DeadLetters = r.sees("outbox_pauses"), r.sees("outbox_deliveries"), r.sees("job_dlq")
	s.Positions, s.Subscriptions = r.sees("outbox_log_positions"), r.sees("outbox_subscriptions")
	s.Sequence = r.tables["sqlite_sequence"] != nil && r.tables["sqlite_sequence"].Exists
	for _, set := range allSets {
		if table := migration.VersionTable(set); r.sight(table, nil).State == Known {
			r.asked.Sets = append(r.asked.Sets, versionTable{set, table})
		}
	}
	err := r.each(ctx, "status_state", &r.asked, func(kind, object string) error {
		one := stated{kind: kind}
		err := json.Unmarshal([]byte(object), &one)
		r.state = append(r.state, one)
		return err
	})
	if err != nil {
		r.state = nil
		for name, part := range r.facts.Parts {
			part.lose(err)
			r.facts.Parts[name] = part
		}
	}
	r.assemble(tables)
	r.count(ctx, tables)
}

// sees reports whether a part can be read.
func (r *factsReader) sees(part string) bool { return r.facts.Parts[part].State == Known }

// lose makes a known fact unknown if the statement that reads it failed.
func (s *Sight) lose(err error) {
	if err != nil && s.State == Known {
		*s = Sight{Unknown, err.Error()}
	}
}

// assemble turns the state into queues, subscriptions and the rest.
func (r *factsReader) assemble(tables []Watched) {
	f := &r.facts
	readers := map[string]string{}
	for _, s := range r.state {
		switch s.kind {
		case "now":
			f.At = at(s.Now)
		case "set":
			f.Sets[s.Name] = Applied{s.Version, s.Dirty}
		case "reader":
			readers[s.Table] = s.Reader
		case "pause":
			p := Pause{Topic: s.Topic, Destination: s.Destination, Reason: s.Reason, Actor: s.Actor, At: at(s.At)}
			p.Table, p.To = TableAndSink(s.Table)
			f.Pauses = append(f.Pauses, p)
		case "letters":
			f.DeadLetters = append(f.DeadLetters, Pending{s.Source, s.Table, s.Letters})
		case "delivery":
			f.Dead[[2]string{s.Table, s.Sink}] = s.Dead
		case "subscription":
			one := Subscribed{Name: s.Name, Tenant: s.Tenant, Sight: Sight{State: Known}}
			one.AskedAt, one.KeepUntil, one.PausedAt = at(s.AskedAt), at(s.KeepUntil), moment(s.PausedAt)
			f.Subscriptions = append(f.Subscriptions, one)
		}
	}
	for _, t := range tables {
		r.addQueues(t, readers)
	}
	for i := range f.Queues {
		r.addReaders(&f.Queues[i])
	}
}

// addQueues adds the queues of a table.
func (r *factsReader) addQueues(t Watched, readers map[string]string) {
	name := t.Layout.Table
	q := Queue{Name: name, Table: name, Log: !t.Layout.KeepsState(), Sight: r.sight(name, sqltable.Names(t.Layout)),
		Processes: []Process{}}
	if q.State == NotInstalled && !t.Wanted {
		return
	}
	if c := r.tables[name]; c != nil && c.Exists {
		q.Name, q.Hidden = c.Leased, c.Readable && c.Hidden
	}
	leased := []string{q.Name}
	if q.Log {
		if names := r.readersOf(q.Name); len(names) > 0 {
			leased = names
		} else {
			q.Subscribed = len(r.facts.Subscriptions) > 0
		}
	}
	for _, one := range leased {
		q := q
		if group, ok := strings.CutPrefix(readers[one], "group:"); ok {
			q.Group = group
		} else if q.Log {
			q.Name, q.Group = one, strings.TrimPrefix(strings.TrimPrefix(one, q.Name), "/")
		}
		r.facts.Queues = append(r.facts.Queues, q)
	}
	bySink := func(a, b [2]string) int { return strings.Compare(a[1], b[1]) }
	for _, of := range slices.SortedFunc(maps.Keys(r.facts.Dead), bySink) {
		if of[0] != q.Name && (!q.Log || !strings.HasPrefix(of[0], q.Name+"/")) {
			continue
		}
		one := Queue{Name: outbox.DeliveriesOf(of[0], of[1]).Name(), Table: name, Sink: of[1], Processes: []Process{},
			Sight: r.sight("outbox_deliveries", nil)}
		if slices.ContainsFunc(r.facts.Queues, func(q Queue) bool { return q.Table == name && q.Group == of[1] }) {
			one.Group = of[1]
		}
		r.facts.Queues = append(r.facts.Queues, one)
	}
}

// readersOf returns the names under which processes have read a log: its own name for relays, and
// one for each group.
func (r *factsReader) readersOf(log string) []string {
	names := map[string]bool{}
	for _, s := range r.state {
		if (s.kind == "lanes" || s.kind == "relay" || s.kind == "position") &&
			(s.Table == log || strings.HasPrefix(s.Table, log+"/")) {
			names[s.Table] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// addReaders adds the lanes, the processes and the pause of a queue.
func (r *factsReader) addReaders(q *Queue) {
	for _, s := range r.state {
		if s.Table != q.Name {
			continue
		}
		switch s.kind {
		case "lanes":
			switch {
			case s.Held:
				q.Held += s.Lanes
			case s.Owner != "":
				q.Expired += s.Lanes
			}
			q.Suspect += s.Suspect
			if end := moment(s.ExpiresAt); end != nil && (q.LastLease == nil || end.After(*q.LastLease)) {
				q.LastLease = end
			}
		case "relay":
			p := Process{Name: s.Name, Serves: s.Serves, JoinedAt: at(s.JoinedAt), Since: moment(s.HealthSince),
				SeenAt: at(s.SeenAt), ExpiresIn: at(s.ExpiresAt).Sub(r.facts.At).Seconds()}
			p.Owner, _ = uuid.Parse(s.Owner)
			var told Trouble
			if told.tell(s.Health) == nil {
				p.Problem, p.Sinks, p.Slow = told.Why, told.Sinks, told.Slow
			}
			for _, l := range r.state {
				if l.kind == "lanes" && l.Table == s.Table && l.Owner == s.Owner && l.Held {
					p.Lanes += l.Lanes
				}
			}
			q.Processes = append(q.Processes, p)
		}
	}
	for _, p := range r.facts.Pauses {
		q.Paused = q.Paused || p.Topic == "" && p.Destination == "" && p.Name() == q.Name
	}
	if relays := r.facts.Parts["outbox_relays"]; q.State == Known && relays.State != NotInstalled {
		q.Sight = relays
	}
}

// count counts the undelivered events of the queues. If the statement for all of them fails, each
// queue is counted by itself, so that one table does not hide the others.
func (r *factsReader) count(ctx context.Context, tables []Watched) {
	byName := map[string]*Queue{}
	for i := range r.facts.Queues {
		byName[r.facts.Queues[i].Name] = &r.facts.Queues[i]
	}
	ask := func(asked factsQuery) error {
		return r.each(ctx, "status_queues", &asked, func(kind, object string) error {
			return r.addCount(byName, kind, object)
		})
	}
	base, all := r.asked, r.asked
	all.Tables, all.Logs = r.queries(tables)
	all.Subscriptions = r.sees("outbox_subscriptions") && r.sees("outbox_subscription_events") && r.sees("outbox_log")
	if ask(all) == nil {
		return
	}
	for _, q := range all.Tables {
		one := base
		one.Tables = []*query{q}
		byName[q.Leased].lose(ask(one))
	}
	for _, l := range all.Logs {
		for _, name := range l.Readers {
			one := base
			one.Logs = []*logQuery{{l.query, []string{name}}}
			byName[name].lose(ask(one))
		}
	}
	if all.Subscriptions {
		one := base
		one.Subscriptions = true
		err := ask(one)
		for i := range r.facts.Subscriptions {
			r.facts.Subscriptions[i].lose(err)
		}
	}
}

// queries returns the data for the queues that can be counted.
func (r *factsReader) queries(tables []Watched) (of []*query, logs []*logQuery) {
	for _, q := range r.facts.Queues {
		i := slices.IndexFunc(tables, func(t Watched) bool { return t.Layout.Table == q.Table })
		layout := tables[i].Layout
		if q.Sink != "" {
			layout = outbox.DeliveriesOf(strings.TrimSuffix(strings.TrimPrefix(q.Name, "outbox_deliveries/"),
				"/"+q.Sink), q.Sink)
		}
		one := &query{Layout: r.db.Quote(layout), Leased: q.Name, Now: r.asked.Now, Lanes: outbox.LaneCount,
			Count: r.limit}
		switch {
		case q.State != Known || q.Subscribed:
		case !q.Log || q.Sink != "":
			of = append(of, one)
		case r.sees("outbox_log_positions"):
			l := slices.IndexFunc(logs, func(l *logQuery) bool { return l.Table == one.Table })
			if l < 0 {
				l, logs = len(logs), append(logs, &logQuery{query: one})
			}
			logs[l].Readers = append(logs[l].Readers, q.Name)
		}
	}
	return of, logs
}

// addCount adds an object of status_queues.
func (r *factsReader) addCount(queues map[string]*Queue, kind, object string) error {
	var c struct {
		Table, Name, At, ID, Error, NextAt        string
		Key, Topic                                *string
		Waiting, Retrying, Behind, Keys, Attempts int
		Inserted                                  *int64
	}
	if err := json.Unmarshal([]byte(object), &c); err != nil {
		return err
	}
	oldest := func() *float64 {
		return age(written(sqltable.Text{S: c.At}, sqltable.Text{S: c.ID}), sqltable.Text{S: sqlitetime.Stamp(r.facts.At)})
	}
	q := queues[c.Table]
	switch kind {
	case "queue":
		q.Waiting, q.Retrying, q.Blocked, q.Keys, q.Inserted = c.Waiting, c.Retrying, c.Behind, c.Keys, c.Inserted
		if q.Bounded = c.Waiting >= r.limit; c.Waiting > 0 {
			q.Oldest = oldest()
		}
	case "failing":
		q.Failing = append(q.Failing, Failing{ID: shownID(c.ID), Key: c.Key, Topic: c.Topic, Attempts: c.Attempts,
			Error: c.Error, NextAt: moment(c.NextAt), At: moment(c.At)})
	case "subscribed":
		for i := range r.facts.Subscriptions {
			if s := &r.facts.Subscriptions[i]; s.Name == c.Name {
				s.Waiting, s.Bounded = c.Waiting, c.Waiting >= r.limit
				s.Oldest = oldest()
			}
		}
	}
	return nil
}

// moment returns a time of a row's object; nil: it has none.
func moment(text string) *time.Time { return sqltable.Text{S: text}.Moment() }

// at is moment, with zero for none.
func at(text string) time.Time {
	if t := moment(text); t != nil {
		return *t
	}
	return time.Time{}
}

// shownID returns an event id in its usual form.
func shownID(text string) string {
	if id, ok := sqltable.ParseID(sqltable.Text{S: text}); ok {
		return id.String()
	}
	return text
}

package condition

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// byHarm lists the conditions that stop or delay delivery, the most harmful first. Conditions that
// are not in this list come after them, in the order of Catalogue.
var byHarm = []string{away, "OBX-007", "OBX-059", unfitTable, RightMissing, "OBX-020", "OBX-030", "OBX-032", "OBX-027",
	"OBX-029", "OBX-031", "OBX-035", "OBX-028", "OBX-038", "OBX-036", "OBX-045", "OBX-041", "OBX-034",
	"OBX-039", "OBX-037", "OBX-054", "OBX-056"}

// harm returns the rank of a condition among those that harm delivery.
func harm(id string) int {
	if i := slices.Index(byHarm, id); i >= 0 {
		return i
	}
	return len(byHarm)
}

// ofQueues judges each queue that is known.
func ofQueues(find func(x *Examination, q *operate.Queue) []Finding) judge {
	return func(x *Examination, f *operate.Facts) (found []Finding) {
		for i := range f.Queues {
			if q := &f.Queues[i]; q.State == operate.Known && !q.Subscribed {
				found = append(found, find(x, q)...)
			}
		}
		return found
	}
}

// processOf names the processes that may serve a queue.
func processOf(q *operate.Queue) string {
	if q.Group != "" {
		return "process of group " + q.Group
	}
	return "relay"
}

// subject names a queue in messages.
func subject(q *operate.Queue) string {
	switch {
	case q.Sink != "" && q.Group != "":
		return fmt.Sprintf("the events of %s that group %s failed to handle", q.Table, q.Group)
	case q.Sink != "":
		return fmt.Sprintf("the pending deliveries of %s to sink %s", q.Table, q.Sink)
	}
	return q.Table
}

// waiting says how many events wait in a queue, and how long the oldest has waited.
func waiting(q *operate.Queue) string {
	text := many(q.Waiting, "event") + wait(q.Waiting)
	if q.Bounded {
		text = fmt.Sprintf("%d events or more wait", q.Waiting)
	}
	if age := oldest(q); age > 0 {
		text += ", the oldest for " + lasting(age)
	}
	return text
}

func oldest(q *operate.Queue) time.Duration { return seconds(q.Oldest) }

func seconds(s *float64) time.Duration {
	if s == nil {
		return 0
	}
	return time.Duration(*s * float64(time.Second))
}

// readOnly reports a database that takes no writes.
func readOnly(_ *Examination, f *operate.Facts) []Finding {
	if f.ReadOnly == "" {
		return nil
	}
	return at("database", "the database takes no writes: %s", f.ReadOnly)
}

// schemaOutdated reports recorded migration sets of another version than this program needs.
func schemaOutdated(x *Examination, f *operate.Facts) (found []Finding) {
	if f.Parts["outbox_lanes"].State == operate.NotInstalled {
		return at("core", "the tables of set core do not exist")
	}
	for _, set := range slices.Sorted(maps.Keys(f.Sets)) {
		s := f.Sets[set]
		if x.Required == nil || s.Version <= 0 && set != "core" && !s.Dirty {
			continue
		}
		switch required := int64(x.Required(set)); {
		case s.Dirty:
			found = append(found, at(set, "the migrations of set %s have stopped half way, at version %d", set,
				s.Version)...)
		case s.Version <= 0:
			found = append(found, at(set, "the tables of set %s do not exist", set)...)
		case s.Version < required:
			found = append(found, at(set, "set %s is at version %d of %d", set, s.Version, required)...)
		case s.Version > required:
			found = append(found, Finding{About: set,
				Remedy: "use a version of outbox that is as new as the one that migrated",
				Says: fmt.Sprintf("set %s is at version %d, which is newer than the %d of this program", set,
					s.Version, required)})
		}
	}
	return found
}

// briefly is the time for which a lock may block another session before it is reported.
const briefly = 2 * time.Second

// locked reports the sessions that block others at the outbox tables.
func locked(_ *Examination, f *operate.Facts) (found []Finding) {
	for _, table := range slices.Sorted(maps.Keys(f.Locked)) {
		by := f.Locked[table]
		found = append(found, Finding{About: table, Says: fmt.Sprintf("table %s is locked against reads by %s", table, by),
			Remedy: "end the transaction of the session, or run: " + by.End()})
	}
	for _, w := range f.Waits {
		if w.Seconds < briefly.Seconds() || len(w.By) == 0 {
			continue
		}
		by := w.By[0]
		found = append(found, Finding{About: w.Table, Remedy: "end the transaction of the blocking session, or run: " +
			by.End(),
			Says: fmt.Sprintf("%s has waited for %s for a lock at %s, which is blocked by %s", w.Waits,
				lasting(time.Duration(w.Seconds*float64(time.Second))), w.Table, by)})
	}
	return found
}

// noReader reports a queue that no process serves.
func noReader(x *Examination, q *operate.Queue) []Finding {
	if len(q.Alive()) > 0 || q.Sink != "" {
		return nil
	}
	f := Finding{About: q.Name, Says: fmt.Sprintf("no %s serves %s, where %s", processOf(q), q.Table, waiting(q))}
	if q.Waiting == 0 {
		f.Says, f.Severity = fmt.Sprintf("no %s serves %s; no event waits there", processOf(q), q.Table), Warning
	}
	last := "the last one"
	if len(q.Processes) > 0 {
		last = q.Processes[0].Name
		f.Remedy = fmt.Sprintf("look whether %s still runs, and read its log: it may be frozen, or the database may "+
			"refuse its login; stop it if it hangs, then start it again", last)
	}
	if q.LastLease != nil {
		f.Since = q.LastLease
		f.Says += fmt.Sprintf("; the lease of %s ended %s ago", last, lasting(x.Now().Sub(*q.LastLease)))
	}
	if q.Group != "" && f.Remedy == "" {
		f.Remedy = "start a process of the group, and not a relay"
	}
	return []Finding{f}
}

// unserved reports pending deliveries that no process serves.
func unserved(_ *Examination, q *operate.Queue) []Finding {
	if q.Sink == "" || q.Waiting == 0 || len(q.Alive()) > 0 {
		return nil
	}
	f := at(q.Sink, "no %s serves %s: %s", processOf(q), subject(q), waiting(q))
	if q.Group != "" {
		f[0].Remedy = "start a process of the group, and not a relay"
	}
	return f
}

// settling is the time that new relays may take to share the lanes.
const settling = 30 * time.Second

func lanesUnheld(x *Examination, q *operate.Queue) []Finding {
	settled := slices.ContainsFunc(q.Alive(), func(p operate.Process) bool {
		return x.Now().Sub(p.JoinedAt) > min(settling, x.Limits.Late)
	})
	unheld := outbox.LaneCount - q.Held
	if !settled || unheld == 0 || q.Sink != "" {
		return nil
	}
	return at(q.Name, "%d of %d lanes of %s are held by no %s; alive: %d; %s in the table", unheld, outbox.LaneCount,
		q.Table,
		processOf(q), len(q.Alive()), waiting(q))
}

func relayAlone(_ *Examination, q *operate.Queue) []Finding {
	if len(q.Alive()) != 1 || q.Sink != "" {
		return nil
	}
	f := at(q.Name, "one %s alone serves %s", processOf(q), q.Table)
	if q.Group != "" {
		f[0].Remedy = "start a second process of the group: they share the lanes"
	}
	return f
}

// vanishing is the number of processes of a queue that must end within a minute, without giving up
// their leases, to be reported.
const vanishing = 3

func relaysVanish(_ *Examination, q *operate.Queue) []Finding {
	var gone []string
	for _, p := range q.Processes {
		if p.ExpiresIn <= 0 {
			gone = append(gone, p.Name)
		}
	}
	if len(gone) < vanishing || q.Sink != "" {
		return nil
	}
	return at(q.Name, "%d processes that served %s ended within a minute without giving up their lanes: %s",
		len(gone), q.Name,
		strings.Join(gone, "; "))
}

// sinksDiffer compares the relays that have all served a table for longer than a deployment takes.
func sinksDiffer(x *Examination, q *operate.Queue) (found []Finding) {
	var first operate.Process
	seen := map[string]bool{"": true}
	for _, r := range q.Alive() {
		if x.Now().Sub(r.JoinedAt) <= x.Limits.Differ || seen[r.Serves] {
			continue
		}
		seen[r.Serves] = true
		if first.Serves == "" {
			first = r
			continue
		}
		later := first.JoinedAt
		if r.JoinedAt.After(later) {
			later = r.JoinedAt
		}
		found = append(found, Finding{About: q.Name, Since: &later,
			Says: fmt.Sprintf("relay %q and relay %q of %s have "+
				"different sinks or routes for %s: only the first has %s; only the second has %s", first.Name, r.Name,
				q.Table,
				lasting(x.Now().Sub(later)), onlyIn(first.Serves, r.Serves), onlyIn(r.Serves, first.Serves))})
	}
	return found
}

// onlyIn returns the lines of a text that another lacks.
func onlyIn(text, other string) string {
	there := strings.Split(other, "\n")
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool {
		return slices.Contains(there,
			line)
	})
	if len(lines) == 0 {
		return "nothing more"
	}
	return strings.Join(lines, ", ")
}

func laneSuspect(_ *Examination, q *operate.Queue) []Finding {
	if q.Suspect == 0 {
		return nil
	}
	return at(q.Name, "relays died repeatedly at %s of %s; the events there are tried in small batches",
		many(q.Suspect, "lane"),
		q.Table)
}

// relayHindered reports the problems of live processes, also of queues that cannot be counted.
func relayHindered(_ *Examination, f *operate.Facts) (found []Finding) {
	for i := range f.Queues {
		q := &f.Queues[i]
		for _, p := range q.Alive() {
			if p.Problem != "" {
				found = append(found, Finding{About: p.Name, Since: p.Since,
					Says: fmt.Sprintf("%s %s does not serve %s: %s", processOf(q), p.Name, q.Name, p.Problem)})
			}
		}
	}
	return found
}

func eventsLate(x *Examination, q *operate.Queue) []Finding {
	if oldest(q) <= x.Limits.Late || q.Paused || q.Sink != "" {
		return nil
	}
	return at(q.Name, "events of %s are late: %s", q.Name, waiting(q))
}

func deliveriesLate(x *Examination, q *operate.Queue) []Finding {
	if q.Sink == "" || q.Paused || oldest(q) <= x.Limits.Owed {
		return nil
	}
	f := at(q.Sink, "sink %s has not acknowledged events of %s: %s", q.Sink, q.Table, waiting(q))
	f[0].Remedy = fmt.Sprintf("outbox events --table %s --sink %s", q.Table, q.Sink)
	return f
}

func keyBlocked(_ *Examination, q *operate.Queue) []Finding {
	if q.Blocked == 0 {
		return nil
	}
	f := Finding{About: q.Name, Says: fmt.Sprintf("in %s %s of %s%s behind an event that fails", q.Name,
		many(q.Blocked, "event"), many(q.Keys, "key"), wait(q.Blocked))}
	for _, e := range q.Failing {
		if e.Key != nil {
			f.Since = e.At
			f.Says += fmt.Sprintf("; the first is %s of key %s (%s): %s", e.ID, *e.Key, many(e.Attempts, "failure"),
				text(&e.Error))
			break
		}
	}
	return []Finding{f}
}

func eventParked(x *Examination, q *operate.Queue) (found []Finding) {
	for _, e := range q.Failing {
		if e.NextAt == nil || e.NextAt.Sub(x.Now()) <= x.Limits.Forgotten {
			continue
		}
		when := "never tried again"
		if e.NextAt.Year() < 9999 {
			when = "not tried before " + e.NextAt.UTC().Format(time.DateTime)
		}
		f := Finding{About: q.Name, Since: e.At, Says: fmt.Sprintf("event %s of %s is %s", e.ID, q.Name, when),
			Remedy: fmt.Sprintf("outbox events retry %s --table %s", e.ID, q.Table)}
		if q.Sink != "" {
			f.Remedy += " --sink " + q.Sink
		}
		found = append(found, f)
	}
	return found
}

func paused(x *Examination, f *operate.Facts) (found []Finding) {
	for _, p := range f.Pauses {
		what := p.Table
		for prefix, name := range map[string]string{"topic ": p.Topic, "destination ": p.Destination, "sink ": p.To} {
			if name != "" {
				what = strings.TrimSuffix(prefix+name+" of "+p.Table, " of ")
			}
		}
		f := Finding{About: what, Since: &p.At, Says: fmt.Sprintf("%s has been paused since %s by %s: %s", what,
			p.At.UTC().Format(time.DateTime), p.Actor, p.Reason)}
		if x.Now().Sub(p.At) < x.Limits.Forgotten {
			f.Severity = Advice
		}
		found = append(found, f)
	}
	return found
}

func deadLetters(_ *Examination, f *operate.Facts) (found []Finding) {
	total := 0
	for _, p := range f.DeadLetters {
		of := p.Table
		if of == "" {
			of = p.Source + "s"
		}
		total += p.Letters
		says := many(p.Letters, "dead letter") + " of " + of
		switch {
		case total >= counted:
			says = fmt.Sprintf("%d dead letters or more of %s are pending", p.Letters, of)
		case p.Letters == 1:
			says += " is pending"
		default:
			says += " are pending"
		}
		found = append(found, at(of, "%s", says)...)
	}
	return found
}

// subscriptionIdle reports a subscription whose events no consumer acknowledges.
func subscriptionIdle(x *Examination, f *operate.Facts) (found []Finding) {
	for _, s := range f.Subscriptions {
		if seconds(s.Oldest) <= x.Limits.Idle {
			continue
		}
		since := f.At.Add(-seconds(s.Oldest))
		found = append(found, Finding{About: s.Name, Since: &since,
			Says: fmt.Sprintf("no consumer of subscription %s has "+
				"acknowledged its events: %s, the oldest for %s; the log keeps them until %s", s.Name,
				many(s.Waiting, "event")+wait(s.Waiting), lasting(seconds(s.Oldest)),
				s.KeepUntil.UTC().Format(time.DateTime))})
	}
	return found
}

// sinkDown and sinkSlow report the sinks about which live relays report a problem.
func sinkDown(x *Examination, f *operate.Facts) []Finding {
	return reported(x, f, func(p operate.Process) map[string]string { return p.Sinks },
		"sink %s is down%s, reported by %s; no event is lost: %s")
}

func sinkSlow(x *Examination, f *operate.Facts) []Finding {
	return reported(x, f, func(p operate.Process) map[string]string { return p.Slow },
		"sink %s is slow%s, reported by %s: %s")
}

// reported collects the problems of sinks that live relays report: for each sink one finding with
// its name, duration, relays and reason.
func reported(
	x *Examination, f *operate.Facts, of func(operate.Process) map[string]string, format string,
) (found []Finding) {
	since, why, relays := map[string]*time.Time{}, map[string]string{}, map[string][]string{}
	for i := range f.Queues {
		for _, p := range f.Queues[i].Alive() {
			for name, reason := range of(p) {
				why[name] = reason
				if known := since[name]; p.Since != nil && (known == nil || p.Since.Before(*known)) {
					since[name] = p.Since
				}
				if !slices.Contains(relays[name], p.Name) {
					relays[name] = append(relays[name], p.Name)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(why)) {
		lasts := ""
		if since[name] != nil {
			lasts = " for " + lasting(x.Now().Sub(*since[name]))
		}
		found = append(found, Finding{About: name, Since: since[name],
			Says: fmt.Sprintf(format, name, lasts, "relay "+strings.Join(relays[name], " and "), why[name])})
	}
	return found
}

// ServedSinks returns the sinks to which the live relays of a queue deliver.
func ServedSinks(q *operate.Queue) (names []string) {
	for _, p := range q.Alive() {
		for line := range strings.Lines(p.Serves) {
			_, target, _ := strings.Cut(line, " to ")
			if quoted, err := strconv.QuotedPrefix(target); err == nil {
				name, _ := strconv.Unquote(quoted) // QuotedPrefix returns valid quotes
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

package crawl

import (
	"fmt"
	"slices"

	"github.com/google/uuid"
)

// Locked is a run whose row a Store has locked for a Change. The rules of a change stand here,
// because they are the same for every store.
type Locked struct {
	Run      Run                 // complete, LastSeq included
	Lease    *Hold               // that it is under, lapsed or not; nil: none
	LastType string              // of the log's last event; "": it has none
	Known    map[uuid.UUID]int64 // numbers of those of the change's events that are in the log
}

// ends is the status that a terminal event stands for.
var ends = map[string]Status{RunCompleted: Completed, RunFailed: Failed, RunCancelled: Cancelled}

// Forgotten returns the status that the log has ended with, if the run does not have it: somebody
// ended the log by plain SQL. Else "".
func (l *Locked) Forgotten() Status {
	if l.Run.Status.Ended() {
		return ""
	}
	return ends[l.LastType]
}

// Fresh returns those of a change's events that are not in the log yet.
func (l *Locked) Fresh(events []NewEvent) []NewEvent {
	if len(l.Known) == 0 {
		return events
	}
	var fresh []NewEvent
	for _, e := range events {
		if l.Known[e.ID] == 0 {
			fresh = append(fresh, e)
		}
	}
	return fresh
}

// Allows tells whether the run may be changed like that, of whose events these are fresh: nil, a
// *StateError or ErrLeaseLost.
//
// If all of a change's events are in the log already, and it has no To, the run may be in any
// status. It is a change whose reply was lost.
func (l *Locked) Allows(c Change, fresh []NewEvent) error {
	status := l.Run.Status
	repeated := c.To == "" && len(c.Events) > 0 && len(fresh) == 0
	if !repeated && (c.From != nil && !slices.Contains(c.From, status) || status.Ended() && len(fresh) > 0) {
		return &StateError{Run: l.Run.ID, Status: status, From: c.From}
	}
	if c.Hold != nil && (l.Lease == nil || *l.Lease != *c.Hold) {
		return ErrLeaseLost
	}
	// Something behind its own end.
	if i := slices.IndexFunc(fresh, func(e NewEvent) bool { return Terminal(e.Type) }); i >= 0 && i < len(fresh)-1 {
		return &StateError{Run: l.Run.ID, Status: ends[fresh[i].Type], From: c.From}
	}
	return nil
}

// Changed is what appending that many fresh events makes of run, which is the run as it was or as
// the database returned it.
func (l *Locked) Changed(run Run, fresh int) Changed {
	changed := Changed{Run: run, Appended: fresh}
	// The numbers are known without asking: they are the next ones, under the lock.
	changed.Run.LastSeq = l.Run.LastSeq + int64(fresh)
	seqs := make([]int64, 0, len(l.Known)+2)
	for _, seq := range l.Known {
		seqs = append(seqs, seq)
	}
	if fresh > 0 {
		seqs = append(seqs, l.Run.LastSeq+1, changed.Run.LastSeq)
	}
	if len(seqs) > 0 {
		changed.First, changed.Last = slices.Min(seqs), slices.Max(seqs)
	}
	return changed
}

// Identified returns the events with an id each. One that is given twice is a *FieldError, or the
// run would have it at two places.
func Identified(events []NewEvent) ([]NewEvent, error) {
	events = slices.Clone(events)
	if err := identify(events); err != nil {
		return nil, err
	}
	seen := make(map[uuid.UUID]bool, len(events))
	for i, e := range events {
		if seen[e.ID] {
			return nil, &FieldError{Field: fmt.Sprintf("events[%d].id", i), Problem: "is that of an event before it"}
		}
		seen[e.ID] = true
	}
	return events, nil
}

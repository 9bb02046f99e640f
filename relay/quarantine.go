package relay

import (
	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// An event can kill the process that publishes it: a panic in a goroutine nobody can recover,
// memory that runs out. Every relay that takes its lane over dies in turn, and no error is ever
// written down. So starts are counted against finishes: taking a lane over from a relay that
// vanished counts one, finishing a turn on it takes the count back to zero. Nothing is written
// while nobody dies.
//
// A lane at which two relays in a row died is suspect. Suspect lanes are served together, after the
// others, in trials of at most a batch. How many records are about to be tried is written down
// first, so that the next relay knows what this one died of, and tries an eighth of them. Trials
// that go well cost no more than a turn, so after a crash loop without a poison a backlog drains
// nearly as fast as ever. The event of which three relays die while it was alone is the poison, and
// becomes a dead letter. Alone is alone in the process: while another worker publishes, it may be
// that one's event that kills. And two deaths are not enough: a SIGKILL from outside and a SIGSTOP
// for longer than the lease leave the same traces. (docs/adr/0011)
//
//	         one died           a second one died               the batch went well, all that was in front of it
//	trusted ─────────► unproven ─────────────────► suspect ──────────────────────────────────────────────► trusted
//	   ▲                  │                         │  ▲
//	   └── a turn ended ──┘                         └──┘ one died: an eighth of the batch, at last one event alone,
//	                                                     which is buried when three have died of it

const (
	suspectAfter = 2
	trialFactor  = 8
	buriedAfter  = 3  // deaths alone
	inFront      = 64 // records that may have been committed in front of the one that was tried alone
)

// suspicion is what a worker knows of suspect lanes that are tried together, or of the one lane of
// an event that was tried alone.
type suspicion struct {
	lanes   []outbox.Lane // those that are held
	size    int           // records of the next trial
	left    int           // records to try until the lanes are trusted again
	marked  bool          // the database knows the size: it is written once, and not before each trial
	culprit uuid.UUID     // what a relay died of while it was alone
	deaths  int           // how many of them did
}

func (s *suspicion) single() bool { return s.size == 1 }

// known is what may be known of the lanes while nothing is tried.
func (s *suspicion) known() outbox.Trial { return outbox.Trial{Size: s.deaths, Event: s.culprit} }

// quarantine is what a worker knows of its lanes. Each is judged once, when it was taken: what the
// database says of it later is of this worker's own making.
type quarantine struct {
	seen     map[int16]int64 // epochs
	suspects map[int16]*suspicion
	unproven map[int16]bool // one relay died there; no turn has been finished since
	alone    bool           // whether the next turn is for trials of single events
}

// sift divides lanes into those to be served as usual and the suspect ones.
func (q *quarantine) sift(lanes []outbox.Lane, cfg *tableConfig) (trusted []outbox.Lane, suspects []*suspicion) {
	if q.seen == nil {
		q.seen, q.suspects, q.unproven = map[int16]int64{}, map[int16]*suspicion{}, map[int16]bool{}
	}
	for _, l := range lanes {
		if epoch, ok := q.seen[l.Number]; !ok || epoch != l.Epoch {
			q.admit(l, cfg)
		}
	}
	if len(q.suspects) == 0 {
		return lanes, nil
	}
	for _, s := range q.suspects {
		s.lanes = nil
	}
	for _, l := range lanes {
		s := q.suspects[l.Number]
		if s == nil {
			trusted = append(trusted, l)
			continue
		}
		if s.lanes == nil {
			suspects = append(suspects, s)
		}
		s.lanes = append(s.lanes, l)
	}
	return trusted, suspects
}

// admit judges a lane that was taken, by what the database says of it.
func (q *quarantine) admit(l outbox.Lane, cfg *tableConfig) {
	q.seen[l.Number] = l.Epoch
	delete(q.suspects, l.Number)
	delete(q.unproven, l.Number)
	var s suspicion
	switch trial := l.Trial; {
	case trial.Event != uuid.Nil:
		s = suspicion{size: 1, left: inFront, culprit: trial.Event, deaths: trial.Size}
	case trial.Size > 0: // by each worker of the relay that died, of what is tried together now
		s = suspicion{size: max(1, trial.Size/trialFactor), left: trial.Size * cfg.Workers}
	case l.Crashes >= suspectAfter: // the claim of a relay that died is not known
		s = suspicion{size: cfg.BatchRecords, left: maxBatchesPerClaim * cfg.BatchRecords * outbox.LaneCount}
	default:
		if l.Crashes > 0 {
			q.unproven[l.Number] = true
		}
		return
	}
	for _, other := range q.suspects {
		if s.culprit == uuid.Nil && other.culprit == uuid.Nil && other.size == s.size {
			other.left, other.marked = max(other.left, s.left), false
			q.suspects[l.Number] = other
			return
		}
	}
	q.suspects[l.Number] = &s
	cfg.Logger.Warn("relays died at this lane, trying its events and those of others like it in small batches",
		"table", cfg.name(), "lane", l.Number, "crashes", l.Crashes, "batch", s.size)
}

// proven returns the lanes that a finished turn has cleared, as they are to be marked.
func (q *quarantine) proven(lanes []outbox.Lane) (proven []outbox.Lane) {
	if len(q.unproven) == 0 {
		return nil
	}
	for _, l := range lanes {
		if q.unproven[l.Number] {
			delete(q.unproven, l.Number)
			proven = append(proven, outbox.Lane{Number: l.Number, Epoch: l.Epoch})
		}
	}
	return proven
}

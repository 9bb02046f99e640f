package deadletter

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/backoff"
)

// maxSet is the most letters of a Set.
const maxSet = 1_000_000

// Set is exactly the letters that a selection took when it was frozen, in the order of a replay.
// What comes later is not among them.
type Set struct {
	Selection Selection
	Letters   []Frozen
}

// Frozen is a letter of a Set, and the event or job that it is of. Letters of one event stand
// together.
type Frozen struct{ ID, Of uuid.UUID }

// ErrSetChanged says that some of the letters of a set have left it: they were replayed, discarded
// or purged.
var ErrSetChanged = errors.New("these are no longer the letters that were seen: look at them again")

// Freeze returns the set of a selection, or with the name of a set that set again: letters that
// were written later are not in it, and where others have left it it is ErrSetChanged. More than a
// million letters are an ErrFilter.
func Freeze(ctx context.Context, store Store, s Selection, name string) (Set, error) {
	if err := s.check(); err != nil {
		return Set{}, fmt.Errorf("freeze: %w", err)
	}
	if name != "" {
		last, _, _ := strings.Cut(name, ".")
		id, err := uuid.Parse(last)
		if err != nil {
			return Set{}, fmt.Errorf("%w: %q is no name of a set", ErrFilter, name)
		}
		s.UpTo = id
	}
	letters, err := store.Freeze(ctx, s, maxSet+1)
	if err != nil {
		return Set{}, err
	}
	if len(letters) > maxSet {
		return Set{}, fmt.Errorf("%w: more than %d letters at once: narrow the filter, for instance by time", ErrFilter,
			maxSet)
	}
	for _, l := range letters {
		if name == "" && bytes.Compare(l.ID[:], s.UpTo[:]) > 0 {
			s.UpTo = l.ID
		}
	}
	set := Set{s, letters}
	if name != "" && set.Name() != name {
		return set, ErrSetChanged
	}
	return set, nil
}

// Name names the set: the same for the same letters.
func (s Set) Name() string {
	h := sha256.New()
	for _, l := range s.Letters {
		_, _ = h.Write(l.ID[:]) // a hash never fails
	}
	return s.Selection.UpTo.String() + "." + hex.EncodeToString(h.Sum(nil))
}

// Became says how far the events of replayed letters have come. Those that it does not count were
// delivered.
type Became struct {
	Letters int `json:"stepLetters"`
	Waiting int `json:"waiting"` // for their first attempt
	Failing int `json:"failing"` // tried, and to be tried again
	Dead    int `json:"dead"`    // dead again, with letters of their own
}

// Failed is the share of those that failed.
func (b Became) Failed() float64 {
	if b.Letters == 0 {
		return 0
	}
	return float64(b.Failing+b.Dead) / float64(b.Letters)
}

// Steps have a replay begin with few letters, and stop by itself while they fail.
type Steps struct {
	// Sizes are the letters of the first steps; what is left is the last. nil: 1, 10 and 100.
	// Empty: there are no steps, none of the events is looked at, and nothing stops it.
	Sizes  []int
	StopAt float64       // the share of a step's events that may fail, from 0 to 1
	Wait   time.Duration // how long a step's events may take to be tried; 0: a minute
}

// ErrStopped says that a replay in steps has stopped by itself.
var ErrStopped = errors.New("the replay has stopped by itself")

// Stepped is how far a replay in steps has come.
type Stepped struct {
	Step int // of 1
	Became
}

// watchEvery is how often a step is looked at.
const watchEvery = 200 * time.Millisecond

// ReplaySteps replays a set, whose letters take the place of o.Selection, a step at a time: a step
// begins when the events of the one before were tried and few enough of them failed. Else it is
// ErrStopped, as it is where events are not tried in time, and what comes behind stays as it was.
// The last step is watched while it goes. report, if set, is told how far it is.
func ReplaySteps(
	ctx context.Context, store Store, set Set, o ReplayOptions, by Steps, report func(Replayed, Stepped),
) (Replayed, error) {
	r := &steppedReplay{store: store, set: set, steps: by, report: report}
	if r.steps.Sizes == nil {
		r.steps.Sizes = []int{1, 10, 100}
	}
	if r.steps.Wait <= 0 {
		r.steps.Wait = time.Minute
	}
	if r.report == nil {
		r.report = func(Replayed, Stepped) {}
	}
	r.sum.Tables = map[string]int{}
	o.Selection = set.Selection
	if err := o.checkPayload(); err != nil {
		return r.sum, err
	}
	pace, err := newPace(o)
	if err != nil {
		return r.sum, err
	}
	err = r.run(ctx, pace)
	return r.sum, err
}

// steppedReplay is the state of ReplaySteps.
type steppedReplay struct {
	store  Store
	set    Set
	steps  Steps
	report func(Replayed, Stepped)
	sum    Replayed
}

func (r *steppedReplay) run(ctx context.Context, p *pace) error {
	left := r.set.Letters
	for step := 1; len(left) > 0; step++ {
		size := len(left)
		if step <= len(r.steps.Sizes) {
			size = r.steps.Sizes[step-1]
		}
		var now []Frozen
		now, left = cut(left, size)
		if err := r.step(ctx, p, step, now); err != nil {
			return err
		}
	}
	return nil
}

// cut parts the first n letters, at least one, from the others, but none from those of its event.
func cut(letters []Frozen, n int) (first, rest []Frozen) {
	n = min(max(n, 1), len(letters))
	for n < len(letters) && letters[n].Of == letters[n-1].Of {
		n++
	}
	return letters[:n], letters[n:]
}

func ids(letters []Frozen) []uuid.UUID {
	all := make([]uuid.UUID, len(letters))
	for i, l := range letters {
		all[i] = l.ID
	}
	return all
}

// step replays letters in pages. The events of a page are looked at when the next one is on its
// way, and those of the step at its end.
func (r *steppedReplay) step(ctx context.Context, p *pace, step int, letters []Frozen) error {
	var done []uuid.UUID
	for left := letters; len(left) > 0; {
		if err := p.wait(ctx, r.sum.Letters); err != nil {
			return err
		}
		var page []Frozen
		page, left = cut(left, p.request.Limit)
		p.request.Selection = r.set.Selection
		p.request.Selection.IDs = ids(page)
		did, err := r.sum.page(ctx, r.store, p.request)
		if err != nil {
			return err
		}
		p.told(r.sum, did)
		if len(r.steps.Sizes) == 0 {
			continue
		}
		if len(done) > 0 {
			if _, err := r.look(ctx, step, done); err != nil {
				return err
			}
		}
		done = append(done, p.request.Selection.IDs...)
		done = done[max(len(done)-watched, 0):]
	}
	if len(r.steps.Sizes) == 0 {
		return nil
	}
	return r.settled(ctx, step, done)
}

// watched is how many of a step's letters are looked at, the last of them: those before were looked
// at in their turn.
const watched = 5 * pageLetters

// settled waits until the events of a step were tried.
func (r *steppedReplay) settled(ctx context.Context, step int, letters []uuid.UUID) error {
	for end := time.Now().Add(r.steps.Wait); ; {
		became, err := r.look(ctx, step, letters)
		if err != nil || became.Waiting == 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w: %d of the %d events of step %d were not tried within %s: does a relay serve "+
				"their table?",
				ErrStopped, became.Waiting, became.Letters, step, r.steps.Wait)
		}
		if !backoff.Wait(ctx, watchEvery) {
			return fmt.Errorf("replay: %w", ctx.Err())
		}
	}
}

func (r *steppedReplay) look(ctx context.Context, step int, letters []uuid.UUID) (Became, error) {
	became, err := r.store.Became(ctx, letters, r.set.Selection.Tenant)
	if err != nil {
		return became, fmt.Errorf("replay: %w", err)
	}
	r.report(r.sum, Stepped{step, became})
	if became.Failed() > r.steps.StopAt {
		return became, fmt.Errorf("%w: of %d events in step %d, %d failed again", ErrStopped, became.Letters, step,
			became.Failing+became.Dead)
	}
	return became, nil
}

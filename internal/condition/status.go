package condition

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxrelay/outbox/internal/store/operate"
)

// Status is the state of an outbox in one sentence, with the findings and the facts behind it. It
// rests on facts that were read in three statements, and on nothing that was examined earlier.
type Status struct {
	Report
	Sentence string         `json:"sentence"`
	Facts    *operate.Facts `json:"facts,omitempty"` // nil: Err says why
	Err      error          `json:"-"`
}

// Status judges the conditions that are found in facts.
func (x *Examination) Status(ctx context.Context) Status {
	s := Status{Report: x.Examine(ctx, Selection{Live: true})}
	facts, err := x.facts()
	if s.Err = err; x.DB != nil && err == nil {
		s.Facts = &facts
	}
	s.Sentence = s.Report.Sentence(s.Facts)
	return s
}

// With adds the findings of an earlier examination whose conditions are not found in facts.
func (r Report) With(earlier Report) Report {
	r.Findings, r.Unseen = slices.Clone(r.Findings), slices.Clone(r.Unseen)
	live := func(id string) bool {
		i := slices.IndexFunc(Catalogue, func(c Condition) bool { return c.ID == id })
		return id == "" || id == away || i >= 0 && Catalogue[i].check == nil
	}
	for _, f := range earlier.Findings {
		if !live(f.ID) && !slices.ContainsFunc(r.Findings, func(now Finding) bool { return now.ID == f.ID }) {
			r.Findings = append(r.Findings, f)
			r.Worst = max(r.Worst, f.Severity)
		}
	}
	for _, u := range earlier.Unseen {
		if !live(u.ID) {
			r.miss(u.ID, u.Name, operate.Sight{State: u.State, Why: u.Why})
		}
	}
	r.Asked = max(r.Asked, earlier.Asked)
	r.sort()
	return r
}

// Sentence says in one sentence how an outbox is. The first finding decides it, and then what is
// unknown.
func (r *Report) Sentence(f *operate.Facts) string {
	waits := ""
	if f != nil && slices.ContainsFunc(f.Queues, func(q operate.Queue) bool { return q.State == operate.Known }) {
		waits = "; " + allWaiting(f)
	}
	worst := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Severity >= Warning })
	if worst >= 0 && (r.Worst != Uncertain || r.Findings[worst].Severity == Critical) {
		return sentenceCase(headline(strings.TrimSuffix(r.Findings[worst].Says, "."))) + waits + "."
	}
	var unknown []string
	for _, u := range r.Unseen {
		if u.State == operate.Unknown {
			unknown = append(unknown, u.Name+": "+strings.TrimSuffix(u.Why, "."))
		}
	}
	switch {
	case len(unknown) == 1:
		return "Unknown: " + unknown[0] + "."
	case len(unknown) > 1:
		return fmt.Sprintf("Unknown: %d facts could not be read; the first is %s.", len(unknown), unknown[0])
	}
	return "Healthy" + waits + "."
}

// allWaiting says how many events wait in all queues, and how long the oldest has waited.
func allWaiting(f *operate.Facts) string {
	n, bounded := 0, ""
	var longest time.Duration
	where := ""
	for i := range f.Queues {
		q := &f.Queues[i]
		if q.State == operate.Unknown {
			where = " in the tables that can be read"
		}
		n += q.Waiting
		longest = max(longest, oldest(q))
		if q.Bounded {
			bounded = "at least "
		}
	}
	if n == 0 {
		return "no event waits" + where
	}
	text := bounded + many(n, "event") + wait(n) + where
	if longest > 0 {
		text += ", the oldest for " + lasting(longest)
	}
	return text
}

// sentenceCase makes the first letter a capital one, except for the name of a table.
func sentenceCase(text string) string {
	if word, _, _ := strings.Cut(text, " "); strings.ContainsAny(word, "_./") || text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// headline shortens a finding's message: it leaves out how many events wait, and details that make
// it longer than one line.
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

package outboxtest

import (
	"errors"
	"fmt"
	"strings"
)

// Report is what Check found. Events are counted once however often they were written; messages and
// dead letters are counted as they are.
type Report struct {
	Acknowledged, RolledBack, Unknown int // events written
	Received, Dead                    int // messages and dead letters

	Lost, Invented, Duplicated, OutOfOrder, Stale Finding
}

// maxExamples of one kind are described: the first are usually the cause and the rest its
// consequence.
const maxExamples = 5

// Finding is one kind of violation: how many, and the first few as sentences.
type Finding struct {
	Count    int
	Examples []string
}

func (f *Finding) add(format string, args ...any) {
	f.Count++
	if len(f.Examples) < maxExamples {
		f.Examples = append(f.Examples, fmt.Sprintf(format, args...))
	}
}

// String is one line with all counts. Stale is named only where there is some: most histories set
// no MaxAge.
func (r Report) String() string {
	line := fmt.Sprintf("acknowledged %d  rolled back %d  unknown %d  received %d  dead %d  lost %d  invented %d  "+
		"duplicated %d  out of order %d",
		r.Acknowledged, r.RolledBack, r.Unknown, r.Received, r.Dead, r.Lost.Count, r.Invented.Count, r.Duplicated.Count,
		r.OutOfOrder.Count)
	if r.Stale.Count > 0 {
		line += fmt.Sprintf("  stale %d", r.Stale.Count)
	}
	return line
}

// Err is nil if nothing was violated. Otherwise it has String's line, and a line for each example.
func (r Report) Err() error {
	var b strings.Builder
	b.WriteString(r.String())
	violations := 0
	for _, kind := range []struct {
		name string
		Finding
	}{{"lost", r.Lost}, {"invented", r.Invented}, {"duplicated", r.Duplicated}, {"out of order", r.OutOfOrder},
		{"stale", r.Stale}} {
		violations += kind.Count
		for _, example := range kind.Examples {
			fmt.Fprintf(&b, "\n%s: %s", kind.name, example)
		}
		if more := kind.Count - len(kind.Examples); more > 0 {
			fmt.Fprintf(&b, "\n%s: %d more", kind.name, more)
		}
	}
	if violations == 0 {
		return nil
	}
	return errors.New(b.String())
}

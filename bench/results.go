package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// figures is what one run of a bench has measured. It is kept as JSON, and docs/benchmarks.md is
// made of it.
type figures struct {
	Bench    string  `json:"bench"`
	Day      string  `json:"day"`
	Machine  machine `json:"machine"`
	Rows     int     `json:"rows"`
	Rounds   int     `json:"rounds"`
	Seconds  int     `json:"seconds"`
	Comments string  `json:"comments,omitempty"`
	Lines    []*line `json:"lines"`
}

// series are the figures of one thing, a round each.
type series []float64

func (s *series) add(v float64) { *s = append(*s, v) }

func (s series) median() float64 {
	sorted := slices.Sorted(slices.Values(s))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

func (s series) spread(format string) string {
	return fmt.Sprintf(format+"–"+format, slices.Min(s), slices.Max(s))
}

// allFigures is the figures of all benches, by their names.
type allFigures map[string]*figures

type machine struct {
	CPUs     int    `json:"cpus"`
	Go       string `json:"go"`
	Postgres string `json:"postgres"`
	Redis    string `json:"redis"`
}

// line is one side: of each thing measured its values, a round each.
type line struct {
	Name   string            `json:"name"`
	Kind   kind              `json:"kind"`
	Base   string            `json:"base,omitempty"` // the line that it is compared with
	Values map[string]series `json:"values"`
	Failed string            `json:"failed,omitempty"` // why the line has no values, or not all
}

func (l *line) add(what string, value float64) { l.Values[what] = append(l.Values[what], value) }

// the returns the values of one thing, which somebody has measured.
func (l *line) the(what string) series { return l.Values[what] }

func newFigures(bench string, s *servers, o options) *figures {
	return &figures{Bench: bench, Day: time.Now().UTC().Format(time.DateOnly), Rows: o.rows, Rounds: o.rounds,
		Seconds: o.seconds, Comments: o.comments,
		Machine: machine{runtime.NumCPU(), runtime.Version(), s.postgresVersion, s.redisVersion}}
}

// line returns the line of a name, which it adds if there is none.
func (f *figures) line(name string, k kind) *line {
	if l := f.find(name); l != nil {
		return l
	}
	f.Lines = append(f.Lines, &line{Name: name, Kind: k, Values: map[string]series{}})
	return f.Lines[len(f.Lines)-1]
}

// task is what measures one round of a line.
type task struct {
	name, base string // base is the line that it is compared with
	kind       kind
	round      func(context.Context, *line) error
}

// measure runs the tasks in turns, so that the machine's drift meets all of them.
func (f *figures) measure(ctx context.Context, o options, tasks []task) error {
	for range o.rounds {
		for _, t := range tasks {
			if !strings.Contains(t.name, o.only) {
				continue
			}
			into := f.line(t.name, t.kind)
			into.Base = t.base
			if err := into.measure(ctx, t.round); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
		}
	}
	return nil
}

// measure runs one round. A peer that fails is left out: the others are worth having without it.
func (l *line) measure(ctx context.Context, round func(context.Context, *line) error) error {
	if l.Failed != "" {
		return nil
	}
	err := round(ctx, l)
	if err == nil || l.Kind != peer || ctx.Err() != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "bench: %s is left out: %v\n", l.Name, err)
	l.Failed = strings.ReplaceAll(err.Error(), "\n", "; ") // a cell of a table is one line
	return nil
}

func (f *figures) find(name string) *line {
	i := slices.IndexFunc(f.Lines, func(l *line) bool { return l.Name == name })
	if i < 0 {
		return nil
	}
	return f.Lines[i]
}

// done prints the table and keeps the figures.
func (f *figures) done(to io.Writer, o options) error {
	if _, err := io.WriteString(to, f.table()); err != nil {
		return err
	}
	return f.keep(o)
}

// keep writes the figures to the folder that was named for it, if one was.
func (f *figures) keep(o options) error {
	if o.out == "" {
		return nil
	}
	text, err := f.encode()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.out, f.Bench+".json"), text, 0o644)
}

// encode has four significant digits of each value, and one line a thing measured, so that a diff
// can be read.
func (f *figures) encode() ([]byte, error) {
	for _, l := range f.Lines {
		for _, values := range l.Values {
			for i, v := range values {
				if _, err := fmt.Sscan(fmt.Sprintf("%.4g", v), &values[i]); err != nil {
					return nil, err
				}
			}
		}
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(joinNumbers(text), '\n'), nil
}

// joinNumbers puts the numbers of an array on its line.
func joinNumbers(text []byte) []byte {
	var out bytes.Buffer
	within := false
	for part := range bytes.Lines(text) {
		trimmed := bytes.TrimSpace(part)
		switch {
		case within && bytes.HasPrefix(trimmed, []byte("]")):
			within = false
			out.Write(append(trimmed, '\n'))
		case within:
			out.Write(trimmed)
			if bytes.HasSuffix(trimmed, []byte(",")) {
				out.WriteByte(' ')
			}
		case bytes.HasSuffix(trimmed, []byte("[")) && bytes.HasPrefix(part, []byte("        ")): // within values
			within = true
			out.Write(bytes.TrimRight(part, "\n"))
		default:
			out.Write(part)
		}
	}
	return out.Bytes()
}

// readFigures returns those of a folder, by bench.
func readFigures(dir string) (allFigures, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("there are no results in " + dir + ": make bench, or go run . -out " + dir + " peers")
	}
	all := allFigures{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var f figures
		if err := json.Unmarshal(text, &f); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		all[f.Bench] = &f
	}
	return all, nil
}

package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// The report's sources and what it writes, from the folder of bench.
const (
	resultsDir = "results"
	document   = "../docs/benchmarks.md"
	plotsDir   = "../docs/benchmarks"
)

// column is one of a table: its heading, and what it says of a line.
type column struct {
	head string
	cell func(*figures, *line) string
}

var drainColumns = []column{
	{"events/s", spread("rate", "%.0f")},
	{"÷ best peer", ratio("rate", (*figures).bestPeer)},
	{"÷ bare loop", ratio("rate", (*figures).base)},
	{"CPU s per 100,000: all", total("cpu_postgres", "cpu_redis", "cpu_relay")},
	{"PostgreSQL", middle("cpu_postgres", "%.2f")}, {"Redis", middle("cpu_redis", "%.2f")},
	{"relay", middle("cpu_relay", "%.2f")},
	{"WAL bytes an event", middle("wal", "%.0f")}, {"dead rows an event", middle("dead", "%.2f")},
	{"copies", sum("copies")}, {"out of order", sum("inversions")}, {"not arrived", sum("missing")},
}

var latencyColumns = []column{
	{"p50 ms", spread("p50", "%.2f")}, {"p99 ms", spread("p99", "%.2f")}, {"max ms", middle("max", "%.0f")},
	{"CPU s of PostgreSQL per 100,000", middle("cpu_postgres", "%.1f")},
	{"under way at the end", middle("behind", "%.0f")},
	{"copies", sum("copies")}, {"out of order", sum("inversions")}, {"not arrived", sum("missing")},
}

var producerColumns = []column{
	{"transactions/s", spread("rate", "%.0f")}, {"÷ no event", ratio("rate", (*figures).base)},
	{"compared with", func(_ *figures, l *line) string {
		if l.Base == l.Name {
			return ""
		}
		return l.Base
	}},
	{"CPU µs: PostgreSQL", middle("cpu_postgres", "%.0f")}, {"writers", middle("cpu_writers", "%.0f")},
	{"WAL bytes", middle("wal", "%.0f")},
}

func (f *figures) columns() []column {
	return map[string][]column{"drain": drainColumns, "latency": latencyColumns, "producer": producerColumns}[f.Bench]
}

// table is the figures in Markdown.
func (f *figures) table() string {
	rows := [][]string{{""}, {"---"}}
	for _, c := range f.columns() {
		rows[0], rows[1] = append(rows[0], c.head), append(rows[1], "--:")
	}
	for _, l := range f.Lines {
		name := l.Name
		if l.Kind == ours {
			name = "**" + name + "**"
		}
		row := []string{name}
		for _, c := range f.columns() {
			row = append(row, c.cell(f, l))
		}
		rows = append(rows, row)
	}
	var out strings.Builder
	for _, row := range rows {
		out.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	return out.String()
}

// spread is the median, and between what the rounds were.
func spread(what, format string) func(*figures, *line) string {
	return func(_ *figures, l *line) string {
		values := l.the(what)
		if len(values) == 0 {
			return ""
		}
		if len(values) == 1 {
			return fmt.Sprintf(format, values[0])
		}
		return fmt.Sprintf(format, values.median()) + " (" + values.spread(format) + ")"
	}
}

func middle(what, format string) func(*figures, *line) string {
	return func(_ *figures, l *line) string {
		if len(l.the(what)) == 0 {
			return ""
		}
		return fmt.Sprintf(format, l.the(what).median())
	}
}

// total is the median of the sums of several things, round by round.
func total(what ...string) func(*figures, *line) string {
	return func(_ *figures, l *line) string { return fmt.Sprintf("%.1f", l.sums(what...).median()) }
}

func (l *line) sums(what ...string) series {
	sums := make(series, len(l.the(what[0])))
	for _, w := range what {
		for i, v := range l.the(w) {
			sums[i] += v
		}
	}
	return sums
}

// sum counts over all rounds.
func sum(what string) func(*figures, *line) string {
	return func(_ *figures, l *line) string {
		n := 0.0
		for _, v := range l.the(what) {
			n += v
		}
		return fmt.Sprintf("%.0f", n)
	}
}

// ratio compares with another line, round by round: the machine drifts less within one.
func ratio(what string, of func(*figures, *line) *line) func(*figures, *line) string {
	return func(f *figures, l *line) string {
		other := of(f, l)
		if other == nil || other == l {
			return ""
		}
		var each series
		for i, v := range l.the(what) {
			each.add(v / other.the(what)[i])
		}
		return fmt.Sprintf("%.2f", each.median())
	}
}

// bestPeer is the one with the highest rate, which the peers are not compared with.
func (f *figures) bestPeer(l *line) *line {
	var best *line
	for _, other := range f.Lines {
		if other.Kind == peer && (best == nil || other.the("rate").median() > best.the("rate").median()) {
			best = other
		}
	}
	if l.Kind == peer {
		return nil
	}
	return best
}

// base is the line that one is compared with, or nil.
func (f *figures) base(l *line) *line { return f.find(l.Base) }

// heading says what the figures are of.
func (f *figures) heading() string {
	text := fmt.Sprintf("Measured on %s: %d CPUs, %s, PostgreSQL %s, Redis %s", f.Day, f.Machine.CPUs, f.Machine.Go,
		f.Machine.Postgres, f.Machine.Redis)
	switch f.Bench {
	case "drain":
		text += fmt.Sprintf("; %d events", f.Rows)
	case "latency":
		text += fmt.Sprintf("; %d s a line", f.Seconds)
	}
	text += fmt.Sprintf("; rounds: %d, medians", f.Rounds)
	if f.Rounds > 1 {
		text += " (and the lowest and the highest)"
	}
	if f.Comments != "" {
		text += "; " + f.Comments
	}
	return text + ".\n"
}

// report writes the generated parts of the document, and its plots.
func report() error {
	all, err := readFigures(resultsDir)
	if err != nil {
		return err
	}
	files, err := render(all)
	if err != nil {
		return err
	}
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// render returns the files that the figures make.
func render(all map[string]*figures) (map[string][]byte, error) {
	text, err := os.ReadFile(document)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for bench, f := range all {
		var generated strings.Builder
		generated.WriteString(f.heading() + "\n" + f.table())
		for _, p := range f.plots() {
			files[filepath.Join(plotsDir, p.name+".svg")] = p.svg()
			fmt.Fprintf(&generated, "\n![%s](benchmarks/%s.svg)\n", p.title, p.name)
		}
		if text, err = replaceBetween(text, bench, generated.String()); err != nil {
			return nil, err
		}
	}
	files[document] = text
	return files, nil
}

// replaceBetween puts the text between the markers of a bench.
func replaceBetween(text []byte, bench, generated string) ([]byte, error) {
	begin, end := "<!-- generated: "+bench+" -->\n", "<!-- end: "+bench+" -->"
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return nil, fmt.Errorf("%s has no lines %q and %q", document, strings.TrimSpace(begin), end)
	}
	return []byte(before + begin + "\n" + generated + "\n" + end + after), nil
}

// roundUp is the next of 1, 2 and 5 times a power of ten, where an axis can end.
func roundUp(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 2, 5} {
		if step*power >= v {
			return step * power
		}
	}
	return 10 * power
}

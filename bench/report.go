package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The report's sources and what it writes, from the folder of bench.
const (
	resultsDir = "results"
	document   = "../docs/benchmarks.md"
	readme     = "../README.md"
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

var sinksColumns = []column{
	{"events/s", spread("rate", "%.0f")}, {"its client's", middle("client", "%.0f")},
	{"÷ client", share("client")}, {"÷ table", ratio("rate", (*figures).base)},
	{"÷ the smaller (wanted: 0.60)", func(f *figures, l *line) string {
		if table := f.base(l); len(l.the("client")) > 0 && l.the("client").median() > table.the("rate").median() {
			return ratio("rate", (*figures).base)(f, l)
		}
		return share("client")(f, l)
	}},
}

var flatColumns = []column{
	{"events/s", middle("rate", "%.0f")}, {"÷ the first (wanted: 0.90)", ratio("rate", (*figures).base)},
}

var idleColumns = []column{
	{"statements/s", middle("statements", "%.1f")}, {"connections", middle("connections", "%.0f")},
	{"log, MB/day", middle("log", "%.0f")}, {"% of a core", middle("cpu_relay", "%.1f")},
	{"PostgreSQL's, %", middle("cpu_postgres", "%.1f")},
}

var inboxColumns = []column{
	{"a second", spread("rate", "%.0f")}, {"guard p50 ms", middle("p50", "%.3f")}, {"guard p99 ms", middle("p99", "%.3f")},
}

func (f *figures) columns() []column {
	return map[string][]column{
		"drain": drainColumns, "latency": latencyColumns, "producer": producerColumns, "sinks": sinksColumns,
		"flat": flatColumns, "idle": idleColumns, "inbox": inboxColumns,
	}[f.Bench]
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
		for i, c := range f.columns() {
			switch {
			case l.Failed == "":
				row = append(row, c.cell(f, l))
			case i == 0:
				row = append(row, "failed: "+l.Failed)
			default:
				row = append(row, "")
			}
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
		if len(values) == 1 {
			return fmt.Sprintf(format, values[0])
		}
		return fmt.Sprintf(format, values.median()) + " (" + values.spread(format) + ")"
	}
}

// middle is the median, and nothing where the line has no such figure.
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
		return l.the(what).over(other.the(what))
	}
}

// share compares the line's rate with another figure of its own.
func share(what string) func(*figures, *line) string {
	return func(_ *figures, l *line) string { return l.the("rate").over(l.the(what)) }
}

// over is the median of the ratios, and nothing where there is nothing to compare with.
func (s series) over(other series) string {
	var each series
	for i := range min(len(s), len(other)) {
		each.add(s[i] / other[i])
	}
	if len(each) == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", each.median())
}

// bestPeer is the one with the highest rate, which the peers are not compared with.
func (f *figures) bestPeer(l *line) *line {
	var best *line
	for _, other := range f.Lines {
		if other.Kind != peer || other.Failed != "" {
			continue
		}
		if best == nil || other.the("rate").median() > best.the("rate").median() {
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
	case "drain", "sinks":
		text += fmt.Sprintf("; %d events", f.Rows)
	case "latency":
		text += fmt.Sprintf("; %d s a line", f.Seconds)
	}
	if f.Rounds > 1 {
		text += fmt.Sprintf("; rounds: %d, medians (and the lowest and the highest)", f.Rounds)
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
func render(all allFigures) (map[string][]byte, error) {
	text, err := os.ReadFile(document)
	if err != nil {
		return nil, err
	}
	front, err := os.ReadFile(readme)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{readme: replaceBetween(front, "speed", all.speed())}
	for bench, f := range all {
		var generated strings.Builder
		generated.WriteString(f.heading() + "\n" + f.table())
		for _, p := range f.plots() {
			files[filepath.Join(plotsDir, p.name+".svg")] = p.svg()
			fmt.Fprintf(&generated, "\n![%s](benchmarks/%s.svg)\n", p.title, p.name)
		}
		text = replaceBetween(text, bench, generated.String())
	}
	files[document] = text
	return files, nil
}

// setups are what a user may choose, the default first, and the line of the drain that has its
// figures.
var setups = []struct{ what, line string }{
	{"as installed", "outbox_events, mark, ADR-004's indexes"},
	{"after `outbox migrate indexes lean`", "outbox_events, mark"},
	{"lean, and delivered rows [are deleted](docs/reference/tables.md#settle-modes)", "outbox_events, delete"},
	{"a [log table](docs/reference/tables.md#log-tables)", "outbox_log"},
}

// speed is what the README says of the figures: nothing of it is written by hand.
func (all allFigures) speed() string {
	drain, latency, producer := all["drain"], all["latency"], all["producer"]
	of := func(f *figures, name string, cell func(*figures, *line) string) string { return cell(f, f.find(name)) }
	times, cpu := ratio("rate", (*figures).bestPeer), total("cpu_postgres", "cpu_redis", "cpu_relay")
	best := drain.bestPeer(drain.find(setups[0].line))

	var out strings.Builder
	fmt.Fprintf(&out, "| a backlog drains | events/s | beside %s, the fastest of the three | CPU s per 100,000 events |\n"+
		"|---|--:|--:|--:|\n", best.Name)
	for _, s := range setups {
		fmt.Fprintf(&out, "| %s | %s | %s × | %s |\n", s.what, of(drain, s.line, middle("rate", "%.0f")),
			of(drain, s.line, times), of(drain, s.line, cpu))
	}
	fmt.Fprintf(&out, "| %s | %s | 1 × | %s |\n\n", best.Name, middle("rate", "%.0f")(drain, best), cpu(drain, best))
	p50 := middle("p50", "%.1f")
	fmt.Fprintf(&out, "At 1000 transactions a second an event is with its subscriber %s ms after the commit from another process, "+
		"and %s ms from the same one (medians).\n", of(latency, "ours, another process", p50),
		of(latency, "ours, in the writers' process", p50))
	kept := ratio("rate", (*figures).base)
	fmt.Fprintf(&out, "A producer's transaction of one INSERT keeps %s of its rate with an event beside it, as installed; "+
		"%s with watermill-sql, %s with oagudo/outbox, %s with River.\n",
		of(producer, "ours, Write, ADR-004's indexes", kept), of(producer, "watermill-sql, queue", kept),
		of(producer, "oagudo/outbox", kept), of(producer, "River", kept))
	return out.String()
}

// replaceBetween puts the text between the markers of a bench. Some benches have none: an ADR has
// their figures.
func replaceBetween(text []byte, bench, generated string) []byte {
	begin, end := "<!-- generated: "+bench+" -->\n", "<!-- end: "+bench+" -->"
	before, rest, _ := strings.Cut(string(text), begin)
	_, after, found := strings.Cut(rest, end)
	if !found {
		return text
	}
	return []byte(before + begin + "\n" + generated + "\n" + end + after)
}

// plots are those of a bench.
func (f *figures) plots() []plot {
	switch f.Bench {
	case "drain":
		return []plot{
			f.plot("drain", "Drain: events a second", "", "rate"),
			f.plot("drain-cpu", "Processor seconds per 100,000 events", "s", "cpu_postgres", "cpu_redis", "cpu_relay"),
		}
	case "latency":
		p50 := f.plot("latency-p50", "Commit to subscriber at 1000/s: p50, logarithmic", "ms", "p50")
		p99 := f.plot("latency-p99", "Commit to subscriber at 1000/s: p99, logarithmic", "ms", "p99")
		p50.log, p99.log = true, true
		return []plot{p50, p99}
	case "producer":
		return []plot{f.plot("producer", "Transactions a second, 16 writers", "", "rate")}
	}
	return nil
}

// partNames are the words of a legend.
var partNames = map[string]string{"cpu_postgres": "PostgreSQL", "cpu_redis": "Redis", "cpu_relay": "relay"}

func (f *figures) plot(name, title, unit string, what ...string) plot {
	p := plot{name: name, title: title, unit: unit}
	for _, w := range what {
		p.parts = append(p.parts, cmp.Or(partNames[w], w))
	}
	for _, l := range f.Lines {
		if l.Failed != "" {
			continue
		}
		b := bar{label: l.Name, kind: l.Kind}
		for _, w := range what {
			b.values = append(b.values, l.the(w).median())
		}
		if len(what) == 1 {
			b.low, b.high = slices.Min(l.the(what[0])), slices.Max(l.the(what[0]))
		}
		p.bars = append(p.bars, b)
	}
	return p
}

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// plot is a chart of horizontal bars, one for each line.
type plot struct {
	name, title string
	unit        string
	parts       []string // what a bar is made of; one needs no legend
	log         bool     // a logarithmic axis, for a bar of one part
	bars        []bar
}

// bar is the median of each part, and where the rounds of the first part lay.
type bar struct {
	label     string
	kind      kind
	values    []float64
	low, high float64
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

func (b bar) total() (sum float64) {
	for _, v := range b.values {
		sum += v
	}
	return sum
}

// Sizes in pixels, and colours that can be told apart on white and on black.
const (
	labelWidth, barWidth, valueWidth = 300, 460, 130
	rowHeight, topHeight             = 26, 58
	style                            = "text{font:13px system-ui,sans-serif;fill:#1f2328}.head{font-weight:600;font-size:15px}" +
		".axis{stroke:#8c959f}.range{stroke:#57606a;stroke-width:1.5}" +
		".ours{fill:#2da44e}.peer{fill:#bf8700}.limit{fill:#8c959f}" +
		".part0{fill:#3b82c4}.part1{fill:#cf5a4c}.part2{fill:#2da44e}" +
		"@media (prefers-color-scheme:dark){text{fill:#e6edf3}.range{stroke:#d0d7de}}"
)

// svg draws it. Nothing is behind it, and text follows the reader's light or dark scheme.
func (p plot) svg() []byte {
	var out bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	height := topHeight + rowHeight*len(p.bars) + 8
	line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img">`,
		labelWidth+barWidth+valueWidth, height)
	line("<title>%s</title>", html.EscapeString(p.title))
	line("<style>%s</style>", style)
	line(`<text class="head" x="8" y="22">%s</text>`, html.EscapeString(p.title))
	legend, classes := []string{"ours", "peers", "the limit"}, []string{"ours", "peer", "limit"}
	if len(p.parts) > 1 {
		legend, classes = p.parts, []string{"part0", "part1", "part2"}
	}
	at := labelWidth
	for i, text := range legend {
		line(`<rect class="%s" x="%d" y="34" width="12" height="12"/>`, classes[i], at)
		line(`<text x="%d" y="45">%s</text>`, at+17, text)
		at += 30 + 8*len(text)
	}
	scale := p.scale()
	line(`<line class="axis" x1="%d" x2="%[1]d" y1="%d" y2="%d"/>`, labelWidth, topHeight-4, height-4)
	for i, b := range p.bars {
		y := topHeight + i*rowHeight
		line(`<text x="%d" y="%d" text-anchor="end">%s</text>`, labelWidth-8, y+15, html.EscapeString(b.label))
		from, sum := 0.0, 0.0
		for part, v := range b.values {
			class := string(b.kind)
			if len(p.parts) > 1 {
				class = fmt.Sprintf("part%d", part)
			}
			sum += v
			line(`<rect class="%s" x="%.1f" y="%d" width="%.1f" height="18"/>`, class, labelWidth+from, y+1, scale(sum)-from)
			from = scale(sum)
		}
		if b.high > b.low {
			line(`<line class="range" x1="%.1f" x2="%.1f" y1="%d" y2="%[3]d"/>`,
				labelWidth+scale(b.low), labelWidth+scale(b.high), y+10)
			from = max(from, scale(b.high))
		}
		line(`<text x="%.1f" y="%d">%s</text>`, labelWidth+from+6, y+15, strings.TrimSpace(readable(b.total())+" "+p.unit))
	}
	line("</svg>")
	return out.Bytes()
}

// scale returns where a value is on the axis, whose end is a round number.
func (p plot) scale() func(float64) float64 {
	low, high := math.Inf(1), 0.0
	for _, b := range p.bars {
		low, high = min(low, max(b.total(), 1e-3)), max(high, b.total(), b.high)
	}
	if !p.log {
		return func(v float64) float64 { return barWidth * v / roundUp(high) }
	}
	from, to := math.Log10(low/2), math.Log10(roundUp(high))
	return func(v float64) float64 { return barWidth * max(0, (math.Log10(max(v, 1e-3))-from)/(to-from)) }
}

// readable has three digits, and thousands apart.
func readable(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%d,%03d", int(v)/1000, int(v)%1000)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

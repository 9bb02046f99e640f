package main

import (
	"bytes"
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

	style = "text{font:13px system-ui,sans-serif;fill:#1f2328}.head{font-weight:600;font-size:15px}" +
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
	var legend, classes []string
	for _, k := range []struct {
		kind
		text string
	}{{ours, "ours"}, {peer, "peers"}, {limit, "for comparison"}} {
		if slices.ContainsFunc(p.bars, func(b bar) bool { return b.kind == k.kind }) {
			legend, classes = append(legend, k.text), append(classes, string(k.kind))
		}
	}
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

// scale returns where a value is on the axis, which is as long as the longest bar.
func (p plot) scale() func(float64) float64 {
	low, high := math.Inf(1), 0.0
	for _, b := range p.bars {
		low, high = min(low, max(b.low, 1e-3)), max(high, b.total(), b.high)
	}
	if !p.log {
		return func(v float64) float64 { return barWidth * v / high }
	}
	from, to := math.Log10(low/2), math.Log10(high)
	return func(v float64) float64 { return barWidth * (math.Log10(max(v, low/2)) - from) / (to - from) }
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

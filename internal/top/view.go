package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/outboxrelay/outbox/internal/condition"
)

// The terminal's own palette, so that the screen fits whatever theme there is. The words say all
// that colours do.
var (
	bold    = lipgloss.NewStyle().Bold(true)
	faint   = lipgloss.NewStyle().Faint(true)
	chosen  = lipgloss.NewStyle().Reverse(true)
	byWorst = map[condition.Severity]lipgloss.Style{
		condition.Warning:  lipgloss.NewStyle().Foreground(lipgloss.Yellow),
		condition.Critical: lipgloss.NewStyle().Foreground(lipgloss.Red).Bold(true),
	}
)

const (
	sentenceLines = 3
	widest        = 40 // of a column but the last
	keys          = "q quit  tab/arrows move  enter detail  p pause  +/- interval"
)

// View implements tea.Model.
func (m model) View() tea.View {
	lines := append(m.header(), m.body()...)
	if room := max(m.height-1, 0); len(lines) > room {
		lines = lines[:room]
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines, faint.Render(keys))
	for i, line := range lines {
		lines[i] = lipgloss.NewStyle().MaxWidth(m.width).Render(line)
	}
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen = true
	return v
}

// header is where one is, as of when, and how it stands.
func (m model) header() []string {
	if !m.seen {
		return []string{bold.Render("outbox top") + "  " + m.database, "", "asking…"}
	}
	state := "every " + m.interval.String()
	if m.least > m.interval {
		state = "every " + m.least.Round(100*time.Millisecond).String()
	}
	if m.paused {
		state = "PAUSED, p goes on"
	}
	at := "nothing is known yet"
	if !m.sample.At.IsZero() {
		at = m.sample.At.UTC().Format(time.TimeOnly) + " UTC"
	}
	lines := []string{bold.Render("outbox top") + "  " + m.database + "  " + at + "  " + state}
	worst, style := strings.ToUpper(m.sample.Worst.String()), byWorst[m.sample.Worst]
	said := wrapped(worst+"  "+plain(m.sample.Sentence), m.width)
	for _, line := range said[:min(len(said), sentenceLines)] {
		lines = append(lines, style.Render(line))
	}
	return lines
}

// wrapped breaks a text between words.
func wrapped(text string, width int) []string {
	return strings.Split(lipgloss.Wrap(text, max(width, 1), " "), "\n")
}

func (m model) body() []string {
	room := m.height - 1 - len(m.header())
	if m.detailed {
		return m.detailLines(room)
	}
	var lines []string
	for i, n := range m.shares(room) {
		lines = append(lines, m.sectionLines(i, n)...)
	}
	return lines
}

func (m model) detailLines(room int) (lines []string) {
	lines = append(lines, "")
	for i, line := range m.detail {
		for k, part := range wrapped(line, m.width) {
			if i == 0 && k == 0 {
				part = bold.Render(part)
			}
			lines = append(lines, part)
		}
	}
	lines = append(lines, "", faint.Render("enter or esc: back"))
	return lines[min(m.scroll, max(len(lines)-room, 0)):]
}

// shares says how many rows each section shows: one, then the chosen one all that it has, then each
// in turn one more.
func (m model) shares(room int) []int {
	shares, left := make([]int, len(m.sections)), room-len(m.sections) // a head each
	give := func(i, most int) {
		n := max(min(most, len(m.sections[i].rows)-shares[i], left), 0)
		shares[i] += n
		left -= n
	}
	for i := range m.sections {
		give(i, 1)
	}
	if len(m.sections) > 0 {
		give(m.focus, room)
	}
	for before := -1; before != left; {
		before = left
		for i := range m.sections {
			give(i, 1)
		}
	}
	return shares
}

// sectionLines are the head of a section and n of its rows, those around the cursor.
func (m model) sectionLines(at, n int) []string {
	s := m.sections[at]
	if len(s.rows) == 0 {
		return []string{bold.Render("  "+s.head[0]) + "  " + faint.Render(s.none)}
	}
	head := slices.Clone(s.head)
	if n < len(s.rows) {
		head[0] += fmt.Sprintf(" (%d of %d)", n, len(s.rows))
	}
	first := max(min(m.cursors[at]-n/2, len(s.rows)-n), 0)
	cells := [][]string{head}
	for _, r := range s.rows[first : first+n] {
		cells = append(cells, slices.Clone(r.cells))
	}
	lines := aligned(cells)
	for i := range lines {
		mark, style := "  ", bold
		if i > 0 {
			style = byWorst[s.rows[first+i-1].bad]
		}
		if i > 0 && at == m.focus && first+i-1 == m.cursors[at] {
			mark, style = "> ", chosen
		}
		lines[i] = style.Render(mark + lines[i])
	}
	return lines
}

// aligned are rows of cells as lines whose columns stand below each other.
func aligned(rows [][]string) []string {
	lines := make([]string, len(rows))
	for column := range rows[0] {
		width := 0
		last := column == len(rows[0])-1
		for _, cells := range rows {
			cells[column] = plain(cells[column])
			if !last {
				cells[column] = lipgloss.NewStyle().MaxWidth(widest).Render(cells[column])
			}
			width = max(width, lipgloss.Width(cells[column]))
		}
		for i, cells := range rows {
			lines[i] += cells[column]
			if !last {
				lines[i] += strings.Repeat(" ", width-lipgloss.Width(cells[column])+2)
			}
		}
	}
	return lines
}

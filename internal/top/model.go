package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/outboxrelay/outbox/internal/admin"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// Terminal is where the screen is, and whose keys are read.
type Terminal struct {
	In      io.Reader
	Out     io.Writer
	Environ []string
}

// Show shows samples until q or Ctrl-C is pressed or ctx ends. database is what the screen calls
// it.
func Show(ctx context.Context, source *Source, database string, interval time.Duration, t Terminal) error {
	looking, cancel := context.WithCancel(ctx)
	defer cancel()
	_, err := tea.NewProgram(newModel(looking, source, database, interval), tea.WithContext(ctx), tea.WithInput(t.In),
		tea.WithOutput(t.Out), tea.WithEnvironment(t.Environ), tea.WithoutSignalHandler()).Run()
	if ctx.Err() != nil && errors.Is(err, tea.ErrProgramKilled) {
		return nil // a signal ended it
	}
	if err != nil {
		return fmt.Errorf("show the screen: %w", err)
	}
	return nil
}

// looker is a Source.
type looker interface {
	Look(ctx context.Context) (Sample, time.Duration)
	behind(ctx context.Context, b admin.Blocked) ([]operate.EventRow, error)
}

// steps are the intervals that + and - go through.
var steps = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute}

// model is the screen's state. One look is under way at a time.
type model struct {
	ctx      context.Context
	source   looker
	database string

	interval, least time.Duration
	paused, looking bool
	round           int // of ticks: those of an earlier one came too late

	seen     bool
	sample   Sample
	sections []section

	width, height int
	focus         int   // among sections
	cursors       []int // a row of each section
	detail        []string
	detailed      bool
	opened        int // details so far
	scroll        int // of detail
}

type (
	sampleMsg struct {
		Sample
		least time.Duration
	}
	tickMsg   struct{ round int }
	behindMsg struct {
		opened int // the detail that it is of
		lines  []string
	}
)

func newModel(ctx context.Context, source looker, database string, interval time.Duration) model {
	return model{ctx: ctx, source: source, database: database, interval: interval, looking: true,
		width: 80, height: 24, cursors: make([]int, len(sectionsOf(Sample{})))}
}

// Init implements tea.Model.
func (m model) Init() tea.Cmd { return m.look }

func (m model) look() tea.Msg {
	sample, least := m.source.Look(m.ctx)
	return sampleMsg{sample, least}
}

// later asks for the next look, and forgets those that were asked for before.
func (m *model) later() tea.Cmd {
	m.round++
	if m.paused || m.looking {
		return nil
	}
	round := m.round
	return tea.Tick(max(m.interval, m.least), func(time.Time) tea.Msg { return tickMsg{round} })
}

// Update implements tea.Model.
func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case sampleMsg:
		m.looking, m.seen, m.sample, m.least = false, true, msg.Sample, msg.least
		m.sections = sectionsOf(m.sample)
		for i, s := range m.sections {
			m.cursors[i] = max(min(m.cursors[i], len(s.rows)-1), 0)
		}
		return m, m.later()
	case tickMsg:
		if msg.round == m.round && !m.paused {
			m.looking = true
			return m, m.look
		}
	case behindMsg:
		if msg.opened == m.opened {
			m.detail = append(m.detail, msg.lines...)
		}
	case tea.KeyPressMsg:
		return m.press(msg.String())
	}
	return m, nil
}

func (m model) press(key string) (tea.Model, tea.Cmd) {
	switch key {
	case "q", "ctrl+c":
		return m, tea.Quit
	case "p":
		m.paused = !m.paused
		if !m.paused && !m.looking {
			m.round++
			m.looking = true
			return m, m.look
		}
	case "+", "=":
		m.step(1)
		return m, m.later()
	case "-":
		m.step(-1)
		return m, m.later()
	case "tab", "right", "l":
		m.move(1)
	case "shift+tab", "left", "h":
		m.move(-1)
	case "down", "j":
		m.walk(1)
	case "up", "k":
		m.walk(-1)
	case "enter", "?":
		return m.open()
	case "esc":
		m.detailed = false
	}
	return m, nil
}

// step goes to the next longer interval of steps, or the next shorter one.
func (m *model) step(by int) {
	at := slices.IndexFunc(steps, func(s time.Duration) bool { return s >= m.interval })
	if at < 0 {
		at = len(steps) - 1
	}
	m.interval = steps[max(min(at+by, len(steps)-1), 0)]
}

// move goes to another section that has rows.
func (m *model) move(by int) {
	if m.detailed {
		return
	}
	for range m.sections {
		m.focus = (m.focus + by + len(m.sections)) % len(m.sections)
		if len(m.sections[m.focus].rows) > 0 {
			return
		}
	}
}

// walk goes along the rows, or along the lines of a detail.
func (m *model) walk(by int) {
	if m.detailed {
		m.scroll = max(min(m.scroll+by, len(m.detail)-1), 0)
		return
	}
	if m.focus < len(m.sections) {
		m.cursors[m.focus] = max(min(m.cursors[m.focus]+by, len(m.sections[m.focus].rows)-1), 0)
	}
}

// open shows all that is known of a row, or closes it again. A detail stays as it was when it was
// opened.
func (m model) open() (tea.Model, tea.Cmd) {
	m.scroll, m.detailed = 0, !m.detailed
	if !m.detailed || m.focus >= len(m.sections) || len(m.sections[m.focus].rows) == 0 {
		m.detailed = false
		return m, nil
	}
	of := m.sections[m.focus]
	r := of.rows[m.cursors[m.focus]]
	m.opened++
	m.detail = of.detail(r)
	if r.blocked == nil {
		return m, nil
	}
	return m, func() tea.Msg {
		waiting, err := m.source.behind(m.ctx, *r.blocked)
		return behindMsg{m.opened, behindLines(waiting, err)}
	}
}

package top

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/admin"
	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

func pointer[T any](v T) *T { return &v }

// busy is a sample with more of everything than a small screen has lines, and with text that would
// spoil it.
func busy() Sample {
	var s Sample
	s.At, s.Worst = time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC), condition.Critical
	s.Sentence = "Sink default is down \x1b[31mfor\r4 min; 212000 wait, the oldest 4m0s. " +
		strings.Repeat("And more. ", 40)
	for i := range 30 {
		s.Findings = append(s.Findings, condition.Finding{ID: fmt.Sprintf("OBX-%03d", i+1), Name: "sink down",
			Severity: condition.Critical, Says: "sink default is down: " + strings.Repeat("日本", 80), Remedy: "start it",
			See: condition.Runbook})
		s.Tables = append(s.Tables, admin.TableState{Table: fmt.Sprintf("table_%02d", i), Backlog: 200_000, Bounded: true,
			Oldest: pointer(240.0), WrittenPerSecond: pointer(1200.04), DeliveredPerSecond: pointer(0.0), Held: 7, HeldKeys: 2,
			Relays: []operate.RelayView{{Name: fmt.Sprintf("relay-%02d", i), Lanes: 64, Share: 64, ExpiresIn: 9.6}}})
		s.Sinks = append(s.Sinks, admin.SinkState{Name: fmt.Sprintf("sink%02d", i), Reason: "connection refused"})
		s.Blocked = append(s.Blocked, admin.Blocked{Table: "table_00", EventRow: operate.EventRow{
			ID: uuid.MustParse(fmt.Sprintf("0198c5a0-7f3e-7c11-8a55-2f6d1c0b9e%02d", i)), Topic: "order.placed",
			Key: pointer(fmt.Sprintf("key\n%02d", i)), Attempts: 3, LastError: pointer("no \x1b]0;title\x07 answer")}})
		s.Groups = append(s.Groups, deadletter.Group{Fingerprint: fmt.Sprintf("%012x", i), Count: 9, Sample: "poison"})
	}
	return s
}

// desk is a looker that counts how often it is asked.
type desk struct {
	sample Sample
	looks  int
}

func (d *desk) Look(context.Context) (Sample, time.Duration) {
	d.looks++
	return d.sample, time.Second
}

func (d *desk) behind(_ context.Context, b admin.Blocked) ([]operate.EventRow, error) {
	return []operate.EventRow{{ID: uuid.Max, Topic: "behind." + *b.Key}}, nil
}

// do gives the model messages, and runs what it wants done but for timers.
func do(t *testing.T, m model, messages ...tea.Msg) (model, tea.Cmd) {
	t.Helper()
	var cmd tea.Cmd
	for _, msg := range messages {
		var next tea.Model
		next, cmd = m.Update(msg)
		m = next.(model)
	}
	return m, cmd
}

func key(name string) tea.Msg {
	special := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "tab": tea.KeyTab, "up": tea.KeyUp,
		"down": tea.KeyDown}
	if code, ok := special[name]; ok {
		return tea.KeyPressMsg{Code: code}
	}
	return tea.KeyPressMsg{Code: []rune(name)[0], Text: name}
}

var escapes = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// screen returns the lines of the view as they are read, and checks that they fit.
func screen(t *testing.T, m model) []string {
	t.Helper()
	content := m.View().Content
	lines := strings.Split(content, "\n")
	if len(lines) != m.height {
		t.Errorf("%d lines on a screen of %d", len(lines), m.height)
	}
	for i, line := range lines {
		if w := lipgloss.Width(line); w > m.width {
			t.Errorf("line %d is %d wide on a screen of %d: %q", i, w, m.width, line)
		}
		lines[i] = escapes.ReplaceAllString(line, "")
		if strings.ContainsAny(lines[i], "\x1b\r\x07") {
			t.Errorf("line %d has a control character: %q", i, line)
		}
	}
	return lines
}

func wants(t *testing.T, lines []string, texts ...string) {
	t.Helper()
	all := strings.Join(lines, "\n")
	for _, text := range texts {
		if !strings.Contains(all, text) {
			t.Errorf("%q is missing in:\n%s", text, all)
		}
	}
}

// Whatever the size and the sample, the screen is full, nothing is wider than it, and each section
// has its place.
func TestScreenFits(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{80, 24}, {200, 50}, {40, 12}, {20, 5}, {1, 1}} {
		for name, sample := range map[string]Sample{"busy": busy(), "empty": {}} {
			t.Run(fmt.Sprintf("%s %dx%d", name, size[0], size[1]), func(t *testing.T) {
				t.Parallel()
				d := &desk{sample: sample}
				m, _ := do(t, newModel(t.Context(), d, "postgres://h/shop", time.Second),
					tea.WindowSizeMsg{Width: size[0], Height: size[1]})
				screen(t, m)
				m, _ = do(t, m, sampleMsg{sample, time.Second})
				lines := screen(t, m)
				if size[0] < 80 {
					return
				}
				wants(t, lines, "CONDITIONS", "TABLES", "SINKS", "BLOCKED KEYS", "LETTERS", "RELAYS", "q quit")
				if name == "busy" {
					wants(t, lines, "CRITICAL  Sink default is down", " of 30)", "> OBX-001", "table_00", "200000+", "4m0s", "1200.0",
						"DOWN", "key 00", "order.placed", "000000000000", "relay-00", "10 s")
				}
			})
		}
	}
}

// Keys go from section to section and along rows; a detail has what is known, and of a blocked key
// what waits.
func TestKeys(t *testing.T) {
	t.Parallel()
	d := &desk{sample: busy()}
	m, _ := do(t, newModel(t.Context(), d, "db", time.Second), sampleMsg{d.sample, time.Second})
	m, _ = do(t, m, key("enter"))
	wants(t, screen(t, m), "CONDITIONS  OBX-001", "name          sink down", "cause         sink default is down",
		"do            start it",
		"means         ")
	m, _ = do(t, m, key("esc"), key("down"), key("down"), key("up"))
	wants(t, screen(t, m), "> OBX-002")
	for range 40 {
		m, _ = do(t, m, key("down"))
	}
	wants(t, screen(t, m), "> OBX-030")
	m, _ = do(t, m, key("tab"), key("tab"), key("tab"), key("down"))
	wants(t, screen(t, m), "> key 01", "CONDITIONS (")
	m, cmd := do(t, m, key("?"))
	if cmd == nil {
		t.Fatal("nobody asks what waits behind a blocked key")
	}
	m, _ = do(t, m, cmd())
	wants(t, screen(t, m), "BLOCKED KEYS  key 01", "event         0198c5a0-7f3e-7c11-8a55-2f6d1c0b9e01",
		"1 of its key behind it:", "behind.key 01",
		"do            outbox why 0198c5a0")
	m, _ = do(t, m, key("?"), sampleMsg{Sample{}, time.Second})
	wants(t, screen(t, m), "BLOCKED KEYS  none")
	if _, cmd := do(t, m, key("enter")); cmd != nil {
		t.Error("there is a detail of nothing")
	}
	if _, cmd := do(t, m, key("q")); cmd == nil || cmd() != tea.Quit() {
		t.Error("q does not quit")
	}
}

// One look is under way at a time, none while it is paused, and ticks of an earlier interval are
// forgotten.
func TestLooksInTurn(t *testing.T) {
	t.Parallel()
	d := &desk{sample: busy()}
	m, cmd := do(t, newModel(t.Context(), d, "db", time.Second), key("+"), key("p"), key("p"))
	if cmd != nil {
		t.Error("it looks a second time before the first look is answered")
	}
	wants(t, screen(t, m), "asking")
	m, cmd = do(t, m, sampleMsg{d.sample, 3 * time.Second})
	if cmd == nil || m.interval != 2*time.Second {
		t.Errorf("no further look, or not every 2 s but %s", m.interval)
	}
	wants(t, screen(t, m), "every 3s") // the database is not asked more often than that
	late := m.round
	m, _ = do(t, m, key("-"), key("-"))
	if m.interval != time.Second {
		t.Errorf("the interval is %s", m.interval)
	}
	if _, cmd := do(t, m, tickMsg{late}); cmd != nil {
		t.Error("a tick of the earlier interval is obeyed")
	}
	m, cmd = do(t, m, key("p"), tickMsg{m.round})
	if cmd != nil {
		t.Error("it looks while it is paused")
	}
	wants(t, screen(t, m), "PAUSED")
	m, cmd = do(t, m, key("p"))
	if cmd == nil {
		t.Fatal("it does not go on")
	}
	if _, ok := cmd().(sampleMsg); !ok || d.looks != 1 || !m.looking {
		t.Errorf("going on did not look at once: %d looks", d.looks)
	}
}

// With NO_COLOR there is no colour, and the words still say how it stands.
func TestNoColour(t *testing.T) {
	t.Parallel()
	colour := regexp.MustCompile(`\x1b\[[0-9;]*[349][0-7]m`)
	for name, environ := range map[string][]string{"colour": nil, "none": {"NO_COLOR=1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			var out bytes.Buffer
			m := newModel(ctx, &desk{sample: busy()}, "db", time.Minute)
			p := tea.NewProgram(m, tea.WithOutput(&out), tea.WithInput(nil), tea.WithWindowSize(80, 24),
				tea.WithEnvironment(append(environ, "TERM=xterm-256color", "TTY_FORCE=1")), tea.WithoutSignalHandler(),
				tea.WithFilter(func(_ tea.Model, msg tea.Msg) tea.Msg {
					if _, ok := msg.(sampleMsg); ok {
						time.AfterFunc(0, cancel)
					}
					return msg
				}), tea.WithContext(context.WithoutCancel(ctx)))
			go func() {
				<-ctx.Done()
				p.Quit()
			}()
			if _, err := p.Run(); err != nil {
				t.Fatal(err)
			}
			if got := colour.Match(out.Bytes()); got != (environ == nil) {
				t.Errorf("colour: %v in %q", got, out.String())
			}
			if !strings.Contains(out.String(), "CRITICAL") {
				t.Errorf("no word says how it stands: %q", out.String())
			}
		})
	}
}

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// printJSON writes v for programs, and for people who pipe it nowhere.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}

// printLine writes v as one line of JSON.
func printLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}

// printTable writes rows under a head, in columns.
func printTable(w io.Writer, head []string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(head, "\t"))
	for _, row := range rows {
		for i := range row {
			row[i] = oneLine(row[i])
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}

// oneLine quotes text with control characters: a message must not move the reader's cursor, or look like two.
func oneLine(s string) string {
	if strings.ContainsFunc(s, unicode.IsControl) {
		return strconv.Quote(s)
	}
	return s
}

// cut shortens s to n characters.
func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

func value[T any](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}

func moment(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// progress tells on stderr how far a long job is: on a terminal in one line that is rewritten, elsewhere in a line every ten seconds.
type progress struct {
	w        io.Writer
	terminal bool
	last     time.Time
	shown    bool
}

func newProgress(w io.Writer) *progress {
	return &progress{w: w, terminal: isTerminal(w), last: time.Now()}
}

func (p *progress) show(format string, args ...any) {
	interval, form := 10*time.Second, "%s\n"
	if p.terminal {
		interval, form = 200*time.Millisecond, "\r%s\x1b[K"
	}
	if time.Since(p.last) < interval {
		return
	}
	p.last, p.shown = time.Now(), true
	fmt.Fprintf(p.w, form, fmt.Sprintf(format, args...))
}

// done leaves the rewritten line, so that what follows begins a new one.
func (p *progress) done() {
	if p.terminal && p.shown {
		fmt.Fprintln(p.w)
	}
	p.shown = false
}

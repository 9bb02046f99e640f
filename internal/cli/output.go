package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"golang.org/x/term"
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

// page is what every list prints with -o json, and what the API answers with.
type page[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"nextCursor"` // for --after; null after the last page
}

// printPage writes a page for programs: no rows are [] and not null, whatever a store calls them.
func printPage[T any](w io.Writer, rows []T, next string) error {
	p := page[T]{Items: rows}
	if rows == nil {
		p.Items = []T{}
	}
	if next != "" {
		p.NextCursor = &next
	}
	return printJSON(w, p)
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

// printTable writes rows under a head, in columns. A terminal shows of each what fits into a line; -o json has all.
func printTable(w io.Writer, head []string, rows [][]string) error {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(head, "\t"))
	for _, row := range rows {
		for i := range row {
			row[i] = oneLine(row[i])
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	_ = t.Flush() // into memory
	width := columns(w)
	for line := range strings.Lines(text.String()) {
		if width > 0 {
			line = cut(strings.TrimRight(line, " \n"), width) + "\n"
		}
		if _, err := io.WriteString(w, line); err != nil {
			return fmt.Errorf("print result: %w", err)
		}
	}
	return nil
}

// columns are those of a terminal; 0: it is none.
func columns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
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

// detail is one line about a thing that is shown by itself; one without a text is left out.
type detail struct{ name, text string }

func (a *application) printDetails(details []detail) error {
	for _, d := range details {
		if d.text == "" {
			continue
		}
		if _, err := fmt.Fprintf(a.Out, "%-15s %s\n", d.name, oneLine(d.text)); err != nil {
			return fmt.Errorf("print result: %w", err)
		}
	}
	return nil
}

// history is an error history, a line an entry.
func history(raw json.RawMessage) (lines []detail) {
	var entries []struct{ Error, Timestamp string }
	if err := json.Unmarshal(raw, &entries); err != nil {
		return []detail{{"error history", string(raw)}} // not as we write it
	}
	for i, e := range entries {
		lines = append(lines, detail{"", e.Timestamp + "  " + e.Error})
		if i == 0 {
			lines[0].name = "error history"
		}
	}
	return lines
}

// counted is "1 letter" or "2 letters".
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
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

// progress tells on stderr how far a long job is: on a terminal in one line that is rewritten, elsewhere in a line
// every ten seconds.
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

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"golang.org/x/term"
)

// printJSON writes v for programs, and for people who pipe it nowhere.
func printJSON(w io.Writer, v any) error { return encode(w, v, "  ") }

// printLine writes v as one line of JSON.
func printLine(w io.Writer, v any) error { return encode(w, v, "") }

func encode(w io.Writer, v any, indent string) error {
	e := json.NewEncoder(w)
	e.SetIndent("", indent)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}

// printResult prints what a command did: v for programs, or a line for people.
func (a *application) printResult(form string, v any, format string, args ...any) error {
	if form == "json" {
		return printJSON(a.Out, v)
	}
	if _, err := fmt.Fprintf(a.Out, format+"\n", args...); err != nil {
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

// list is what a command that lists something prints.
type list[T any] struct {
	items []T
	next  string // with which --after goes on, "": these are all
	none  string // what stderr says where there are none, if anything
	head  string // names of columns, with commas between
	cells func(T) []any
}

// print prints the page for programs, or the table for people.
func (l list[T]) print(a *application, form string) error {
	if form == "json" {
		return printPage(a.Out, l.items, l.next)
	}
	rows := make([][]any, len(l.items))
	for i, item := range l.items {
		rows[i] = l.cells(item)
	}
	if err := a.printRows(l.head, rows); err != nil {
		return err
	}
	switch {
	case len(rows) == 0 && l.none != "":
		fmt.Fprintln(a.Err, l.none)
	case l.next != "":
		fmt.Fprintf(a.Err, "there are more: add --after %s\n", l.next)
	}
	return nil
}

// printRows writes rows of any values under a head, whose names have commas between.
func (a *application) printRows(head string, rows [][]any) error {
	texts := make([][]string, len(rows))
	for i, row := range rows {
		for _, v := range row {
			texts[i] = append(texts[i], text(v))
		}
	}
	return printTable(a.Out, strings.Split(head, ","), texts)
}

// printTable writes rows under a head, in columns. A terminal shows of each what fits into a line;
// -o json has all.
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

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// text is a value as people read it: nothing is "", a time is in UTC.
func text(v any) string {
	switch v := v.(type) {
	case time.Time:
		return v.UTC().Format("2006-01-02T15:04:05.000Z")
	case json.RawMessage:
		return string(v)
	case bool:
		return map[bool]string{true: "yes"}[v]
	}
	if p := reflect.ValueOf(v); p.Kind() == reflect.Pointer {
		if p.IsNil() {
			return ""
		}
		return text(p.Elem().Interface())
	}
	return fmt.Sprint(v)
}

// oneLine quotes text with control characters: a message must not move the reader's cursor, or look
// like two.
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
type detail struct {
	name string
	of   any
}

func (a *application) printDetails(details ...detail) error {
	for _, d := range details {
		said := text(d.of)
		if said == "" {
			continue
		}
		if _, err := fmt.Fprintf(a.Out, "%-15s %s\n", d.name, oneLine(said)); err != nil {
			return fmt.Errorf("print result: %w", err)
		}
	}
	return nil
}

// under are details of which the first alone has a name.
func under(name string, lines []string) (all []detail) {
	for _, line := range lines {
		all = append(all, detail{name, line})
		name = ""
	}
	return all
}

// history is an error history, a line an entry.
func history(raw json.RawMessage) []detail {
	var entries []struct{ Error, Timestamp string }
	if err := json.Unmarshal(raw, &entries); err != nil {
		return []detail{{"error history", raw}} // not as we write it
	}
	var lines []string
	for _, e := range entries {
		lines = append(lines, e.Timestamp+"  "+e.Error)
	}
	return under("error history", lines)
}

// counted is "1 letter" or "2 letters".
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// seconds prints a time as people say it: 0.3 s, 2m5s.
func seconds(s *float64) string {
	switch {
	case s == nil:
		return ""
	case *s < 100:
		return fmt.Sprintf("%.1f s", *s)
	}
	return time.Duration(*s * float64(time.Second)).Round(time.Second).String()
}

// progress tells on stderr how far a long job is: on a terminal in one line that is rewritten,
// elsewhere in a line every ten seconds.
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

// gauge draws how much is done.
func gauge(done, total int) string {
	const width = 20
	full := width
	if total > 0 {
		full = min(width*done/total, width)
	}
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}

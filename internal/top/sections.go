package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/outboxrelay/outbox/internal/admin"
	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// section is a table on the screen. The first name of its head is its title.
type section struct {
	head []string
	none string // what stands there without rows
	rows []row
}

// row is a line, and what else is known of it: names and values by turns.
type row struct {
	bad     condition.Severity
	cells   []string
	more    []string
	blocked *admin.Blocked
}

// sectionsOf lays a sample out: the same sections in the same order whatever is in it.
func sectionsOf(s Sample) []section {
	return []section{conditions(s), tables(s), sinks(s), blocked(s), letters(s), relays(s)}
}

func conditions(s Sample) section {
	out := section{head: []string{"CONDITIONS", "SEVERITY", "CAUSE"}, none: "none"}
	means := map[string]string{}
	for i := range condition.Catalogue {
		means[condition.Catalogue[i].ID] = condition.Catalogue[i].Means
	}
	for _, f := range s.Findings {
		out.rows = append(out.rows, row{f.Severity, []string{f.ID, f.Severity.String(), f.Says},
			[]string{"name", f.Name, "since", moment(f.Since), "means", means[f.ID], "do", f.Remedy, "see", f.See}, nil})
	}
	return out
}

func tables(s Sample) section {
	out := section{head: []string{"TABLES", "SINK", "WAITING", "OLDEST", "WRITTEN/S", "DELIVERED/S", "RETRY", "HELD"},
		none: "none are seen"}
	for _, t := range s.Tables {
		r := row{0, []string{t.Table, t.Sink, count(t.Backlog, t.Bounded), age(t.Oldest), rate(t.WrittenPerSecond),
			rate(t.DeliveredPerSecond), strconv.Itoa(t.Retrying), strconv.Itoa(t.Held)},
			[]string{"held keys", strconv.Itoa(t.HeldKeys), "free lanes", strconv.Itoa(t.FreeLanes),
				"lapsed lanes", strconv.Itoa(t.LapsedLanes)}, nil}
		if t.Hidden {
			r.cells[2] = "hidden"
		}
		if t.Paused {
			r.cells[0], r.bad = t.Table+" (paused)", condition.Warning
			r.more = append(r.more, "see", "outbox pauses")
		}
		out.rows = append(out.rows, r)
	}
	return out
}

func sinks(s Sample) section {
	out := section{head: []string{"SINKS", "STATE", "OWED", "OLDEST", "RETRY", "DEAD", "WHY"},
		none: "none are known: give --config with the relay's settings"}
	for _, k := range s.Sinks {
		r := row{0, []string{k.Name, "ready", strconv.Itoa(k.Owed), age(k.Oldest), strconv.Itoa(k.Retrying),
			strconv.Itoa(k.Dead), k.Reason},
			[]string{"url", k.URL, "since", moment(k.Since), "owed of", strings.Join(k.Tables, ", ")}, nil}
		if !k.Ready {
			r.cells[1], r.bad = "DOWN", condition.Critical
		}
		out.rows = append(out.rows, r)
	}
	return out
}

func blocked(s Sample) section {
	out := section{head: []string{"BLOCKED KEYS", "TABLE", "TOPIC", "FAILURES", "NEXT TRY", "LAST ERROR"}, none: "none"}
	for i := range s.Blocked {
		b := &s.Blocked[i]
		out.rows = append(out.rows, row{condition.Warning, []string{operate.Text(b.Key), b.Table, b.Topic,
			strconv.Itoa(b.Attempts), moment(b.NextRetryAt), operate.Text(b.LastError)},
			[]string{"event", b.ID.String(), "tenant", operate.Text(b.Tenant), "written", moment(b.WrittenAt),
				"do", "outbox why " + b.ID.String()}, b})
	}
	return out
}

// behindLines say what waits behind a blocked event.
func behindLines(waiting []operate.EventRow, err error) []string {
	if err != nil {
		return []string{"", "what waits behind it is not known: " + plain(err.Error())}
	}
	lines := []string{"", fmt.Sprintf("%s of its key behind it:", count(len(waiting), len(waiting) == behindLooked))}
	for _, e := range waiting {
		lines = append(lines, plain(fmt.Sprintf("  %s  %s  written %s", e.ID, e.Topic, moment(e.WrittenAt))))
	}
	return lines
}

func letters(s Sample) section {
	out := section{head: []string{"LETTERS", "COUNT", "REASON", "TYPE", "NEWEST", "ERROR"}, none: "none are pending"}
	for _, g := range s.Groups {
		out.rows = append(out.rows, row{condition.Warning, []string{g.Fingerprint, strconv.Itoa(g.Count), g.Reason, g.Type,
			moment(&g.Newest), g.Sample},
			[]string{"oldest", moment(&g.Oldest), "do", "outbox dlq list --fingerprint " + g.Fingerprint}, nil})
	}
	if len(s.Groups) == 0 && s.Letters.Pending > 0 {
		out.none = count(s.Letters.Pending, s.Letters.Bounded) + " are pending"
	}
	return out
}

func relays(s Sample) section {
	out := section{head: []string{"RELAYS", "TABLE", "LANES", "SHARE", "LEASE", "SINCE"}, none: "no relay is alive"}
	for _, t := range s.Tables {
		for _, v := range t.Relays {
			r := row{0, []string{v.Name, t.Table, strconv.Itoa(v.Lanes), strconv.Itoa(v.Share),
				fmt.Sprintf("%.0f s", v.ExpiresIn), moment(&v.JoinedAt)}, []string{"owner", v.Owner.String()}, nil}
			if v.ExpiresIn <= 0 {
				r.bad, r.cells[4] = condition.Warning, "lapsed"
			}
			out.rows = append(out.rows, r)
		}
	}
	return out
}

// detail is all that is known of a row: its cells, and what else there is.
func (s section) detail(r row) []string {
	lines := []string{plain(s.head[0] + "  " + r.cells[0])}
	say := func(name, value string) {
		if value != "" {
			lines = append(lines, fmt.Sprintf("%-13s %s", strings.ToLower(name), plain(value)))
		}
	}
	for i, cell := range r.cells[1:] {
		say(s.head[i+1], cell)
	}
	for i := 0; i < len(r.more); i += 2 {
		say(r.more[i], r.more[i+1])
	}
	return lines
}

// plain has no control characters: a text from outside must not move the cursor.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, s)
}

// moment is a time of day, and where that is another one the day.
func moment(at *time.Time) string {
	switch {
	case at == nil || at.IsZero():
		return ""
	case at.Year() >= 9999:
		return "never"
	case time.Since(*at).Abs() < 12*time.Hour:
		return at.UTC().Format(time.TimeOnly)
	}
	return at.UTC().Format("Jan 02 15:04")
}

func age(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	d := time.Duration(*seconds * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func rate(perSecond *float64) string {
	if perSecond == nil {
		return "-"
	}
	return strconv.FormatFloat(*perSecond, 'f', 1, 64)
}

// count is a number, and + where there are more.
func count(n int, more bool) string {
	if more {
		return strconv.Itoa(n) + "+"
	}
	return strconv.Itoa(n)
}

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

// row is a line, and what is known of it.
type row struct {
	cells   []string
	bad     condition.Severity
	detail  []string
	blocked *admin.Blocked
}

// sectionsOf lays a sample out: the same sections in the same order whatever is in it.
func sectionsOf(s Sample) []section {
	return []section{conditions(s), tables(s), sinks(s), blocked(s), letters(s), relays(s)}
}

func conditions(s Sample) section {
	out := section{head: []string{"CONDITIONS", "", ""}, none: "none"}
	means := map[string]string{}
	for i := range condition.Catalogue {
		means[condition.Catalogue[i].ID] = condition.Catalogue[i].Means
	}
	for _, f := range s.Findings {
		out.rows = append(out.rows, row{cells: []string{f.ID, f.Severity.String(), f.Says}, bad: f.Severity,
			detail: details(f.ID+"  "+f.Name, "severity", f.Severity.String(), "about", f.About, "since", moment(f.Since),
				"cause", f.Says, "means", means[f.ID], "do", f.Remedy, "see", f.See)})
	}
	return out
}

func tables(s Sample) section {
	out := section{head: []string{"TABLES", "SINK", "WAITING", "OLDEST", "WRITTEN/S", "DELIVERED/S", "RETRY", "HELD"},
		none: "none are seen"}
	for _, t := range s.Tables {
		waiting := count(t.Backlog, t.Bounded)
		if t.Hidden {
			waiting = "hidden"
		}
		r := row{cells: []string{t.Table, t.Sink, waiting, age(t.Oldest), rate(t.WrittenPerSecond),
			rate(t.DeliveredPerSecond), strconv.Itoa(t.Retrying), strconv.Itoa(t.Held)}}
		state := "open"
		if t.Paused {
			r.cells[0], r.bad, state = t.Table+" (paused)", condition.Warning, "paused by an operator: outbox pauses"
		}
		r.detail = details(t.Table, "state", state, "waiting", waiting, "oldest", age(t.Oldest),
			"held", fmt.Sprintf("%d events behind those of %d keys that are tried again", t.Held, t.HeldKeys),
			"relays", strconv.Itoa(len(t.Relays)), "free lanes", strconv.Itoa(t.FreeLanes),
			"lapsed lanes", strconv.Itoa(t.LapsedLanes))
		out.rows = append(out.rows, r)
	}
	return out
}

func sinks(s Sample) section {
	out := section{head: []string{"SINKS", "STATE", "OWED", "OLDEST", "RETRYING", "DEAD", "WHY"},
		none: "none are known: give --config with the relay's settings"}
	for _, k := range s.Sinks {
		r := row{cells: []string{k.Name, "ready", strconv.Itoa(k.Owed), age(k.Oldest), strconv.Itoa(k.Retrying),
			strconv.Itoa(k.Dead), k.Reason}}
		if !k.Ready {
			r.cells[1], r.bad = "DOWN", condition.Critical
		}
		r.detail = details(k.Name, "url", k.URL, "state", r.cells[1], "why", k.Reason, "since", moment(k.Since),
			"owed", strconv.Itoa(k.Owed), "oldest", age(k.Oldest), "tables", strings.Join(k.Tables, ", "))
		out.rows = append(out.rows, r)
	}
	return out
}

func blocked(s Sample) section {
	out := section{head: []string{"BLOCKED KEYS", "TABLE", "TOPIC", "FAILURES", "NEXT TRY", "LAST ERROR"}, none: "none"}
	for i := range s.Blocked {
		b := &s.Blocked[i]
		out.rows = append(out.rows, row{bad: condition.Warning, blocked: b,
			cells: []string{text(b.Key), b.Table, b.Topic, strconv.Itoa(b.Attempts), moment(b.NextRetryAt), text(b.LastError)},
			detail: details(b.ID.String(), "key", text(b.Key), "topic", b.Topic, "table", b.Table, "tenant", text(b.Tenant),
				"written", moment(b.WrittenAt), "failures", strconv.Itoa(b.Attempts), "next try", moment(b.NextRetryAt),
				"last error", text(b.LastError), "do", "outbox why "+b.ID.String())})
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
		out.rows = append(out.rows, row{bad: condition.Warning,
			cells: []string{g.Fingerprint, strconv.Itoa(g.Count), g.Reason, g.Type, moment(&g.Newest), g.Sample},
			detail: details(g.Fingerprint, "letters", strconv.Itoa(g.Count), "reason", g.Reason, "type", g.Type,
				"oldest", moment(&g.Oldest), "newest", moment(&g.Newest), "error", g.Sample,
				"do", "outbox dlq list --fingerprint "+g.Fingerprint)})
	}
	if len(s.Groups) == 0 && s.Letters.Pending > 0 {
		out.none = count(s.Letters.Pending, s.Letters.Bounded) + " are pending"
	}
	return out
}

func relays(s Sample) section {
	out := section{head: []string{"RELAYS", "TABLE", "LANES", "SHARE", "LEASE", "SINCE"}, none: "no relay is alive"}
	for _, t := range s.Tables {
		for _, r := range t.Relays {
			line := row{cells: []string{r.Name, t.Table, strconv.Itoa(r.Lanes), strconv.Itoa(r.Share),
				fmt.Sprintf("%.0f s", r.ExpiresIn), moment(&r.JoinedAt)}}
			if r.ExpiresIn <= 0 {
				line.bad, line.cells[4] = condition.Warning, "lapsed"
			}
			line.detail = details(r.Name, "table", t.Table, "owner", r.Owner.String(), "lanes", line.cells[2],
				"share", line.cells[3], "lease", line.cells[4], "since", line.cells[5])
			out.rows = append(out.rows, line)
		}
	}
	return out
}

// details are a title, and a line for each name and value that is not "".
func details(title string, pairs ...string) []string {
	lines := []string{plain(title)}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			lines = append(lines, fmt.Sprintf("%-13s %s", pairs[i], plain(pairs[i+1])))
		}
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

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func moment(at *time.Time) string {
	switch {
	case at == nil || at.IsZero():
		return ""
	case at.Year() >= 9999:
		return "never"
	}
	return at.UTC().Format("15:04:05") + day(*at)
}

// day is "" for today.
func day(at time.Time) string {
	if time.Since(at).Abs() < 12*time.Hour {
		return ""
	}
	return at.UTC().Format(" Jan 02")
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

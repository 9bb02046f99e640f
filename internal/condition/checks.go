package condition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// at is a single finding, with the severity and the remedy of its condition.
func at(about, format string, args ...any) []Finding {
	return []Finding{{About: about, Says: fmt.Sprintf(format, args...)}}
}

func ignored(_ context.Context, x *Examination) (found []Finding, err error) {
	for _, name := range x.Config.Ignored() {
		found = append(found, at(name, "the variable %s is no setting of any command and is ignored", name)...)
	}
	return found, nil
}

func windowShort(_ context.Context, x *Examination) (found []Finding, err error) {
	if text := x.Config.ShortWindow(config.Serving); text != "" {
		found = at("dedup-window", "%s", text)
	}
	return found, nil
}

func routesOdd(_ context.Context, x *Examination) (found []Finding, err error) {
	for _, text := range x.Config.RouteWarnings(config.Serving) {
		found = append(found, at("routes", "%s", text)...)
	}
	return found, nil
}

func databaseAway(ctx context.Context, x *Examination) ([]Finding, error) {
	err := x.DBErr
	if err == nil && x.DB != nil {
		err = x.DB.Ping(ctx)
	}
	if err == nil {
		return nil, nil
	}
	return at("database", "the database does not answer: %v", err), nil
}

func plaintext(ctx context.Context, x *Examination) ([]Finding, error) {
	machine, err := x.DB.Plaintext(ctx)
	if err != nil || machine == "" {
		return nil, err
	}
	return at(machine, "PostgreSQL is on another machine (%s) and connections to it have no TLS", machine), nil
}

func pooled(ctx context.Context, x *Examination) ([]Finding, error) {
	between, err := x.DB.Pooled(ctx)
	if err != nil || !between {
		return nil, err
	}
	return at("database", "the database's URL leads to a pooler and not to PostgreSQL itself"), nil
}

func migrations(ctx context.Context, x *Examination) (found []Finding, err error) {
	if x.Migrations == nil {
		return nil, errNothing
	}
	sets, err := x.Migrations(ctx)
	for _, s := range sets {
		switch {
		case s.Dirty:
			found = append(found, at(s.Set, "the migrations of %s have stopped half way, at version %d",
				s.Set, s.Current)...)
		case len(s.Pending) > 0:
			found = append(found, at(s.Set, "set %s is at version %d of %d", s.Set, s.Current, s.Latest)...)
		}
	}
	return found, err
}

// Why a table cannot be opened by a relay.
func unfit(err error) bool {
	_, schema := errors.AsType[*outbox.SchemaError](err)
	return schema
}
func forbidden(err error) bool { return errors.Is(err, outbox.ErrNotAllowed) }
func hidden(err error) bool    { return errors.Is(err, outbox.ErrRowsHidden) }

// opening looks which tables a relay could not open, for one reason.
func opening(because func(error) bool) check {
	return func(_ context.Context, x *Examination) (found []Finding, err error) {
		tables, err := x.opened()
		for _, t := range tables {
			missing, schema := errors.AsType[*outbox.SchemaError](t.err)
			absent := schema && len(missing.Missing) == 0 && missing.Table == t.Name() && !t.Required
			switch {
			case t.err == nil, absent:
			case because(t.err):
				found = append(found, at(t.Name(), "%v", t.err)...)
			case !unfit(t.err) && !forbidden(t.err) && !hidden(t.err):
				err = t.err
			}
		}
		return found, err
	}
}

func noRelay(_ *Examination, t *served) []Finding {
	if alive(t.lanes.Relays) > 0 {
		return nil
	}
	process, remedy := t.process()
	_, n := t.undelivered()
	f := at(t.Name(), "no %s serves %s, where %s", process, t.Name(), t.waiting())
	if n == 0 {
		f = at(t.Name(), "no %s serves %s; nothing waits there", process, t.Name())
		f[0].Severity = Warning
	}
	f[0].Remedy = remedy
	return f
}

// process names the processes that may serve a table. If they are those of a group, it also returns
// how to start one: a relay would be refused.
func (s *served) process() (name, remedy string) {
	group, ok := strings.CutPrefix(s.lanes.Reader, "group:")
	if !ok || !s.Layout.KeepsState() {
		return "relay", ""
	}
	return "process of group " + group, "start a process of the group, and not a relay; if sinks are to have the " +
		"events, see outbox lanes reader --help"
}

// waiting says how many events wait, and for how long the first.
func (s *served) waiting() string {
	oldest, n := s.undelivered()
	text := many(n, "event") + wait(n)
	if s.lanes.Bounded {
		text = fmt.Sprintf("%d events or more wait", n)
	}
	if oldest > 0 {
		text += ", the oldest for " + lasting(oldest)
	}
	return text
}

func many(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func wait(n int) string {
	if n == 1 {
		return " waits"
	}
	return " wait"
}

// lasting is a time as people say it.
func lasting(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	case d < time.Second:
		return "less than a second"
	case d >= time.Minute:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return d.Round(100 * time.Millisecond).String()
}

func alive(relays []operate.RelayView) (n int) {
	for _, r := range relays {
		if r.ExpiresIn > 0 {
			n++
		}
	}
	return n
}

// settling is how long relays that have just come may take to share the lanes.
const settling = 30 * time.Second

func lanesUnheld(x *Examination, t *served) []Finding {
	settled := slices.ContainsFunc(t.lanes.Relays, func(r operate.RelayView) bool {
		return r.ExpiresIn > 0 && x.Now().Sub(r.JoinedAt) > min(settling, x.Limits.Late)
	})
	unheld, waiting := 0, 0
	for _, l := range t.lanes.Lanes {
		if l.State != "held" {
			unheld, waiting = unheld+1, waiting+l.Backlog
		}
	}
	if !settled || unheld == 0 {
		return nil
	}
	return at(t.Name(), "%d of %d lanes of %s are held by no relay; relays alive: %d; events that wait there: %d",
		unheld, outbox.LaneCount, t.Name(), alive(t.lanes.Relays), waiting)
}

func relayAlone(_ *Examination, t *served) []Finding {
	if alive(t.lanes.Relays) != 1 {
		return nil
	}
	process, remedy := t.process()
	f := at(t.Name(), "one %s alone serves %s", process, t.Name())
	f[0].Remedy = remedy
	return f
}

// vanishing is how many relays of a table are too many to be gone without a word. Each is
// remembered for a minute.
const vanishing = 3

func relaysVanish(_ *Examination, t *served) []Finding {
	var gone []string
	for _, r := range t.lanes.Relays {
		if r.ExpiresIn <= 0 {
			gone = append(gone, r.Name)
		}
	}
	if len(gone) < vanishing {
		return nil
	}
	return at(t.Name(), "%d relays of %s have vanished of late: %s", len(gone), t.Name(), strings.Join(gone, "; "))
}

// settingsDiffer compares what relays have recorded, and the fingerprints of the command's relays.
func settingsDiffer(ctx context.Context, x *Examination) (found []Finding, err error) {
	found, err = ofTables(sinksDiffer)(ctx, x)
	fingerprints, failed := query("condition_settings")(ctx, x)
	if errors.Is(failed, errNothing) { // SQLite keeps no list of sessions
		failed = nil
	}
	return append(found, fingerprints...), errors.Join(err, failed)
}

// sinksDiffer compares the relays that have all served a table for longer than a deployment takes.
func sinksDiffer(x *Examination, t *served) (found []Finding) {
	var first operate.RelayView
	seen := map[string]bool{"": true}
	for _, r := range t.lanes.Relays {
		if r.ExpiresIn <= 0 || x.Now().Sub(r.JoinedAt) <= x.Limits.Differ || seen[r.Serves] {
			continue
		}
		seen[r.Serves] = true
		if first.Serves == "" {
			first = r
			continue
		}
		later := first.JoinedAt
		if r.JoinedAt.After(later) {
			later = r.JoinedAt
		}
		found = append(found, Finding{About: t.Name(), Since: &later, Says: fmt.Sprintf("relay %q and relay %q of %s have "+
			"different sinks or routes for %s: only the first has %s; only the second has %s", first.Name, r.Name, t.Name(),
			lasting(x.Now().Sub(later)), onlyIn(first.Serves, r.Serves), onlyIn(r.Serves, first.Serves))})
	}
	return found
}

// onlyIn returns the lines of a text that another lacks.
func onlyIn(text, other string) string {
	there := strings.Split(other, "\n")
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return slices.Contains(there, line) })
	if len(lines) == 0 {
		return "nothing more"
	}
	return strings.Join(lines, ", ")
}

func laneSuspect(_ *Examination, t *served) (found []Finding) {
	for _, l := range t.lanes.Lanes {
		switch {
		case !l.Suspect:
		case l.TrialEvent != nil:
			found = append(found, at(t.Name(), "%d relays died at lane %d of %s; event %s is tried alone",
				l.Crashes, l.Lane, t.Name(), l.TrialEvent)...)
		default:
			found = append(found, at(t.Name(), "%d relays died at lane %d of %s; its events are tried %d at a time",
				l.Crashes, l.Lane, t.Name(), max(l.TrialSize, 1))...)
		}
	}
	return found
}

func relayHindered(_ context.Context, x *Examination) (found []Finding, err error) {
	all, err := x.troubles()
	for _, t := range all {
		if t.Relay != "" && t.Why != "" {
			found = append(found, Finding{About: t.Relay, Since: t.Since,
				Says: fmt.Sprintf("relay %s does not serve %s: %s", t.Relay, t.Of, t.Why)})
		}
	}
	return found, err
}

func eventsLate(x *Examination, t *served) []Finding {
	if oldest, _ := t.undelivered(); oldest <= x.Limits.Late {
		return nil
	}
	return at(t.Name(), "events of %s are late: %s", t.Name(), t.waiting())
}

// failing returns the events of a table that wait for their next attempt, the oldest first: at most
// a thousand.
func (s *served) failing(ctx context.Context) ([]operate.EventRow, error) {
	retrying := 0
	for _, l := range s.lanes.Lanes {
		retrying += l.Retrying
	}
	if retrying == 0 || s.lanes.Hidden || !s.Layout.KeepsState() {
		return nil, nil
	}
	state := s.Layout.Retrying
	switch {
	case s.Layout.Status == "":
		state = "retry"
	case state == "":
		state = s.Layout.Pending
	}
	rows, _, err := s.browser.List(ctx, operate.Filter{Statuses: []string{state}, Limit: 1000})
	slices.Reverse(rows)
	return slices.DeleteFunc(rows, func(r operate.EventRow) bool { return r.NextRetryAt == nil }), err
}

func keyBlocked(ctx context.Context, x *Examination) (found []Finding, err error) {
	all, err := x.tables()
	for i := range all {
		t := &all[i]
		held, keys := 0, 0
		for _, l := range t.lanes.Lanes {
			held, keys = held+l.Held, keys+l.HeldKeys
		}
		if held == 0 {
			continue
		}
		rows, err := t.failing(ctx)
		if err != nil {
			return found, err
		}
		f := Finding{About: t.Name(), Says: fmt.Sprintf("in %s %s of %s%s behind one that fails", t.Name(),
			many(held, "event"), many(keys, "key"), wait(held))}
		for _, r := range rows {
			if r.Key != nil {
				f.Since = r.WrittenAt
				f.Says += fmt.Sprintf("; the first is %s of key %s (%s): %s", r.ID, *r.Key,
					many(r.Attempts, "failure"), text(r.LastError))
				break
			}
		}
		found = append(found, f)
	}
	return found, err
}

func text(s *string) string {
	if s == nil || *s == "" {
		return "no error is recorded"
	}
	return *s
}

func eventParked(ctx context.Context, x *Examination) (found []Finding, err error) {
	all, err := x.tables()
	for i := range all {
		rows, err := all[i].failing(ctx)
		if err != nil {
			return found, err
		}
		for _, r := range rows {
			if r.NextRetryAt.Sub(x.Now()) > x.Limits.Forgotten {
				when := "never tried again"
				if r.NextRetryAt.Year() < 9999 {
					when = "not tried before " + r.NextRetryAt.UTC().Format(time.DateTime)
				}
				found = append(found, Finding{About: all[i].Name(), Since: r.WrittenAt,
					Says:   fmt.Sprintf("event %s of %s is %s", r.ID, all[i].Name(), when),
					Remedy: fmt.Sprintf("outbox events retry %s --table %s", r.ID, all[i].Name())})
			}
		}
	}
	return found, err
}

func paused(ctx context.Context, x *Examination) (found []Finding, err error) {
	opened, err := x.DB.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	all, err := opened.Pauses(ctx)
	for _, p := range all {
		what := p.Table
		for prefix, name := range map[string]string{"topic ": p.Topic, "destination ": p.Destination, "sink ": p.To} {
			if name != "" {
				what = strings.TrimSuffix(prefix+name+" of "+p.Table, " of ")
			}
		}
		f := Finding{About: what, Since: &p.At, Says: fmt.Sprintf("%s is paused since %s by %s: %s", what,
			p.At.UTC().Format(time.DateTime), p.Actor, p.Reason)}
		if x.Now().Sub(p.At) < x.Limits.Forgotten {
			f.Severity = Notice
		}
		found = append(found, f)
	}
	return found, err
}

// crowd is how many events must wait before anybody is said to crowd, and crowding which part of
// them is too much.
const (
	crowd    = 1000
	crowding = 0.8
)

// kept looks at the tables from which the settings remove nothing.
func kept(ctx context.Context, x *Examination) (found []Finding, err error) {
	all, err := queryTables("condition_kept")(ctx, x)
	return slices.DeleteFunc(all, func(f Finding) bool {
		age, _ := x.Config.RetentionOf(f.About)
		return age > 0
	}), err
}

// memoryShort looks for consumers that forget before rows are removed, from which events can be
// replayed.
func memoryShort(ctx context.Context, x *Examination) ([]Finding, error) {
	tables, err := x.Config.Tables()
	if err != nil {
		return nil, err
	}
	q := x.asks()
	for _, t := range tables {
		if age, _ := x.Config.RetentionOf(t.Name()); t.Layout.Settle == "" || t.Layout.Settle == outbox.SettleMark {
			q.KeptSeconds = max(q.KeptSeconds, age.Seconds())
		}
	}
	q.Of = []string{"outbox_inbox_consumers"}
	return x.run(ctx, "condition_inbox", q)
}

func tenantCrowds(ctx context.Context, x *Examination) (found []Finding, err error) {
	all, err := x.tables()
	for i := range all {
		t := &all[i]
		if _, n := t.undelivered(); n < crowd || t.Layout.Tenant == "" && t.Layout.App == "" {
			continue
		}
		shares, err := t.browser.Backlog(ctx, operate.BacklogQuery{By: "tenant", Shares: 1, Count: counted})
		if err != nil {
			return found, err
		}
		if len(shares.Shares) == 0 || shares.Total < 2 || shares.Shares[0].Value == nil {
			continue
		}
		if most := shares.Shares[0]; float64(most.Waiting) > crowding*float64(shares.Counted) {
			found = append(found, at(t.Name(), "%d of %d events that wait in %s are those of tenant %s", most.Waiting,
				shares.Counted, t.Name(), *most.Value)...)
		}
	}
	return found, err
}

// lettersCounted is how many pending letters are counted.
const lettersCounted = 10_000

func lettersPending(ctx context.Context, x *Examination) (found []Finding, err error) {
	all, err := x.DB.PendingLetters(ctx, lettersCounted)
	total := 0
	for _, p := range all {
		of := p.Table
		if of == "" {
			of = p.Source + "s"
		}
		total += p.Letters
		says := many(p.Letters, "dead letter") + " of " + of
		switch {
		case total >= lettersCounted:
			says = fmt.Sprintf("%d dead letters or more of %s are pending", p.Letters, of)
		case p.Letters == 1:
			says += " is pending"
		default:
			says += " are pending"
		}
		found = append(found, at(of, "%s", says)...)
	}
	return found, err
}

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
	return at("database", "the database does not answer: %s", shortly(err)), nil
}

// shortly returns the first cause of an error that lists several attempts to connect, a line each.
func shortly(err error) string {
	said := strings.ReplaceAll(err.Error(), "context deadline exceeded", "no answer in time")
	first, attempts, several := strings.Cut(said, "\n")
	if !several {
		return first
	}
	first, _, _ = strings.Cut(first, ": failed to connect")
	attempt, _, _ := strings.Cut(strings.TrimSpace(attempts), "\n")
	if _, cause, ok := strings.Cut(attempt, "): "); ok {
		attempt = cause
	}
	return first + ": " + attempt
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

// migrations reports the sets that no migration has recorded. The recorded ones are
// schemaOutdated's.
func migrations(ctx context.Context, x *Examination) (found []Finding, err error) {
	if x.Migrations == nil {
		return nil, errNothing
	}
	facts, err := x.facts()
	if err != nil {
		return nil, err
	}
	sets, err := x.Migrations(ctx)
	for _, s := range sets {
		_, recorded := facts.Sets[s.Set]
		if recorded || len(s.Pending) == 0 || s.Current == 0 {
			continue
		}
		found = append(found, at(s.Set, "set %s is at version %d of %d", s.Set, s.Current, s.Latest)...)
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

// errObserver is the reason why a relay's rights are not checked for a login of an operator,
// reader, gateway or consumer.
var errObserver = errors.New("this login is not a relay's; run doctor with the relay's login to check " +
	"its tables and rights")

// opening looks which tables a relay could not open, for one reason.
func opening(because func(error) bool, unlessRelay error) check {
	return func(_ context.Context, x *Examination) (found []Finding, err error) {
		if facts, err := x.facts(); err == nil && facts.Observer {
			return nil, unlessRelay
		}
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
	facts, err := x.facts()
	if err != nil {
		return nil, err
	}
	waits := map[string]int{}
	for _, q := range facts.Queues {
		waits[q.Table] = max(waits[q.Table], q.Waiting)
	}
	all, err := x.tables(false)
	for i := range all {
		t := &all[i]
		if waits[t.Name()] < crowd || t.Layout.Tenant == "" && t.Layout.App == "" {
			continue
		}
		b, err := x.DB.Browser(ctx, t.Layout)
		if err != nil {
			return found, err
		}
		shares, err := b.Backlog(ctx, operate.BacklogQuery{By: "tenant", Shares: 1, Count: counted})
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

// text returns an error text, or that none is recorded.
func text(s *string) string {
	if s == nil || *s == "" {
		return "no error is recorded"
	}
	return *s
}

// settingsDiffer compares the fingerprints of the settings of the command's relays.
func settingsDiffer(ctx context.Context, x *Examination) ([]Finding, error) {
	found, err := query("condition_settings")(ctx, x)
	if errors.Is(err, errNothing) { // SQLite keeps no list of sessions
		err = nil
	}
	return found, err
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
)

func (a *application) dlq() *cobra.Command {
	mapping := config.Mapping()
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Look at dead letters, replay and discard them",
		Long: `dlq works on the dead letters in job_dlq: deliveries that could not arrive, one a destination, and jobs
that failed for good.

    outbox dlq stats                             what is wrong, by kind of error
    outbox dlq list --fingerprint 3f2a…          which letters that concerns
    outbox dlq show ID                           one letter: payload, every error
    outbox dlq replay --fingerprint 3f2a… --dry-run    what putting them back would do
    outbox dlq replay --fingerprint 3f2a…        put them back, once the cause is gone
    outbox dlq discard ID --reason "test data"   do not put it back
    outbox dlq collect                           letters of rows that were set dead by hand
    outbox dlq audit                             who did what

A letter is pending until it is replayed or discarded. The database role must be a member of outbox_operator
(made by outbox migrate roles), or speak for one tenant, named with --tenant.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usagef("say what to do: list, show, stats, replay, discard, collect, purge or audit")
		},
	}
	cmd.PersistentFlags().AddFlagSet(mapping)
	cmd.AddCommand(a.listLetters(mapping), a.showLetter(mapping), a.letterStats(mapping), a.replayLetters(mapping),
		a.discardLetters(mapping),
		a.collectLetters(mapping), a.purgeLetters(mapping), a.listActions(mapping))
	return cmd
}

// openLetters opens the dead letters of the database and runs fn.
func (a *application) openLetters(
	ctx context.Context, c config.Config, fn func(app.Database, deadletter.Store) error,
) error {
	db, err := app.OpenDatabase(ctx, c.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	var layouts []outbox.Layout
	for _, t := range c.Known() {
		layouts = append(layouts, t.Layout)
	}
	d, err := db.Letters(ctx, layouts)
	if err != nil {
		return err
	}
	if err = fn(db, d); errors.Is(err, deadletter.ErrFilter) {
		return usageError{err}
	}
	return err
}

// letterFlags are the flags that choose letters.
type letterFlags struct {
	deadletter.Filter
	source, state, since, until string
	request                     string
	set                         *pflag.FlagSet
}

func (f *letterFlags) addTo(flags *pflag.FlagSet) {
	f.set = pflag.NewFlagSet("filter", pflag.ContinueOnError)
	f.set.StringVar(&f.source, "source", "", "`what` died: event or job")
	f.set.StringVar(&f.Reason, "error-reason", "",
		"`reason` code of the letters, for instance DeliveryFailed or MaxRetries")
	f.set.StringVar(&f.Type, "type", "", "event `topic`, or type of the job, or a pattern in which * stands for any text")
	f.set.StringVar(&f.Tenant, "tenant", "", "`tenant` whose letters to take: its namespace or its application's id")
	f.set.StringVar(&f.Key, "key", "", "`key` of the events: the aggregate's or the run's id")
	f.set.StringVar(&f.request, "request-id", "",
		"`request` that they are of: a UUID, of the job or of the event's metadata")
	f.set.StringVar(&f.Table, "table", "", "outbox `table` that they come from")
	f.set.StringVar(&f.Destination, "destination", "", "`channel` that they did not reach, or a pattern likewise")
	f.set.StringVar(&f.since, "since", "", "`time` from which on they died: RFC 3339, or how long ago, as 90m or 7d")
	f.set.StringVar(&f.until, "until", "", "`time` before which they died, likewise")
	f.set.StringVar(&f.Error, "error", "", "`text` that one of their errors contains, in any case")
	f.set.StringVar(&f.Fingerprint, "fingerprint", "", "`fingerprint` of their last error, as outbox dlq stats prints it")
	f.set.SortFlags = false
	flags.AddFlagSet(f.set)
	flags.SortFlags = false
}

func (f *letterFlags) filter() (deadletter.Filter, error) {
	if err := checkFilters(f.set); err != nil {
		return f.Filter, err
	}
	f.Source, f.State = deadletter.Source(f.source), deadletter.State(f.state)
	var err error
	if f.request != "" {
		if f.RequestID, err = uuid.Parse(f.request); err != nil {
			return f.Filter, usagef("--request-id is %q, want a UUID", f.request)
		}
	}
	if f.Since, err = parseMoment("since", f.since); err != nil {
		return f.Filter, err
	}
	if f.Until, err = parseMoment("until", f.until); err != nil {
		return f.Filter, err
	}
	return f.Filter, checkSpan(f.Since, f.Until)
}

// none says on stderr what was looked for in vain. A table that the settings do not know is an error.
func (f *letterFlags) none(a *application, c config.Config, text string) error {
	if f.Table != "" && f.Table != outbox.DeliveriesOf("", "").Table {
		if _, err := c.Find(f.Table); err != nil {
			return err
		}
	}
	fmt.Fprintln(a.Err, text+lookedFor(f.set))
	return nil
}

// given returns the names of the filters that the command line has.
func (f *letterFlags) given() (names []string) {
	f.set.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed { // it was parsed as one of the command's: this set does not know
			names = append(names, flag.Name)
		}
	})
	return names
}

// selectionFlags choose the letters that something is done with.
type selectionFlags struct {
	letterFlags
	all bool
}

func (f *selectionFlags) addTo(flags *pflag.FlagSet) {
	f.letterFlags.addTo(flags)
	flags.BoolVar(&f.all, "all", false, "take every pending letter")
}

// selection refuses a command line that names no letters: it could mean all of them.
func (f *selectionFlags) selection(args []string) (s deadletter.Selection, err error) {
	given := f.given()
	filtered := len(given) > 0
	if len(args) > 0 && slices.Equal(given, []string{"tenant"}) {
		filtered = false // with ids it says whom to speak for
	}
	switch {
	case len(args) == 0 && !filtered && !f.all:
		return s, usagef("say which letters: ids, filter flags such as --fingerprint, or --all")
	case len(args) > 0 && (filtered || f.all), filtered && f.all:
		return s, usagef("ids, filter flags and --all contradict each other: use one of them")
	}
	s.All = f.all
	if s.Filter, err = f.filter(); err != nil {
		return s, err
	}
	for _, arg := range args {
		id, err := uuid.Parse(arg)
		if err != nil {
			return s, usagef("%q is no letter's id, which is a UUID as outbox dlq list prints it", arg)
		}
		s.IDs = append(s.IDs, id)
	}
	return s, nil
}

// operatorFlags say who acts.
type operatorFlags struct{ deadletter.Operator }

func (f *operatorFlags) addTo(flags *pflag.FlagSet, reason string) {
	flags.StringVar(&f.Actor, "actor", "", "`who` does this, for the record (default: the system's user@host)")
	flags.StringVar(&f.Reason, "reason", "", "`why`, for the record"+reason)
}

func (f *operatorFlags) operator() deadletter.Operator {
	if f.Actor == "" {
		f.Actor = app.Actor()
	}
	return f.Operator
}

// parseMoment takes a time, or an age.
func parseMoment(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	age, err := parseAge(text)
	if err != nil {
		return time.Time{},
			usagef("--%s is %q, want RFC 3339 such as 2025-01-31T12:00:00Z, or how long ago, such as 90m or 7d", flag, text)
	}
	return time.Now().Add(-age), nil
}

// parseAge is time.ParseDuration with days.
func parseAge(text string) (time.Duration, error) {
	if number, ok := strings.CutSuffix(text, "d"); ok {
		days, err := strconv.Atoi(number)
		if err != nil || days < 0 || days > 36500 {
			return 0, fmt.Errorf("%q is no number of days", text)
		}
		return time.Duration(days) * 24 * time.Hour, nil
	}
	age, err := time.ParseDuration(text)
	if err == nil && age < 0 {
		err = fmt.Errorf("%q is negative", text)
	}
	return age, err
}

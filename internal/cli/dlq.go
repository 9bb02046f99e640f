package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/admin"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
)

func (a *application) dlq() *cobra.Command {
	mapping := config.Mapping()
	cmd := group("dlq", a.listLetters(mapping), a.showLetter(mapping), a.letterStats(mapping), a.replayLetters(mapping),
		a.discardLetters(mapping), a.collectLetters(mapping), a.purgeLetters(mapping))
	cmd.PersistentFlags().AddFlagSet(mapping)
	return cmd
}

// letters are the open dead letters of a database.
type letters struct {
	deadletter.Store
	c  config.Config
	db app.Database
}

// onLetters opens the dead letters for cmd and runs fn.
func (a *application) onLetters(cmd *cobra.Command, mapping *pflag.FlagSet, fn func(letters) error) error {
	if err := checkFilters(cmd.Flags()); err != nil {
		return err
	}
	return a.onDatabase(cmd.Context(), func(c config.Config, db app.Database) error {
		d, err := admin.Letters(cmd.Context(), c, db)
		if err != nil {
			return err
		}
		if err = fn(letters{d, c, db}); errors.Is(err, deadletter.ErrFilter) {
			return usageError{err}
		}
		return err
	}, mapping)
}

// letterFlags are the flags that choose letters.
type letterFlags struct {
	deadletter.Filter
	set *pflag.FlagSet
}

func (f *letterFlags) addTo(flags *pflag.FlagSet) {
	f.set = pflag.NewFlagSet("filter", pflag.ContinueOnError)
	f.set.SortFlags = false
	f.set.StringVar((*string)(&f.Source), "source", "", "`name` of the kind: event or job")
	f.set.StringVar(&f.Reason, "error-reason", "", "`name` of the error, such as DeliveryFailed or MaxRetries")
	f.set.StringVar(&f.Type, "topic", "", "`pattern` of the event's topic or the job's type")
	f.set.StringVar(&f.Tenant, "tenant", "", "`name` of the tenant")
	f.set.StringVar(&f.Key, "key", "", "key of the event")
	uuidFlag(f.set, &f.RequestID, "request-id", "request of the job, or of the event's metadata")
	f.set.StringVar(&f.Table, "table", "", "`name` of the outbox table")
	f.set.StringVar(&f.Destination, "destination", "", "`pattern` of the destination")
	spanFlags(f.set, &f.Since, &f.Until, "the deaths")
	f.set.StringVar(&f.Error, "error", "", "part of one of the errors, in any case")
	f.set.StringVar(&f.Fingerprint, "fingerprint", "", "`id` of the last error, from outbox dlq stats")
	f.set.VisitAll(isFilter)
	flags.AddFlagSet(f.set)
}

// none says on stderr what was looked for in vain. A table that the settings do not know is an
// error.
func (f *letterFlags) none(a *application, c config.Config, text string) error {
	if f.Table != "" && f.Table != admin.Deliveries {
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

func (a *application) listLetters(mapping *pflag.FlagSet) *cobra.Command {
	var f letterFlags
	cmd := command("dlq list", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		if err := checkSpan(f.Since, f.Until); err != nil {
			return err
		}
		return a.onLetters(cmd, mapping, func(d letters) error {
			found, next, err := d.List(cmd.Context(), f.Filter)
			if err != nil {
				return err
			}
			if len(found) == 0 {
				none := "no such dead letters"
				if filtered := len(f.given()) > 0 || f.After != ""; !filtered && f.State == deadletter.StateAll {
					none = "no dead letters"
				} else if !filtered {
					none = "no " + string(f.State) + " dead letters"
				}
				if err := f.none(a, d.c, none); err != nil {
					return err
				}
			}
			return list[deadletter.Letter]{found, next, "", "ID,DIED,STATE,FROM,TYPE,KEY,TENANT,DESTINATION,REASON," +
				"ATTEMPTS,LAST ERROR", letterCells}.print(a, d.c.Output)
		})
	})
	f.addTo(cmd.Flags())
	cmd.Flags().StringVar((*string)(&f.State), "state", "pending",
		"`name` of the state: pending, replayed, discarded or all")
	pageFlags(cmd.Flags(), &f.Limit, &f.After, 10000, "dead letters")
	return cmd
}

func letterCells(l deadletter.Letter) []any {
	from := l.Table
	if l.Source == deadletter.SourceJob {
		from = "(job)"
	}
	return []any{l.ID, l.At, l.State, from, l.Type, l.Key, l.Tenant, l.Destination, l.Reason, l.Attempts,
		cut(l.LastError, 60)}
}

func (a *application) showLetter(mapping *pflag.FlagSet) *cobra.Command {
	var tenant string
	cmd := command("dlq show", cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		ids, err := parseIDs(args, "id, which is a UUID")
		if err != nil {
			return err
		}
		return a.onLetters(cmd, mapping, func(d letters) error {
			found, err := d.Show(cmd.Context(), ids[0], tenant)
			if errors.Is(err, deadletter.ErrNoLetter) {
				return fmt.Errorf("%w, nor one of an event or a job with this id: see outbox dlq list --state all", err)
			}
			if err != nil {
				return err
			}
			if d.c.Output == "json" {
				return printPage(a.Out, found, "")
			}
			for i, l := range found {
				if i > 0 {
					fmt.Fprintln(a.Out)
				}
				if err := a.printLetter(l); err != nil {
					return err
				}
			}
			return nil
		})
	})
	cmd.Flags().StringVar(&tenant, "tenant", "", "`name` of the tenant, where row-level security requires it")
	return cmd
}

func (a *application) printLetter(l deadletter.Letter) error {
	return a.printDetails(slices.Concat([]detail{
		{"id", l.ID}, {"died", l.At}, {"state", l.State}, {"source", l.Source},
		{string(l.Source) + " id", l.OriginalID},
		{"type", l.Type}, {"tenant", l.Tenant}, {"user", l.UserID}, {"request", l.RequestID}, {"table", l.Table},
		{"destination", l.Destination}, {"key", l.Key}, {"position", l.Position}, {"reason", l.Reason},
		{"attempts", l.Attempts}, {"replays before", l.Generation}, {"replayed", l.ReplayedAt},
		{"discarded", l.DiscardedAt}, {"discarded for", l.DiscardReason}, {"last error", l.LastError},
		{"fingerprint", l.Fingerprint}}, history(l.ErrorHistory), []detail{{"payload", l.Payload}})...)
}

func (a *application) letterStats(mapping *pflag.FlagSet) *cobra.Command {
	var f letterFlags
	cmd := command("dlq stats", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		if err := checkSpan(f.Since, f.Until); err != nil {
			return err
		}
		return a.onLetters(cmd, mapping, func(d letters) error {
			stats, err := d.Stats(cmd.Context(), f.Filter)
			if err != nil {
				return err
			}
			if len(stats.Groups) == 0 && len(f.given()) > 0 {
				if err := f.none(a, d.c, "no such dead letters"); err != nil {
					return err
				}
			}
			if stats.Groups == nil {
				stats.Groups = []deadletter.Group{} // in JSON an empty list, not null
			}
			if err := a.printResult(d.c.Output, stats, "%d pending, %d replayed, %d discarded", stats.Pending,
				stats.Replayed, stats.Discarded); err != nil || d.c.Output == "json" || len(stats.Groups) == 0 {
				return err
			}
			if more := stats.AllGroups - len(stats.Groups); more > 0 {
				fmt.Fprintf(a.Err, "%d of %d groups are shown; --limit shows more\n", len(stats.Groups), stats.AllGroups)
			}
			head := "DEAD LETTERS,FINGERPRINT,TYPES,OLDEST,NEWEST,ERROR OF THE NEWEST"
			return list[deadletter.Group]{items: stats.Groups, head: head, cells: func(g deadletter.Group) []any {
				var types []string
				for _, t := range g.Types {
					types = append(types, fmt.Sprintf("%s %s (%s): %d", t.Source, t.Type, t.Reason, t.Count))
				}
				return []any{g.Count, g.Fingerprint, cut(strings.Join(types, ", "), 60), g.Oldest, g.Newest, cut(g.Sample, 60)}
			}}.print(a, d.c.Output)
		})
	})
	f.addTo(cmd.Flags())
	cmd.Flags().StringVar((*string)(&f.State), "state", "pending",
		"`name` of the state: pending, replayed, discarded or all")
	countFlag(cmd.Flags(), &f.Limit, "limit", 20, 1, 10000, "number of groups, the largest first")
	return cmd
}

func (a *application) audit() *cobra.Command {
	var f deadletter.ActionFilter
	mapping := config.Mapping()
	cmd := command("audit", cobra.NoArgs, func(cmd *cobra.Command, _ []string) (err error) {
		return a.onLetters(cmd, mapping, func(d letters) error {
			actions, next, err := deadletter.Actions(cmd.Context(), d, f)
			if err != nil {
				return err
			}
			return list[deadletter.Action]{actions, next, "", "AT,ACTOR,LOGIN,ACTION,LETTERS,CHOSEN BY,REASON",
				func(e deadletter.Action) []any {
					chosen := cut(string(e.Filter), 80)
					if chosen == "{}" {
						chosen = "all"
					}
					return []any{e.At, e.Actor, e.Login, e.Action, e.Letters, chosen, e.Reason}
				}}.print(a, d.c.Output)
		})
	})
	cmd.Flags().StringVar(&f.Action, "action", "",
		"`name` of the action, such as replay, discard, retry or skip")
	cmd.Flags().StringVar(&f.Actor, "actor", "", "`name` of the operator")
	spanFlags(cmd.Flags(), &f.Since, &f.Until, "the actions")
	pageFlags(cmd.Flags(), &f.Limit, &f.After, 10000, "entries")
	cmd.Flags().AddFlagSet(mapping)
	return cmd
}

// selectionFlags choose the letters that something is done with.
type selectionFlags struct {
	letterFlags
	all bool
}

func (f *selectionFlags) addTo(flags *pflag.FlagSet) {
	f.letterFlags.addTo(flags)
	flags.BoolVar(&f.all, "all", false, "selection of all pending dead letters")
}

// selection refuses a command line that names no letters: it could mean all of them.
func (f *selectionFlags) selection(args []string) (s deadletter.Selection, err error) {
	if err := cmp.Or(checkFilters(f.set), checkSpan(f.Since, f.Until)); err != nil {
		return s, err
	}
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
	var ids []uuid.UUID
	ids, err = parseIDs(args, "letter's id, which is a UUID as outbox dlq list prints it")
	return deadletter.Selection{IDs: ids, All: f.all, Filter: f.Filter}, err
}

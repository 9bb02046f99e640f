package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
)

// letterPage is a page of letters, and what it ends with for --after.
type letterPage struct {
	Letters []deadletter.Letter
	Next    string
}

func (a *application) listLetters(mapping *pflag.FlagSet) *cobra.Command {
	var f letterFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters",
		Long: `list prints dead letters, the newest first. Where there are more, it prints how to see the next page.

Without --state it shows the pending ones. Several filters must all hold.`,
		Example: `  outbox dlq list
  outbox dlq list --type order.placed --since 2h
  outbox dlq list --error timeout --tenant acme --state all -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, filter, err := a.letterFilter(&f, mapping)
			if err != nil {
				return err
			}
			var page letterPage
			err = a.openLetters(cmd.Context(), c, func(_ app.Database, d deadletter.Store) (err error) {
				page.Letters, page.Next, err = d.List(cmd.Context(), filter)
				return err
			})
			if err != nil {
				return err
			}
			none := "no such dead letters"
			switch filtered := len(f.given()) > 0 || filter.After != ""; {
			case !filtered && f.state == "all":
				none = "no dead letters"
			case !filtered:
				none = "no " + f.state + " dead letters"
			}
			if len(page.Letters) == 0 {
				if err := f.none(a, c, none); err != nil {
					return err
				}
			}
			if c.Output == "json" {
				return printPage(a.Out, page.Letters, page.Next)
			}
			return a.printLetters(page)
		},
	}
	f.addTo(cmd.Flags())
	cmd.Flags().StringVar(&f.state, "state", "pending", "`state` of the letters: pending, replayed, discarded or all")
	cmd.Flags().IntVar(&f.Limit, "limit", 50, "`letters` a page")
	cmd.Flags().StringVar(&f.After, "after", "", "`place` where the previous page ended, as it was printed under it")
	return cmd
}

// letterFilter checks what list and stats are asked for.
func (a *application) letterFilter(
	f *letterFlags, mapping *pflag.FlagSet,
) (c config.Config, filter deadletter.Filter, err error) {
	if filter, err = f.filter(); err != nil {
		return c, filter, err
	}
	if f.Limit < 1 || f.Limit > 10000 {
		return c, filter, usagef("--limit is %d, must be between 1 and 10000", f.Limit)
	}
	c, err = a.settings(config.Database, mapping)
	return c, filter, err
}

func (a *application) printLetters(page letterPage) error {
	var rows [][]string
	for _, l := range page.Letters {
		from := l.Table
		if l.Source == deadletter.SourceJob {
			from = "(job)"
		}
		rows = append(rows, []string{l.ID.String(), moment(&l.At), string(l.State), from, l.Type, l.Key, l.Tenant,
			l.Destination, l.Reason,
			fmt.Sprint(l.Attempts), cut(l.LastError, 60)})
	}
	if err := printTable(a.Out, []string{"ID", "DIED", "STATE", "FROM", "TYPE", "KEY", "TENANT", "DESTINATION", "REASON",
		"ATTEMPTS", "LAST ERROR"}, rows); err != nil {
		return err
	}
	if page.Next != "" {
		fmt.Fprintf(a.Err, "there are more: add --after %s\n", page.Next)
	}
	return nil
}

func (a *application) showLetter(mapping *pflag.FlagSet) *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Print one dead letter with its payload and errors",
		Long: `show prints everything about the letter with this id. With the id of an event or a job it prints all
letters of it: an event has one for each destination that it did not reach, and each time it died.`,
		Example: `  outbox dlq show 01890a5d-ac96-774b-bcce-b302099a8057
  outbox dlq show 01890a5d-ac96-774b-bcce-b302099a8057 -o json | jq '.items[0].payload'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFilters(cmd.Flags()); err != nil {
				return err
			}
			id, err := uuid.Parse(args[0])
			if err != nil {
				return usagef("%q is no id, which is a UUID", args[0])
			}
			c, err := a.settings(config.Database, mapping)
			if err != nil {
				return err
			}
			var letters []deadletter.Letter
			err = a.openLetters(cmd.Context(), c, func(_ app.Database, d deadletter.Store) (err error) {
				letters, err = d.Show(cmd.Context(), id, tenant)
				return err
			})
			if errors.Is(err, deadletter.ErrNoLetter) {
				return fmt.Errorf("%w, nor one of an event or a job with this id: see outbox dlq list --state all", err)
			}
			if err != nil {
				return err
			}
			if c.Output == "json" {
				return printPage(a.Out, letters, "")
			}
			for i, l := range letters {
				if i > 0 {
					fmt.Fprintln(a.Out)
				}
				if err := a.printLetter(l); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "`tenant` to speak for, where row-level security asks for one")
	return cmd
}

func (a *application) printLetter(l deadletter.Letter) error {
	return a.printDetails(slices.Concat([]detail{
		{"id", l.ID.String()}, {"died", moment(&l.At)}, {"state", string(l.State)}, {"source", string(l.Source)},
		{string(l.Source) + " id", l.OriginalID.String()},
		{"type", l.Type}, {"tenant", l.Tenant}, {"user", value(l.UserID)}, {"request", value(l.RequestID)},
		{"table", l.Table}, {"destination", l.Destination},
		{"key", l.Key}, {"position", value(l.Position)}, {"reason", l.Reason}, {"attempts", fmt.Sprint(l.Attempts)},
		{"replays before", fmt.Sprint(l.Generation)},
		{"replayed", moment(l.ReplayedAt)}, {"discarded", moment(l.DiscardedAt)}, {"discarded for", l.DiscardReason},
		{"last error", l.LastError}, {"fingerprint", l.Fingerprint}}, history(l.ErrorHistory),
		[]detail{{"payload", string(l.Payload)}}))
}

func (a *application) letterStats(mapping *pflag.FlagSet) *cobra.Command {
	var f letterFlags
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Count dead letters by kind of error",
		Long: `stats says how many letters there are in which state, and groups the pending ones, or those of --state,
by what is wrong with them: the fingerprint of their last error, their reason and their type. Errors that differ
only in numbers, ids, hexadecimal or quoted text have the same fingerprint, so "refused 10.0.0.3:6379" and
"refused 10.0.0.4:6379" are one group. The filters can be given to list, replay and discard as they are. One
fingerprint may stand in several groups: --fingerprint with --type and --error-reason is one of them.`,
		Example: `  outbox dlq stats
  outbox dlq stats --since 24h --limit 5 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, filter, err := a.letterFilter(&f, mapping)
			if err != nil {
				return err
			}
			var stats deadletter.Stats
			err = a.openLetters(cmd.Context(), c, func(_ app.Database, d deadletter.Store) (err error) {
				stats, err = d.Stats(cmd.Context(), filter)
				return err
			})
			if err != nil {
				return err
			}
			if len(stats.Groups) == 0 && len(f.given()) > 0 {
				if err := f.none(a, c, "no such dead letters"); err != nil {
					return err
				}
			}
			if c.Output == "json" {
				if stats.Groups == nil {
					stats.Groups = []deadletter.Group{}
				}
				return printJSON(a.Out, stats)
			}
			fmt.Fprintf(a.Out, "%d pending, %d replayed, %d discarded\n", stats.Pending, stats.Replayed, stats.Discarded)
			if len(stats.Groups) == 0 {
				return nil
			}
			var rows [][]string
			for _, g := range stats.Groups {
				rows = append(rows, []string{fmt.Sprint(g.Count), g.Fingerprint, string(g.Source), g.Reason, g.Type,
					moment(&g.Oldest), moment(&g.Newest), cut(g.Sample, 60)})
			}
			return printTable(a.Out, []string{"LETTERS", "FINGERPRINT", "SOURCE", "REASON", "TYPE", "OLDEST", "NEWEST",
				"ERROR OF THE NEWEST"}, rows)
		},
	}
	f.addTo(cmd.Flags())
	cmd.Flags().StringVar(&f.state, "state", "pending",
		"`state` of the letters to group: pending, replayed, discarded or all")
	cmd.Flags().IntVar(&f.Limit, "limit", 20, "`groups` to show, the largest first")
	return cmd
}

// actionPage is a page of the record, and what it ends with for --after.
type actionPage struct {
	Actions []deadletter.Action
	Next    string
}

func (a *application) listActions(mapping *pflag.FlagSet) *cobra.Command {
	var f deadletter.ActionFilter
	var since, until string
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List what operators did",
		Long: `audit prints the record of what operators did, the newest first: when, who, what, to how many letters
or events. ACTOR is what the program was told (--actor), LOGIN who it was to the database. Then how they were chosen and why. It has replays, discards and purges of letters, retries and skips of
events, and the making and revoking of tokens. A replay or skip of many is one line, though it was several
transactions.`,
		Example: `  outbox dlq audit --since 7d
  outbox dlq audit --action discard -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if f.Limit < 1 || f.Limit > 10000 {
				return usagef("--limit is %d, must be between 1 and 10000", f.Limit)
			}
			if f.Since, err = parseMoment("since", since); err != nil {
				return err
			}
			if f.Until, err = parseMoment("until", until); err != nil {
				return err
			}
			c, err := a.settings(config.Database, mapping)
			if err != nil {
				return err
			}
			var page actionPage
			err = a.openLetters(cmd.Context(), c, func(_ app.Database, d deadletter.Store) (err error) {
				page.Actions, page.Next, err = deadletter.Actions(cmd.Context(), d, f)
				return err
			})
			if err != nil {
				return err
			}
			if c.Output == "json" {
				return printPage(a.Out, page.Actions, page.Next)
			}
			var rows [][]string
			for _, e := range page.Actions {
				chosen := cut(string(e.Filter), 80)
				if chosen == "{}" {
					chosen = "all"
				}
				rows = append(rows, []string{moment(&e.At), e.Actor, value(e.Login), e.Action, fmt.Sprint(e.Letters), chosen,
					value(e.Reason)})
			}
			heads := []string{"AT", "ACTOR", "LOGIN", "ACTION", "LETTERS", "CHOSEN BY", "REASON"}
			if err := printTable(a.Out, heads, rows); err != nil {
				return err
			}
			if page.Next != "" {
				fmt.Fprintf(a.Err, "there are more: add --after %s\n", page.Next)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&f.Action, "action", "", "`action` to show, for instance replay, discard, purge, retry or skip")
	cmd.Flags().StringVar(&f.Actor, "actor", "", "`who` did it")
	cmd.Flags().StringVar(&since, "since", "", "`time` from which on: RFC 3339, or how long ago, as 90m or 7d")
	cmd.Flags().StringVar(&until, "until", "", "`time` before which, likewise")
	cmd.Flags().IntVar(&f.Limit, "limit", 50, "`entries` a page")
	cmd.Flags().StringVar(&f.After, "after", "", "`place` where the previous page ended, as it was printed under it")
	cmd.Flags().SortFlags = false
	return cmd
}

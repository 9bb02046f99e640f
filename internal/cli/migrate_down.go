package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

func (a *application) migrateDown() *cobra.Command {
	var set string
	var steps int
	var all, lose bool
	var ask consent
	cmd := command("migrate down", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		if set == "" {
			return usagef("--set is required: name the one set whose newest migration is undone, of %s",
				strings.Join(allSets, ", "))
		}
		if all && cmd.Flags().Changed("steps") {
			return usagef("--steps and --all contradict each other")
		}
		which := fmt.Sprintf("the newest %s", counted(steps, "migration"))
		if all {
			steps, which = app.AllSteps, "all migrations"
		}
		c, err := a.migrationSettings(config.Database, set)
		if err != nil {
			return err
		}
		uses, err := usesOf(cmd.Context(), c, set)
		if err != nil {
			return fmt.Errorf("look for undelivered events: %w", err)
		}
		if len(uses) > 0 && !lose && !ask.dryRun {
			return fmt.Errorf("set %s is in use, and nothing was changed:\n  - %s\n"+
				"Stop the relays and let the events be delivered, or add --lose-undelivered", set,
				strings.Join(uses, "\n  - "))
		}
		says := fmt.Sprintf("%s of set %s will be undone, with the rows of their tables", which, set)
		for _, use := range uses {
			says += "\n  - " + use
		}
		plan := downPlan{set, steps, all, append([]string{}, uses...)}
		if sure, err := ask.confirm(cmd.Context(), a, c.Output, plan, says); err != nil || !sure {
			return err
		}
		return a.migrating(cmd.Context(), c, []string{set},
			func(ctx context.Context, m app.Migrations) error { return m.Down(ctx, steps, set) })
	})
	cmd.Flags().StringVar(&set, "set", "", "`name` of the set: core, events, crawl or log (required)")
	countFlag(cmd.Flags(), &steps, "steps", 1, 1, 0, "number of migrations to undo")
	cmd.Flags().BoolVar(&all, "all", false, "all migrations of the set")
	cmd.Flags().BoolVar(&lose, "lose-undelivered", false, "consent to the loss of undelivered events")
	ask.destroy(a, cmd)
	return cmd
}

// downPlan is the output of outbox migrate down --dry-run -o json.
type downPlan struct {
	Set   string   `json:"set"`
	Steps int      `json:"steps"`
	All   bool     `json:"all"`
	InUse []string `json:"inUse"` // reasons to refuse
}

// usesOf returns the undelivered events, pending deliveries and dead letters, subscriptions and
// running relays of a migration set, a sentence each. All tables depend on the set core.
func usesOf(ctx context.Context, c config.Config, set string) (uses []string, err error) {
	if file, ok := app.FileOf(c.Database); ok && !exists(file) {
		return nil, nil
	}
	add := func(format string, args ...any) { uses = append(uses, fmt.Sprintf(format, args...)) }
	err = withDatabase(ctx, c, func(db app.Database) error {
		for _, t := range c.Known() {
			if set != "core" && migration.SetOf[t.Layout.Table] != set {
				continue
			}
			undelivered, relays, err := useOf(ctx, db, t.Layout)
			switch {
			case errors.Is(err, outbox.ErrRowsHidden):
				add("row-level security hides the rows of %s from this role", t.Name())
			case err != nil:
				return err
			}
			if undelivered > 0 {
				add("%s has %s", t.Name(), counted(undelivered, "undelivered event"))
			}
			for _, relay := range relays {
				add("relay %q serves %s", relay, t.Name())
			}
		}
		if set == "core" || set == "log" {
			if err := subscriptionsInUse(ctx, db, add); err != nil {
				return err
			}
		}
		if set != "core" {
			return nil
		}
		debts, err := db.Debts(ctx)
		if err != nil {
			return absent(err)
		}
		for _, d := range debts {
			if d.Owed > 0 {
				add("sink %s has %d pending deliveries of %s", d.Sink, d.Owed, d.Table)
			}
		}
		letters, err := db.PendingLetters(ctx, countedForLanes)
		for _, l := range letters {
			add("job_dlq has %d pending dead letters of %s", l.Letters, l.Table)
		}
		return absent(err)
	})
	return uses, err
}

// absent returns nil for the error of a table that does not exist: it has nothing to lose.
func absent(err error) error {
	if _, missing := errors.AsType[*outbox.SchemaError](err); missing {
		return nil
	}
	return err
}

// useOf returns how many undelivered events a table has, counted up to countedForLanes, and the
// relays that serve it.
func useOf(ctx context.Context, db app.Database, layout outbox.Layout) (undelivered int, relays []string, err error) {
	b, err := db.Browser(ctx, layout)
	if err != nil {
		return 0, nil, absent(err)
	}
	report, err := b.Lanes(ctx, countedForLanes)
	if _, old := errors.AsType[*outbox.SchemaError](err); old { // a core without lanes
		undelivered, _, err = b.Undelivered(ctx, operate.Selection{All: true})
		return undelivered, nil, err
	}
	if report.Hidden {
		err = outbox.ErrRowsHidden
	}
	for _, r := range report.Relays {
		if r.ExpiresIn > 0 {
			relays = append(relays, r.Name)
		}
	}
	return report.Counted, relays, err
}

func subscriptionsInUse(ctx context.Context, db app.Database, add func(string, ...any)) error {
	s, err := db.Subscriptions(ctx)
	if errors.Is(err, app.ErrNoSubscriptions) {
		return nil
	}
	if err != nil {
		return err
	}
	all, err := s.List(ctx, "")
	for _, s := range all {
		if n := s.Behind + s.Outstanding; n > 0 {
			add("subscription %s has %s to receive or acknowledge", s.Name, counted(n, "event"))
		}
	}
	return err
}

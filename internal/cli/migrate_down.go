package cli

import (
	"cmp"
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
		if err != nil && !lose {
			return fmt.Errorf("look for undelivered events: %w", err)
		}
		if len(uses) > 0 && !lose && !ask.dryRun {
			return fmt.Errorf("undo migrations of set %s: it is in use, and nothing was changed:\n  - %s\n"+
				"stop the relays after they have delivered the events, or add --lose-undelivered", set,
				strings.Join(uses, "\n  - "))
		}
		says := fmt.Sprintf("%s of set %s will be undone, with the rows of their tables", which, set)
		for _, use := range uses {
			says += "\n  - " + use
		}
		plan := downPlan{set, steps, all, append([]string{}, uses...)}
		if all {
			plan.Steps = 0
		}
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
	Steps int      `json:"steps,omitempty"`
	All   bool     `json:"all"`
	InUse []string `json:"inUse"` // reasons to refuse
}

// usesOf returns the reasons not to undo a migration set, a sentence each: undelivered events,
// pending deliveries and dead letters, subscriptions that are behind, and running relays. All sets
// depend on core.
func usesOf(ctx context.Context, c config.Config, set string) (uses []string, err error) {
	if file, ok := app.FileOf(c.Database); ok && !exists(file) {
		return nil, nil
	}
	add := func(n int, format string, args ...any) {
		if n > 0 {
			uses = append(uses, fmt.Sprintf(format, args...))
		}
	}
	err = withDatabase(ctx, c, func(db app.Database) error {
		for _, t := range c.Known() {
			if set == "core" || migration.SetOf[t.Layout.Table] == set {
				if err := useOf(ctx, db, t.Layout, add); absent(err) != nil {
					return err
				}
			}
		}
		if s, err := db.Subscriptions(ctx); err == nil && (set == "core" || set == "log") {
			all, err := s.List(ctx, "")
			if err != nil {
				return err
			}
			for _, s := range all {
				n := s.Behind + s.Outstanding
				add(n, "subscription %s has %s to receive or acknowledge", s.Name, counted(n, "event"))
			}
		}
		if set != "core" {
			return nil
		}
		debts, err := db.Debts(ctx)
		for _, d := range debts {
			add(d.Owed, "sink %s has %d pending deliveries of %s", d.Sink, d.Owed, d.Table)
		}
		if absent(err) != nil {
			return err
		}
		letters, err := db.PendingLetters(ctx, countedForLanes)
		for _, l := range letters {
			add(l.Letters, "job_dlq has %s of %s", counted(l.Letters, "pending dead letter"), cmp.Or(l.Table, "jobs"))
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

// useOf adds a table's undelivered events, counted up to countedForLanes, and the relays that serve
// it.
func useOf(ctx context.Context, db app.Database, layout outbox.Layout, add func(int, string, ...any)) error {
	b, err := db.Browser(ctx, layout)
	if err != nil {
		return err
	}
	report, err := b.Lanes(ctx, countedForLanes)
	if err != nil && absent(err) == nil { // a core without lanes
		report.Counted, _, err = b.Undelivered(ctx, operate.Selection{All: true})
	}
	if report.Hidden {
		add(1, "row-level security hides the rows of %s from this role", layout.Table)
	}
	add(report.Counted, "%s has %s", layout.Table, counted(report.Counted, "undelivered event"))
	for _, r := range report.Relays {
		if r.ExpiresIn > 0 {
			add(1, "relay %q serves %s", r.Name, layout.Table)
		}
	}
	return err
}

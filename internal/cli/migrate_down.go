package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/condition"
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
// pending deliveries and dead letters, subscriptions that are behind, and running processes. All
// sets depend on core.
func usesOf(ctx context.Context, c config.Config, set string) (uses []string, err error) {
	if file, ok := app.FileOf(c.Database); ok && !exists(file) {
		return nil, nil
	}
	var facts operate.Facts
	err = withDatabase(ctx, c, func(db app.Database) (err error) {
		facts, err = db.Facts(ctx, condition.WatchKnown(c), countedForLanes)
		return err
	})
	add := func(n int, format string, args ...any) {
		if n > 0 {
			uses = append(uses, fmt.Sprintf(format, args...))
		}
	}
	core := set == "core"
	for i := range facts.Queues {
		q := &facts.Queues[i]
		if !core && migration.SetOf[q.Table] != set {
			continue
		}
		switch {
		case q.State != operate.Known && q.State != operate.NotInstalled:
			add(1, "the events of %s are not known: %s", q.Name, q.Why)
		case q.Sink != "":
			add(q.Waiting, "sink %s has %d pending deliveries of %s", q.Sink, q.Waiting, q.Table)
		default:
			add(q.Waiting, "%s has %s", q.Name, counted(q.Waiting, "undelivered event"))
		}
		for _, p := range q.Alive() {
			add(1, "%q serves %s", p.Name, q.Name)
		}
	}
	for _, s := range facts.Subscriptions {
		if core || set == "log" {
			add(s.Waiting, "subscription %s has %s to receive or acknowledge", s.Name, counted(s.Waiting, "event"))
		}
	}
	for _, l := range facts.DeadLetters {
		if core {
			add(l.Letters, "job_dlq has %s of %s", counted(l.Letters, "pending dead letter"), cmp.Or(l.Table, "jobs"))
		}
	}
	return uses, err
}

package cli

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/admin"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// valued are the values that a shell offers for a flag of this name, in whatever command.
var valued = map[string][]string{
	"table":     {"outbox_events", "event_outbox", "crawl_outbox", "outbox_log"},
	"output":    {"table", "json"},
	"log-level": {"debug", "info", "warn", "error"},
	"by":        {"tenant", "topic"},
	"format":    formatNames(),
	"for":       slices.Sorted(maps.Keys(needs)),
	"auth":      {"token", "none"},
	"set":       allSets,
	"state":     {"pending", "replayed", "discarded", "all"},
	"only":      conditions(),
	"skip":      conditions(),
}

func conditions() (names []string) {
	for _, category := range condition.Categories {
		names = append(names, string(category))
	}
	for _, c := range condition.Catalogue {
		names = append(names, c.ID)
	}
	return names
}

// complete has shells offer values: fixed ones, and names that the settings or the database know.
// Help lists flags in the order in which they were added.
func (a *application) complete(cmd *cobra.Command) {
	cmd.Flags().SortFlags, cmd.PersistentFlags().SortFlags = false, false
	var schemes []string
	for _, d := range a.kinds.Sinks.Drivers() {
		for _, scheme := range d.Schemes {
			schemes = append(schemes, scheme+":")
		}
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		offer := cobra.FixedCompletions(valued[f.Name], cobra.ShellCompDirectiveNoFileComp)
		switch _, path, _ := strings.Cut(cmd.CommandPath(), " "); {
		case f.Name == "sink" && config.IsSetting(f):
			offer = cobra.FixedCompletions(schemes, cobra.ShellCompDirectiveNoFileComp)
		case f.Name == "sink" || f.Name == "to" && path == "sinks move":
			offer = a.offer(sinkNames)
		case f.Name == "topic" && path != "write":
			offer = a.offer(topics)
		case f.Name == "status" && path == "runs list":
			offer = cobra.FixedCompletions([]string{"PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"},
				cobra.ShellCompDirectiveNoFileComp)
		case f.Name == "status":
			offer = a.offer(statuses)
		case valued[f.Name] == nil:
			return
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, offer)
	})
	switch _, path, _ := strings.Cut(cmd.CommandPath(), " "); path {
	case "sinks forget", "sinks move":
		cmd.ValidArgsFunction = a.offer(sinkNames)
	case "subscriptions remove", "subscriptions replay":
		cmd.ValidArgsFunction = a.offer(subscriptionNames)
	}
	for _, sub := range cmd.Commands() {
		a.complete(sub)
	}
}

// completeWithin is the time that a shell waits for names from the database.
const completeWithin = 2 * time.Second

// offer returns a completion that asks the database. It offers nothing if that fails.
func (a *application) offer(
	find func(ctx context.Context, cmd *cobra.Command, c config.Config, db app.Database) ([]string, error),
) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()
		c, err := config.Load(a.kinds, a.environ, a.global)
		if err == nil && c.Check(config.Database) == nil {
			_ = withDatabase(ctx, c, func(db app.Database) (err error) {
				names, err = find(ctx, cmd, c, db)
				return err
			})
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func sinkNames(ctx context.Context, _ *cobra.Command, c config.Config, db app.Database) ([]string, error) {
	return admin.SinkNames(ctx, c, db)
}

func subscriptionNames(ctx context.Context, _ *cobra.Command, _ config.Config, db app.Database) ([]string, error) {
	s, err := db.Subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.List(ctx, "")
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names, err
}

// opened opens the table of --table, or outbox_events, or the deliveries of --sink.
func opened(ctx context.Context, cmd *cobra.Command, c config.Config, db app.Database) (admin.View, error) {
	given := func(name string) string {
		if f := cmd.Flags().Lookup(name); f != nil && !config.IsSetting(f) {
			return f.Value.String()
		}
		return ""
	}
	return admin.Open(ctx, c, db, admin.Of{Table: cmp.Or(given("table"), "outbox_events"), Sink: given("sink")})
}

func statuses(ctx context.Context, cmd *cobra.Command, c config.Config, db app.Database) ([]string, error) {
	v, err := opened(ctx, cmd, c, db)
	if err != nil {
		return nil, err
	}
	return v.Statuses(), nil
}

// topics returns the topics with most undelivered events among the oldest 10,000.
func topics(ctx context.Context, cmd *cobra.Command, c config.Config, db app.Database) (names []string, err error) {
	v, err := opened(ctx, cmd, c, db)
	if err != nil {
		return nil, err
	}
	found, err := v.Backlog(ctx, operate.BacklogQuery{By: "topic", Shares: sharesShown, Count: 10_000})
	for _, s := range found.Shares {
		if s.Value != nil {
			names = append(names, *s.Value)
		}
	}
	return names, err
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

func (a *application) config() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the settings that are in effect, and what is wrong with them",
		Long: `config is about settings: flags, before environment variables, before the file of --config, before
defaults. It takes all flags of outbox serve and outbox runs, and only validate connects to the database. outbox init
writes a file with every setting.

    outbox config print                       each setting, its value, and what set it; secrets are masked
    outbox config validate --for relay        everything that would keep outbox relay from starting

A key of the file that nobody knows is a problem. Of a variable that begins with OUTBOX_ and is no setting there
is a warning, as it may be somebody else's. What Kubernetes sets for a Service called outbox is passed over.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return usagef("say what to do: print or validate") },
	}
	cmd.AddCommand(a.printConfig(), a.validateConfig())
	return cmd
}

// every returns the flags of all settings but the global ones, which every command has, and those of outbox serve and
// runs that are in no file.
func every() *pflag.FlagSet {
	fs := pflag.NewFlagSet("every", pflag.ContinueOnError)
	fs.SortFlags = false
	global := config.Global()
	config.All().VisitAll(func(f *pflag.Flag) {
		if global.Lookup(f.Name) == nil {
			fs.AddFlag(f)
		}
	})
	fs.AddFlagSet(config.ServeFlags())
	fs.AddFlagSet(config.Client())
	return fs
}

func (a *application) printConfig() *cobra.Command {
	settings := every()
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print each setting, its value and what set it",
		Long: `print shows the settings that are in effect with the flags, the variables and the file that it is
given. FROM is default, a line of the file, a variable or a flag. Of URLs it shows the server and no more, of a
token that there is one.`,
		Example: `  outbox config print
  outbox config print --config outbox.yaml -o json | jq '.settings[] | select(.from != "default")'`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := config.Load(a.kinds, a.environ, a.global, settings)
			if err != nil {
				return err
			}
			effective := c.Effective()
			// What is wrong comes after what is in effect: one looks at the one to understand the other.
			if c.Output == "json" {
				err = printJSON(a.Out, struct {
					Settings []config.Setting `json:"settings"`
				}{effective})
			} else {
				err = printTable(a.Out, []string{"SETTING", "VALUE", "FROM"}, settingRows(effective))
			}
			if err != nil {
				return err
			}
			return a.checked(&c, 0)
		},
	}
	cmd.Flags().AddFlagSet(settings)
	cmd.Flags().SortFlags = false
	return cmd
}

// unset is what stands for some settings that nobody has set, because it differs by table.
var unset = map[string]string{
	"max_attempts": "3 for crawl_outbox, 5 for others", "backoff_base": "200ms for crawl_outbox, 5s for others",
}

func settingRows(settings []config.Setting) (rows [][]string) {
	for _, s := range settings {
		value := plain(s.Value)
		if text, ok := unset[s.Name]; ok && s.From == "default" {
			value = text
		}
		from := s.From
		if s.Hides != "" {
			from += " (instead of " + s.Hides + ")"
		}
		rows = append(rows, []string{s.Name, value, from})
	}
	return rows
}

// plain is a setting's value as one would give it to its flag.
func plain(value any) string {
	switch v := value.(type) {
	case []string:
		return strings.Join(v, ",")
	case map[string]string:
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			pairs = append(pairs, name+"="+v[name])
		}
		return strings.Join(pairs, ",")
	case []any: // layouts, limits, retry, routes
		var texts []string
		for _, entry := range v {
			text, ok := entry.(string)
			if !ok {
				return fmt.Sprintf("a list of %d", len(v))
			}
			texts = append(texts, text)
		}
		return strings.Join(texts, ",")
	}
	return fmt.Sprint(value)
}

// needs are what the commands cannot do without; those that speak to the database and to nothing else are one.
var needs = map[string]config.Need{
	"serve": config.Parts, "relay": config.Database | config.Publishing | config.Serving | config.Retaining,
	"purge": config.Database | config.Retaining,
	"runs":  config.Asking, "tail": config.Tailing, "database": config.Database,
}

// validation is what `outbox config validate -o json` prints.
type validation struct {
	For      string   `json:"for"`
	Problems []string `json:"problems"`
}

func (a *application) validateConfig() *cobra.Command {
	settings := every()
	var command string
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Report everything that is wrong with the settings",
		Long: `validate reports every problem at once that would keep a command from starting: settings that are
missing, that cannot be, that do not go together, unknown keys of the file and misspelt variables. It exits with
2 if there is one, else with 0.

--for says what the settings are for: serve, relay, purge, runs, tail, or database for the commands that need
nothing but that: write, events, lanes, dlq, migrate and token. It warns, as a start does, of routes that no event
reaches, of tables some of whose events no route fits, and of a broker's wildcards (> and #).

For relay and serve it asks the database, where it answers within 3 s, which sinks events are owed to, and says
which of them these settings do not have. It asks no other server; outbox serve --listen tells what they say, at
/readyz.`,
		Example: `  outbox config validate --config outbox.yaml
  outbox config validate --for relay`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			need, ok := needs[command]
			if !ok {
				return usagef("--for is %q, want one of %s", command, strings.Join(slices.Sorted(maps.Keys(needs)), ", "))
			}
			c, err := config.Load(a.kinds, a.environ, a.global, settings)
			if err != nil {
				return err // the file itself: there is nothing to check
			}
			problems := []string{} // in JSON an empty list, not null
			err = a.checked(&c, need)
			if settings, ok := errors.AsType[*config.Error](err); ok {
				problems = settings.Problems
			}
			if settings, ok := errors.AsType[*config.Error](app.Check(c, command)); ok {
				problems = append(problems, settings.Problems...)
				err = &config.Error{Problems: problems}
			}
			switch {
			case c.Output == "json":
				err = errors.Join(printJSON(a.Out, validation{command, problems}), err)
			case err == nil:
				fmt.Fprintf(a.Out, "no problem with the settings for %s\n", command)
			}
			if err == nil && len(c.AllSinks()) > 0 && (command == "relay" || command == "serve") {
				a.compareDebts(cmd.Context(), c)
			}
			return err
		},
	}
	cmd.Flags().AddFlagSet(settings)
	cmd.Flags().StringVar(&command, "for", "serve",
		"`command` that is to run with them: "+strings.Join(slices.Sorted(maps.Keys(needs)), ", "))
	cmd.Flags().SortFlags = false
	return cmd
}

// compareDebts says which sinks the database has deliveries for and the settings have not. Of all others the relay
// serves what they owe, whatever its routes.
func (a *application) compareDebts(ctx context.Context, c config.Config) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	var debts []operate.Debt
	db, err := app.OpenDatabase(ctx, c.Database)
	if err == nil {
		defer db.Close()
		debts, err = db.Debts(ctx)
	}
	var old *outbox.SchemaError
	if errors.As(err, &old) {
		return // no sink can owe anything
	}
	if err != nil {
		fmt.Fprintf(a.Err, "what sinks are owed was not compared: %v\n", err)
	}
	for _, d := range debts {
		if d.Owed > 0 && !slices.ContainsFunc(c.AllSinks(), func(s config.Sink) bool { return s.Name == d.Sink }) {
			fmt.Fprintf(a.Err, "sink %s is owed %s of %s, and these settings have no such sink: it waits until a relay has "+
				"one (outbox sinks)\n", d.Sink, counted(d.Owed, "event"), d.Table)
		}
	}
}

// checked checks settings, and warns of what may have been meant as one, of routes that cannot be meant, of a window
// that is too short and of a log that goes to no sink.
func (a *application) checked(c *config.Config, needs config.Need) error {
	if err := c.Check(needs); err != nil {
		return err
	}
	log, err := a.logger(*c)
	if err != nil {
		return err
	}
	for _, name := range c.Ignored() {
		log.Warn("a variable is no setting of any command and is ignored", "variable", name, "see", "outbox config print")
	}
	for _, warning := range append(c.RouteWarnings(needs), c.ShortWindow(needs), c.Unserved(needs)) {
		if warning != "" {
			log.Warn(warning)
		}
	}
	return nil
}

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
)

func (a *application) config() *cobra.Command {
	return group("config", a.printConfig(), a.validateConfig())
}

// every returns the flags of all settings but the global ones, which every command has, and those
// of outbox serve and runs that are in no file.
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
	cmd := command("config print", cobra.NoArgs, func(*cobra.Command, []string) error {
		c, err := config.Load(a.kinds, a.environ, a.global, settings)
		if err != nil {
			return err
		}
		effective := c.Effective()
		// What is wrong comes after what is in effect: one looks at the one to understand the
		// other.
		if c.Output == "json" {
			err = printJSON(a.Out, map[string]any{"settings": effective, "fingerprint": c.Fingerprint()})
		} else {
			err = list[config.Setting]{items: effective, head: "SETTING,VALUE,FROM",
				cells: settingCells}.print(a, c.Output)
			fmt.Fprintln(a.Out, "\nRelays with these settings call themselves "+c.Fingerprint()+".")
		}
		return cmp.Or(err, a.checked(&c, 0))
	})
	cmd.Flags().AddFlagSet(settings)
	return cmd
}

// unset is what stands for some settings that nobody has set, because it differs by table.
var unset = map[string]string{
	"max_attempts": "3 for crawl_outbox, 5 for others", "backoff_base": "200ms for crawl_outbox, 5s for others",
}

func settingCells(s config.Setting) []any {
	value := plain(s.Value)
	if text, ok := unset[s.Name]; ok && s.From == "default" {
		value = text
	}
	from := s.From
	if s.Hides != "" {
		from += " (instead of " + s.Hides + ")"
	}
	return []any{s.Name, value, from}
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

// needs are what the commands cannot do without; those that speak to the database and to nothing
// else are one.
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
	var of string
	commands := strings.Join(slices.Sorted(maps.Keys(needs)), ", ")
	cmd := command("config validate", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		need, ok := needs[of]
		if !ok {
			return usagef("--for is %q, want one of %s", of, commands)
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
		for _, further := range []error{app.Check(c, of), app.CheckFiles(c, of)} {
			if settings, ok := errors.AsType[*config.Error](further); ok {
				problems = append(problems, settings.Problems...)
				err = &config.Error{Problems: problems}
			}
		}
		if c.Output == "json" || err == nil {
			err = errors.Join(a.printResult(c.Output, validation{of, problems},
				"no problem with the settings for %s", of), err)
		}
		if err == nil && len(c.AllSinks()) > 0 && (of == "relay" || of == "serve") {
			ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second)
			defer cancel()
			a.compareDebts(ctx, c)
		}
		return err
	})
	cmd.Flags().AddFlagSet(settings)
	cmd.Flags().StringVar(&of, "for", "serve", "command `name`: "+commands)
	return cmd
}

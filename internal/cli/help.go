package cli

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// help.md describes every command: under its usage follow one line, a longer text and examples.
//
//go:embed help.md
var helpText string

// helpOf has the sections of help.md by the commands' paths.
var helpOf = sync.OnceValue(func() map[string]string {
	sections := map[string]string{}
	for section := range strings.SplitSeq("\n"+helpText, "\n# outbox") {
		usage, words, _ := strings.Cut(section, "\n")
		var path []string
		for word := range strings.FieldsSeq(usage) {
			if strings.ToLower(word) != word || strings.ContainsAny(word, "([-<") {
				break // arguments begin
			}
			path = append(path, word)
		}
		sections[strings.Join(path, " ")] = usage + "\n" + words
	}
	return sections
})

// command makes a command with the words of help.md. path is its name after outbox.
func command(path string, args cobra.PositionalArgs, run func(*cobra.Command, []string) error) *cobra.Command {
	usage, words, found := strings.Cut(helpOf()[path], "\n")
	if !found {
		panic("help.md has no words for outbox " + path)
	}
	short, long, _ := strings.Cut(strings.TrimSpace(words), "\n")
	long, examples, _ := strings.Cut(long, "\nExamples:\n")
	above, _, _ := strings.Cut(path, " ")
	if above == path {
		above = ""
	}
	if args == nil {
		args = cobra.NoArgs // pause and the like set theirs afterwards
	}
	cmd := &cobra.Command{
		Use: "outbox", Short: strings.TrimSuffix(short, "."), Long: strings.TrimSpace(long), RunE: run,
		Args:    func(cmd *cobra.Command, words []string) error { return suggest(cmd, words, args(cmd, words)) },
		Example: strings.Trim(strings.ReplaceAll("\n"+examples, "\n    ", "\n  "), "\n"),
	}
	if path != "" {
		cmd.Use = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(usage), above))
	}
	return cmd
}

// group makes a command that is the head of others. By itself it does nothing: help with exit code
// 0 would let a script believe that it has, for instance, migrated.
func group(path string, below ...*cobra.Command) *cobra.Command {
	var names []string
	for _, sub := range below {
		names = append(names, sub.Name())
	}
	cmd := command(path, cobra.NoArgs, func(*cobra.Command, []string) error {
		text := strings.Join(names, ", ")
		if i := strings.LastIndex(text, ", "); i > 0 {
			text = text[:i] + " or " + text[i+2:]
		}
		return usagef("say what to do: %s", text)
	})
	cmd.AddCommand(below...)
	return cmd
}

// topic makes a help topic, which "outbox help NAME" prints.
func topic(name string, fill ...string) *cobra.Command {
	cmd := command(name, nil, nil)
	cmd.Args = nil
	cmd.Long = strings.NewReplacer(fill...).Replace(cmd.Long)
	return cmd
}

// topics are the help topics: what several commands share.
func (a *application) topics() []*cobra.Command {
	settings, filters, events := config.All(), &letterFlags{}, pflag.NewFlagSet("events", pflag.ContinueOnError)
	settings.AddFlagSet(config.ServeFlags())
	settings.AddFlagSet(config.Client())
	settings.AddFlag(a.global.Lookup("output"))
	filters.addTo(pflag.NewFlagSet("letters", pflag.ContinueOnError))
	events.SortFlags = false
	eventFlags(events, &operate.Filter{})
	return []*cobra.Command{
		topic("settings", "{settings}", settings.FlagUsages()),
		topic("filters", "{events}", events.FlagUsages(), "{letters}", filters.set.FlagUsages()),
		topic("urls", "{sinks}", strings.Join(a.kinds.Sinks.Examples(), "\n    "),
			"{databases}", strings.Join(a.kinds.Databases.Examples(), "\n    ")),
		topic("layouts"),
	}
}

const filter = "filter" // the annotation of flags that "outbox help filters" lists

func isFilter(f *pflag.Flag) { f.Annotations = map[string][]string{filter: {"yes"}} }

// shown are the settings and filters that the help of a command lists too.
var shown = map[string][]string{
	"relay": {"config", "database", "sink", "table", "routes", "destination", "envelope", "listen", "max-attempts",
		"lease-ttl", "retention"},
	"serve": {"config", "database", "sink", "http", "listen", "auth", "parts", "admin", "public-url", "cors-origin",
		"crawlers"},
	"dev": {"database", "sink", "http"}, "tail": {"sink"}, "purge": {"archive"}, "ready": {"listen"},
	"doctor": {"config"}, "verify": {"config"}, "why": {"config"}, "sinks": {"config"}, "route test": {"config"},
	"config print": {"config"}, "config validate": {"config"},
	"events": {"status", "topic", "key", "since"}, "events retry": {"topic", "key"}, "events skip": {"topic", "key"},
	"dlq list": {"topic", "tenant", "key", "table", "since", "fingerprint"}, "dlq stats": {"topic", "since"},
	"dlq discard": {"topic", "key", "since", "fingerprint"}, "dlq replay": {"fingerprint"},
}

// printUsage prints how a command is called. It leaves settings and filters to help topics.
func printUsage(cmd *cobra.Command) error {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	more := "settings"
	hide := func(f *pflag.Flag) {
		_, filters := f.Annotations[filter]
		if filters {
			more = "filters, outbox help settings"
		}
		if (filters || config.IsSetting(f)) && !slices.Contains(shown[path], f.Name) {
			f.Hidden = true // the process ends after its help
		}
	}
	cmd.NonInheritedFlags().VisitAll(hide)
	cmd.InheritedFlags().VisitAll(hide)
	err := new(cobra.Command).UsageFunc()(cmd)
	_, _ = fmt.Fprintf(cmd.OutOrStderr(), "\nMore flags: outbox help %s\n", more)
	return err
}

// suggest adds to the error of an unknown command the names that may have been meant.
func suggest(cmd *cobra.Command, words []string, err error) error {
	if err == nil || len(words) == 0 || !cmd.HasSubCommands() {
		return err
	}
	cmd.SuggestionsMinimumDistance = 2
	return didYouMean(fmt.Errorf("unknown command %q for %q", words[0], cmd.CommandPath()), cmd.SuggestionsFor(words[0]))
}

// suggestFlag adds to the error of an unknown flag the names that may have been meant.
func suggestFlag(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); len(words) > 0 && cmd.HasSubCommands() {
		return suggest(cmd, words, err)
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || len(unknown.GetSpecifiedName()) < 2 {
		return err
	}
	// cobra compares the names of commands only.
	flags := &cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		flags.AddCommand(&cobra.Command{Use: "--" + f.Name, Run: func(*cobra.Command, []string) {}})
	})
	return didYouMean(err, flags.SuggestionsFor("--"+unknown.GetSpecifiedName()))
}

func didYouMean(err error, names []string) error {
	if len(names) == 0 {
		return err
	}
	return fmt.Errorf("%w; did you mean %s?", err, strings.Join(names, " or "))
}

package cli

import (
	_ "embed"
	"strings"
	"sync"

	"github.com/spf13/cobra"
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
	cmd := &cobra.Command{
		Use: "outbox", Short: strings.TrimSuffix(short, "."), Long: strings.TrimSpace(long), Args: args, RunE: run,
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

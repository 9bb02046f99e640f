package config

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/sinks"
)

// Kinds are the databases and the sinks that the program can open, as far as settings are concerned. Package app knows
// which they are.
type Kinds struct {
	Databases Databases
	Sinks     sinks.Registry
}

// Databases knows the URLs of databases. No password is in what it returns.
type Databases interface {
	// Check says what is wrong with a URL, without connecting.
	Check(url string) error
	// Show returns the URL as one would write it, or the name of the database if a password may be in it.
	Show(url string) string
	// Examples are how URLs look, one for each kind of database.
	Examples() []string
}

// Describe adds to the texts of the flags that are URLs how those look. There are too many sinks to show them all.
func (k Kinds) Describe(flags *pflag.FlagSet) {
	for name, look := range map[string]string{
		"database": strings.Join(k.Databases.Examples(), "; "),
		"sink":     "one of " + k.Sinks.Schemes() + " (outbox relay --help shows each)",
	} {
		if f := flags.Lookup(name); f != nil {
			f.Usage += ": " + look
		}
	}
}

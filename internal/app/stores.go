package app

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/sink/sinks"
	"github.com/outboxrelay/outbox/internal/store/pooler"
	"github.com/outboxrelay/outbox/sink"
)

// stores returns the databases that the command works on. This list is all that general code knows
// of one; what each is stands in a file of its own.
func stores() []store {
	return []store{
		postgresStore(),
		sqliteStore(),
	}
}

// store describes the databases of some URL schemes.
type store struct {
	schemes []string
	// words tells whether text that has no scheme names such a database, as keywords and values do.
	// Nil: none does.
	words   func(text string) bool
	example string

	check func(url string) error  // what is wrong with a URL, without showing a password
	mask  func(url string) string // the database for people
	// file returns the path of a database that is a file. Nil: it is none.
	file func(url string) (path string)

	// opener returns what opens the databases of one process.
	opener     func() opener
	migrations func(url string) Migrations
	required   func(set string) uint // the version that a set must have

	// passes tells whether an error can go away while one waits, also of one that is none of this
	// store's.
	passes func(err error) bool
	// hint names the remedy where the error's own text cannot know it; "" for another's.
	hint func(err error) string
}

// opener opens a database for a part of a process.
type opener func(ctx context.Context, url string, u use) (Database, error)

var errNoDatabase = errors.New("is no valid URL (not shown, it may hold a password)")

// otherScheme matches a scheme, and nothing that could be a user.
var otherScheme = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://|^(file|sqlite3):`)

// storeOf returns the store of a URL.
func storeOf(url string) (store, error) {
	url = pooler.CleanURL(url)
	scheme, _, hasScheme := strings.Cut(url, ":")
	for _, s := range stores() {
		if hasScheme && slices.Contains(s.schemes, scheme) || s.words != nil && s.words(url) {
			return s, nil
		}
	}
	if scheme := otherScheme.FindString(url); scheme != "" {
		return store{}, fmt.Errorf("has the scheme %s, which is not supported", scheme)
	}
	return store{}, errNoDatabase
}

// databases is what the settings are told of the stores.
type databases struct{}

// Check implements config.Databases.
func (databases) Check(url string) error {
	s, err := storeOf(url)
	if err != nil {
		return errors.New(err.Error() + ": want " + strings.Join(databases{}.Examples(), ", or "))
	}
	return s.check(url)
}

// Show implements config.Databases.
func (databases) Show(url string) string {
	if path, ok := FileOf(url); ok {
		scheme, _, _ := strings.Cut(url, ":")
		return scheme + ":" + path
	}
	return MaskDatabase(url)
}

// Examples implements config.Databases.
func (databases) Examples() (all []string) {
	for _, s := range stores() {
		all = append(all, s.example)
	}
	return all
}

// Kinds returns what settings are checked with, for a command that has these sinks.
func Kinds(drivers []sink.Driver) (config.Kinds, error) {
	registry, err := sinks.NewRegistry(drivers...)
	return config.Kinds{Databases: databases{}, Sinks: registry}, err
}

// CheckDatabase says what is wrong with the URL of a database, without connecting.
func CheckDatabase(url string) error { return databases{}.Check(url) }

// MaskDatabase names the database behind a URL for people: the file, or database, host and port,
// and nothing else.
func MaskDatabase(url string) string {
	s, err := storeOf(url)
	if err != nil {
		return "(no valid URL)"
	}
	return s.mask(url)
}

// FileOf returns the file that a URL names, if its database is one.
func FileOf(url string) (path string, ok bool) {
	s, err := storeOf(url)
	if err != nil || s.file == nil {
		return "", false
	}
	return s.file(url), true
}

// StoreNames are what the stores are called, by their first schemes.
func StoreNames() (names []string) {
	for _, s := range stores() {
		names = append(names, s.schemes[0])
	}
	return names
}

// Required returns the versions that the migration sets must have, by StoreNames and sets.
func Required() map[string]map[string]uint {
	versions := map[string]map[string]uint{}
	for _, s := range stores() {
		of := map[string]uint{}
		for _, set := range slices.Concat(Sets, OptionalSets) {
			of[set] = s.required(set)
		}
		versions[s.schemes[0]] = of
	}
	return versions
}

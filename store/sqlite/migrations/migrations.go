// Package migrations holds the SQLite schema of Outbox as numbered plain SQL and applies it.
//
// There are the same three sets as for PostgreSQL, each with its own version table: core (outbox_events, job_dlq, apps, lane leases), events (event_outbox) and
// crawl (runs, their log and their outbox). events and crawl stand on core. The numbers within a set are SQLite's own: it began later, with less history.
//
// Guaranteed: what one call changes is one transaction, so a process killed at any point leaves the file as it was; any number of processes may call Up at
// once.
//
// Not guaranteed: that a schema newer than this build is understood (it is left alone).
package migrations

import (
	"embed"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/golang-migrate/migrate/v4/source"
)

//go:embed core/*.sql events/*.sql crawl/*.sql
var files embed.FS

// Sets are the known migration sets in the order in which they are applied. Treat it as a constant.
var Sets = []string{"core", "events", "crawl"}

// migration is one embedded step of a set.
type migration struct {
	version uint
	name    string // as the file is called, without .up.sql: 001_apps
}

// list returns the migrations of a known set, oldest first.
func list(set string) []migration {
	paths, err := fs.Glob(files, set+"/*.up.sql") // sorted, as the embedded file system sorts
	if err != nil || len(paths) == 0 {
		panic("migrations: no embedded files for set " + set) // a broken build, not a state to handle
	}
	var all []migration
	for _, path := range paths {
		file := strings.TrimPrefix(path, set+"/")
		parsed, err := source.Parse(file)
		if err != nil {
			panic("migrations: embedded file " + path + " is not numbered: " + err.Error())
		}
		all = append(all, migration{parsed.Version, strings.TrimSuffix(file, ".up.sql")})
	}
	return all
}

// Required is the version that a file must have for this build: the newest embedded one of the set, 0 for an unknown set.
func Required(set string) uint {
	if !slices.Contains(Sets, set) {
		return 0
	}
	all := list(set)
	return all[len(all)-1].version
}

// Print writes the up files of the sets (none: all sets) as they are, in the order of application.
func Print(w io.Writer, sets ...string) error {
	sets, err := order(sets)
	if err != nil {
		return err
	}
	for _, set := range sets {
		for _, m := range list(set) {
			text, err := files.ReadFile(set + "/" + m.name + ".up.sql")
			if err != nil {
				return fmt.Errorf("print set %s: %w", set, err)
			}
			if _, err := fmt.Fprintf(w, "-- ==== %s/%s.up.sql ====\n%s\n", set, m.name, text); err != nil {
				return fmt.Errorf("print set %s: %w", set, err)
			}
		}
	}
	return nil
}

// order returns the named sets once each, core first; all of them when none is named.
func order(named []string) ([]string, error) {
	if len(named) == 0 {
		return Sets, nil
	}
	for _, set := range named {
		if !slices.Contains(Sets, set) {
			return nil, fmt.Errorf("find migration set %q: the known sets are %s", set, strings.Join(Sets, ", "))
		}
	}
	var ordered []string
	for _, set := range Sets {
		if slices.Contains(named, set) {
			ordered = append(ordered, set)
		}
	}
	return ordered, nil
}

// versionTable is where golang-migrate keeps the version of a set.
func versionTable(set string) string { return "outbox_migrations_" + set }

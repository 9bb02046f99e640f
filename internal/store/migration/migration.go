package migration

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// Sets are the migration sets of every store, in the order in which they are applied. Treat it as a
// constant.
var Sets = []string{"core", "events", "crawl"}

// Default are those of Sets that are applied where none is named. Any other is too where it has
// been applied before: an application gets no table unasked, and what it has asked for is kept up
// to date. Treat it as a constant.
var Default = []string{"core", "events"}

// Optional are sets that only some stores have. They stand on core. Treat it as a constant.
var Optional = []string{"log"}

// Migration is one numbered step of a set.
type Migration struct {
	Version uint
	Name    string // as the file is called, without .up.sql: 001_apps
}

// Files are a store's embedded files: a folder a set, and in it NNN_name.up.sql and .down.sql.
type Files struct{ Files fs.FS }

// sets are those that the store has, in the order in which they are applied.
func (m Files) sets() []string {
	sets := slices.Clone(Sets)
	for _, set := range Optional {
		if found, err := fs.Glob(m.Files, set+"/*.up.sql"); err == nil && len(found) > 0 {
			sets = append(sets, set)
		}
	}
	return sets
}

// ErrCoreMissing is returned by Up for a set that stands on core where core is not applied.
var ErrCoreMissing = errors.New("core is not up to date")

// ErrCoreNeeded is returned by Down for core while a set that stands on it is applied.
var ErrCoreNeeded = errors.New("core is still needed")

// Lacks returns an error where one of the named sets is none of the store's.
func (m Files) Lacks(named []string) error {
	for _, set := range named {
		if sets := m.sets(); !slices.Contains(sets, set) {
			return fmt.Errorf("find migration set %q: this database has the sets %s", set, strings.Join(sets, ", "))
		}
	}
	return nil
}

// List returns the migrations of a known set, oldest first.
func (m Files) List(set string) []Migration {
	paths, err := fs.Glob(m.Files, set+"/*.up.sql") // sorted, as an embedded file system sorts
	if err != nil || len(paths) == 0 {
		panic("migrations: no embedded files for set " + set) // a broken build, not a state to handle
	}
	var all []Migration
	for _, path := range paths {
		name := strings.TrimSuffix(strings.TrimPrefix(path, set+"/"), ".up.sql")
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			panic("migrations: embedded file " + path + " is not numbered: " + err.Error())
		}
		all = append(all, Migration{uint(version), name})
	}
	return all
}

// Required is the newest version of a set, 0 for an unknown one.
func (m Files) Required(set string) uint {
	if !slices.Contains(m.sets(), set) {
		return 0
	}
	all := m.List(set)
	return all[len(all)-1].Version
}

// Print writes the up files of the sets (none: Default) as they are, in the order of application.
func (m Files) Print(w io.Writer, sets ...string) error {
	sets, err := Order(sets)
	if err != nil {
		return err
	}
	for _, set := range sets {
		for _, one := range m.List(set) {
			text, err := fs.ReadFile(m.Files, set+"/"+one.Name+".up.sql")
			if err != nil {
				return fmt.Errorf("print set %s: %w", set, err)
			}
			if _, err := fmt.Fprintf(w, "-- ==== %s/%s.up.sql ====\n%s\n", set, one.Name, text); err != nil {
				return fmt.Errorf("print set %s: %w", set, err)
			}
		}
	}
	return nil
}

// Status says where a database with that version of a set stands.
func (m Files) Status(set string, current uint, dirty bool) SetStatus {
	// An empty list in JSON, not null.
	s := SetStatus{Set: set, Current: current, Latest: m.Required(set), Dirty: dirty, Pending: []string{}}
	for _, one := range m.List(set) {
		if one.Version > current {
			s.Pending = append(s.Pending, one.Name)
		}
	}
	return s
}

// Unasked says of sets that a database has nothing of, and that nobody has named, that they are not
// shown.
func Unasked(all []SetStatus, named []string) []SetStatus {
	return slices.DeleteFunc(all, func(s SetStatus) bool {
		return !slices.Contains(Default, s.Set) && !slices.Contains(named, s.Set) && s.Current == 0 && !s.Dirty
	})
}

// Order returns the named sets once each, core first; Default when none is named.
func Order(named []string) ([]string, error) {
	if len(named) == 0 {
		return Default, nil
	}
	known := slices.Concat(Sets, Optional)
	for _, set := range named {
		if !slices.Contains(known, set) {
			return nil, fmt.Errorf("find migration set %q: the known sets are %s", set, strings.Join(known, ", "))
		}
	}
	var ordered []string
	for _, set := range known {
		if slices.Contains(named, set) {
			ordered = append(ordered, set)
		}
	}
	return ordered, nil
}

// VersionTable is where the version of a set is kept, in the form of golang-migrate.
func VersionTable(set string) string { return "outbox_migrations_" + set }

// SetStatus says where a database stands with one set.
type SetStatus struct {
	Set     string `json:"set"`
	Current uint   `json:"current"` // 0: nothing applied
	// Newest embedded version; below Current when the database is newer than this build.
	Latest uint `json:"latest"`
	Dirty  bool `json:"dirty"` // golang-migrate died while migrating; Up repairs it
	// The files Up would run, oldest first; the marked one is not listed while Dirty.
	Pending []string `json:"pending"`
	// Who applied it, if not Up: another migration tool, or "hand" where none has left a record.
	By string `json:"by,omitempty"`
}

// SetOf says which set of migrations makes a table of ours.
var SetOf = map[string]string{
	"outbox_events": "core", "outbox_lanes": "core", "outbox_relays": "core", "outbox_readers": "core",
	"job_dlq": "core", "apps": "core",
	"outbox_audit": "core", "outbox_pauses": "core", "event_outbox": "events", "crawl_outbox": "crawl",
	"crawl_runs": "crawl", "crawl_events": "crawl",
	"outbox_maintenance": "core", "outbox_archive": "core", "outbox_tokens": "core", "outbox_tickets": "core",
	"outbox_deliveries": "core", "outbox_log": "log", "outbox_log_positions": "log",
	"outbox_log_era": "log", "outbox_inbox_turn": "core", "outbox_inbox_0": "core", "outbox_inbox_1": "core",
	"outbox_inbox_consumers": "core", "outbox_inbox_claims": "core",
}

package pgmigrations_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
)

func exported(t *testing.T, dir string, format pgmigrations.Format, sets ...string) []pgmigrations.ExportedFile {
	t.Helper()
	files, err := pgmigrations.Export(dir, format, sets...)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// contents are the files of a folder by name.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[entry.Name()] = string(text)
	}
	return all
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func take(t *testing.T, dir, pattern string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) == 0 {
		t.Fatal("there is no", pattern, err)
	}
	for _, path := range found {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func TestExportNamesItsFilesAsTheToolDoes(t *testing.T) {
	t.Parallel()
	events := pgmigrations.Required("core") + 1 // the number of the set's first step; core's come before it
	crawl := events + pgmigrations.Required("events")
	name := fmt.Sprintf
	for format, want := range map[pgmigrations.Format][]string{
		pgmigrations.Encore: {"1_outbox_core_001_apps.up.sql", name("%d_outbox_crawl_002_crawl_outbox.up.sql", crawl+1)},
		pgmigrations.GolangMigrate: {
			"000001_outbox_core_001_apps.up.sql", "000001_outbox_core_001_apps.down.sql",
			name("%06d_outbox_crawl_002_crawl_outbox.down.sql", crawl+1),
		},
		pgmigrations.Goose: {"00001_outbox_core_001_apps.sql", name("%05d_outbox_events_001_event_outbox.sql", events)},
		pgmigrations.Atlas: {
			"00001_outbox_core_001_apps.sql", name("%05d_outbox_crawl_001_crawl_schema.sql", crawl),
		},
	} {
		dir := filepath.Join(t.TempDir(), "new", "folder")
		files := exported(t, dir, format, pgmigrations.Sets...)
		there := contents(t, dir)
		if len(files) != len(there) {
			t.Errorf("%s: %d files are listed, and %d are there", format, len(files), len(there))
		}
		for _, f := range files {
			if !f.Written || there[f.File] == "" || f.Step == "" {
				t.Errorf("%s: %+v", format, f)
			}
		}
		for _, name := range want {
			if there[name] == "" {
				t.Errorf("%s: there is no %s in %v", format, name, slices.Sorted(maps.Keys(there)))
			}
		}
		first := there[files[0].File]
		if !strings.Contains(first, "outbox migrate roles") || strings.Contains(first, "{") {
			t.Errorf("%s: the head of the first file:\n%s", format, first[:1500])
		}
		if other := t.TempDir(); !maps.Equal(there, contents(t, otherwise(t, other, format))) {
			t.Errorf("%s: a second export made other files", format)
		}
		for name, text := range there {
			switch {
			case strings.Contains(text, "{{"):
				t.Errorf("%s: an action is left", name)
			case format == pgmigrations.Atlas && strings.Contains(text, "\n\n\n"):
				t.Errorf("%s: three line breaks would end its statement", name)
			case format == pgmigrations.Goose && strings.Count(text, "+goose") != 6:
				t.Errorf("%s: has %d lines of goose, not 6", name, strings.Count(text, "+goose"))
			}
		}
		for _, f := range exported(t, dir, format) {
			if f.Written {
				t.Errorf("%s: %s was written again", format, f.File)
			}
		}
		if !maps.Equal(there, contents(t, dir)) {
			t.Errorf("%s: nothing was new, and files changed", format)
		}
	}
}

func otherwise(t *testing.T, dir string, format pgmigrations.Format) string {
	t.Helper()
	exported(t, dir, format, "crawl", "events", "core")
	return dir
}

// An older release had fewer steps. What is new comes after all that is there, the user's own
// migrations too, and what is there keeps its number and its text.
func TestExportContinuesAFolder(t *testing.T) {
	t.Parallel()
	core := pgmigrations.Required("core") // the user's own migration stands where its last step would
	for format, own := range map[pgmigrations.Format]string{
		pgmigrations.Encore:        fmt.Sprintf("%d_shop.up.sql", core),
		pgmigrations.GolangMigrate: "20250102030405_shop.up.sql",
		pgmigrations.Goose:         fmt.Sprintf("%05d_shop.sql", core),
		pgmigrations.Atlas:         "20250102030405_shop.sql", // as Atlas' own command numbers it
	} {
		dir := t.TempDir()
		exported(t, dir, format, "core")
		take(t, dir, fmt.Sprintf("*_outbox_core_%03d_*", core))
		put(t, dir, own, "-- +goose Up\nCREATE TABLE shop (id int);\n")
		put(t, dir, "README.md", "not a migration")
		before := contents(t, dir)
		var added []string
		for _, f := range exported(t, dir, format, "crawl", "core") {
			if f.Written {
				added = append(added, f.File)
			}
		}
		after := contents(t, dir)
		for name, text := range before {
			if after[name] != text {
				t.Errorf("%s: %s changed", format, name)
			}
		}
		want := map[pgmigrations.Format]string{
			pgmigrations.Encore: fmt.Sprintf(`^%d_outbox_core_%03d_\S+ %d_outbox_crawl_001_\S+ %d_outbox_crawl_002`,
				core+1, core, core+2, core+3),
			pgmigrations.GolangMigrate: fmt.Sprintf(`^20250102030406_outbox_core_%03d_\S+ \S+ `+
				`20250102030407_outbox_crawl_001.* 20250102030408_outbox_crawl_002`, core),
			pgmigrations.Goose: fmt.Sprintf(`^%05d_outbox_core_%03d_\S+ %05d_outbox_crawl_001_\S+ %05d_outbox_crawl_002`,
				core+1, core, core+2, core+3),
			pgmigrations.Atlas: fmt.Sprintf(`^20250102030406_outbox_core_%03d_\S+ `+
				`20250102030407_outbox_crawl_001_\S+ 20250102030408_outbox_crawl_002`, core),
		}[format]
		if got := strings.Join(added, " "); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s: got %s, want %s", format, got, want)
		}
		// Without --set it goes on with core and crawl, of which nothing is missing.
		for _, f := range exported(t, dir, format) {
			if f.Written {
				t.Errorf("%s: %s was written", format, f.File)
			}
		}
	}
}

// The folder of the example has the steps as they are today.
func TestExportIsTheFolderOfTheExample(t *testing.T) {
	t.Parallel()
	const own = "1_orders.up.sql"
	example, dir := contents(t, "../../../examples/encore/orders/migrations"), t.TempDir()
	put(t, dir, own, example[own])
	exported(t, dir, pgmigrations.Encore, "core")
	now := contents(t, dir)
	if !slices.Equal(slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(example))) {
		t.Errorf("the example has other files than are written: %v", slices.Sorted(maps.Keys(now)))
	}
	for name, text := range now {
		if example[name] != text {
			t.Errorf("%s is not what is written", name)
		}
	}
}

func TestExportRefusesWhatItCannotWrite(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		format  pgmigrations.Format
		prepare []func(dir string)
		sets    []string
		want    string
	}{
		"a set without core": {pgmigrations.Goose, nil, []string{"crawl"}, "name core too, --set core,crawl"},
		"a set that there is not": {pgmigrations.Goose, nil, []string{"cor"},
			`"cor": the known sets are core, events, crawl`},
		"a format that there is not": {"flyway", nil, nil, "the formats are encore, golang-migrate, goose, atlas"},
		"a file where the folder goes": {pgmigrations.Goose,
			[]func(string){func(dir string) { put(t, filepath.Dir(dir), filepath.Base(dir), "") }}, nil, "not a directory"},
	} {
		dir := filepath.Join(t.TempDir(), "folder")
		for _, prepare := range tt.prepare {
			prepare(dir)
		}
		before, err := os.ReadDir(dir)
		_, refusal := pgmigrations.Export(dir, tt.format, tt.sets...)
		if refusal == nil || !strings.Contains(refusal.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", name, refusal, tt.want)
		}
		if after, _ := os.ReadDir(dir); err == nil && len(after) != len(before) {
			t.Errorf("%s: refused, and wrote", name)
		}
	}
}

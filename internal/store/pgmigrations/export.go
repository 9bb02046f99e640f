package pgmigrations

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/outboxrelay/outbox/internal/store/migration"
)

//go:embed export_header.txt
var exportHeader string

// Format is whose folder Export writes.
type Format string

// The tools whose folders Export writes.
const (
	Encore        Format = "encore"         // N_name.up.sql, numbered from 1 without a gap
	GolangMigrate Format = "golang-migrate" // NNNNNN_name.up.sql and .down.sql
	Goose         Format = "goose"          // NNNNN_name.sql, with the way down in the same file
	Atlas         Format = "atlas"          // NNNNN_name.sql; `atlas migrate hash` takes them into atlas.sum
)

// Formats are all of them. Treat it as a constant.
var Formats = []Format{Encore, GolangMigrate, Goose, Atlas}

// ExportedFile is a file of the folder.
type ExportedFile struct {
	File    string `json:"file"`
	Step    string `json:"step"`    // set and file, as core/001_apps
	Written bool   `json:"written"` // false: it was there
}

// Export writes the steps of the sets into one folder of another migration tool, in the order in
// which they are applied. It returns all files of theirs that are in the folder then. No set means
// those that are in the folder already, or migration.Default where none is.
//
// The steps that are in the folder are found by their names and left alone, whatever is in them.
// Those that are not get the numbers after the highest one in it, be that of a step or of a
// migration of the user's. So no number ever changes, and two runs of one build make the same
// files. The folder is made if it is missing.
//
// The error is migration.ErrCoreMissing for a set without core. Nothing is written then, and
// nothing is left behind where writing fails.
func Export(dir string, format Format, sets ...string) ([]ExportedFile, error) {
	style, known := styles[format]
	if !known {
		return nil, fmt.Errorf("export migrations: there is no format %q: the formats are %s", format,
			strings.Join(namesOf(Formats, func(f Format) string { return string(f) }), ", "))
	}
	if _, err := migration.Order(sets); err != nil {
		return nil, fmt.Errorf("export migrations: %w", err)
	}
	files, err := export(dir, style, sets)
	if err != nil {
		return nil, fmt.Errorf("export migrations to %s: %w", dir, err)
	}
	return files, nil
}

// step is one migration of a set.
type step struct {
	set string
	migration.Migration
}

func (s step) String() string { return s.set + "/" + s.Name }

// description is the file's name without its number. It is what a step is known by in a folder.
func (s step) description() string { return "outbox_" + s.set + "_" + s.Name }

func export(dir string, style style, sets []string) ([]ExportedFile, error) {
	there, highest, width, err := readFolder(dir)
	if err != nil {
		return nil, err
	}
	for _, set := range every {
		if len(sets) == 0 && there.has(set) {
			sets = append(sets, set)
		}
	}
	if sets, err = migration.Order(sets); err != nil {
		return nil, err
	}
	if !slices.Contains(sets, "core") && !there.has("core") {
		return nil, fmt.Errorf("%s needs core, which the folder lacks: name core too, --set core,%s: %w",
			sets[0], strings.Join(sets, ","), migration.ErrCoreMissing)
	}
	var missing []step
	for _, set := range sets {
		for _, one := range embedded.List(set) {
			if s := (step{set, one}); there[s.description()] == nil {
				missing = append(missing, s)
			}
		}
	}
	first := len(there) == 0
	before := guards(missing) // in the first one: a tool applies none of them where one would be refused
	written := map[string]string{}
	for _, s := range missing {
		highest++
		number := fmt.Sprintf("%0*d", cmp.Or(width, style.width), highest)
		for suffix, text := range style.render(s, first, before) {
			name := number + "_" + s.description() + suffix
			there[s.description()] = append(there[s.description()], name)
			written[name] = text
		}
		first, before = false, ""
	}
	return there.list(written), writeFolder(dir, written)
}

// exportedSteps are the files of a folder by the descriptions of their steps.
type exportedSteps map[string][]string

func (e exportedSteps) has(set string) bool {
	for description := range e {
		if strings.HasPrefix(description, "outbox_"+set+"_") {
			return true
		}
	}
	return false
}

// list is what the folder has, in the order of the steps.
func (e exportedSteps) list(written map[string]string) (all []ExportedFile) {
	for _, set := range every {
		for _, one := range embedded.List(set) {
			s := step{set, one}
			names := e[s.description()]
			slices.SortFunc(names, func(a, b string) int { return cmp.Compare(b, a) }) // up before down
			for _, name := range names {
				all = append(all, ExportedFile{name, s.String(), written[name] != ""})
			}
		}
	}
	return all
}

// readFolder finds the steps that are in a folder, and the highest number of a file with how many
// digits it has. A folder that is not there is empty.
func readFolder(dir string) (there exportedSteps, highest uint64, width int, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, 0, err
	}
	there = exportedSteps{}
	for _, entry := range entries {
		digits, rest, _ := strings.Cut(entry.Name(), "_")
		number, err := strconv.ParseUint(digits, 10, 64)
		if err != nil || entry.IsDir() {
			continue
		}
		if number >= highest {
			highest, width = number, len(digits)
		}
		if description, _, _ := strings.Cut(rest, "."); strings.HasPrefix(description, "outbox_") {
			there[description] = append(there[description], entry.Name())
		}
	}
	return there, highest, width, nil
}

// writeFolder writes new files, all or none.
func writeFolder(dir string, files map[string]string) (err error) {
	if len(files) == 0 {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var written []string
	defer func() {
		for _, path := range written {
			if err != nil {
				err = errors.Join(err, os.Remove(path))
			}
		}
	}()
	for name, text := range files {
		path := filepath.Join(dir, name)
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		written = append(written, path)
		_, err = file.WriteString(text)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// style is how a tool wants its files.
type style struct {
	tool  string // as people call it
	width int    // of the numbers in a folder that has none, as the tool's own command writes them
	down  bool   // there is a way down
	wrap  func(up, down string) string
	notes string // for the end of the header
}

var styles = map[Format]style{
	Encore: {tool: "Encore", width: 1,
		notes: "-- Encore has no way down, and wants numbers from 1 without a gap.\n",
	},
	GolangMigrate: {tool: "golang-migrate", width: 6, down: true,
		notes: "-- Not with x-multi-statement: bodies of functions have semicolons. A file that " +
			"failed has done nothing: put right what\n" +
			"-- the error says, `migrate force` the number before it (-1 before the first), and `migrate up`.\n",
	},
	Goose: {tool: "goose", width: 5, down: true, wrap: gooseFile},
	Atlas: {tool: "Atlas", width: 5, wrap: atlasFile,
		notes: "-- Atlas files have no way down. The first line of each makes it one statement, whose functions have " +
			"semicolons.\n-- `atlas migrate hash` takes new files into atlas.sum.\n",
	},
}

// gooseFile makes one statement of each way, because functions have semicolons inside. goose runs
// it in a transaction.
func gooseFile(up, down string) string {
	return "-- +goose Up\n-- +goose StatementBegin\n" + up + "-- +goose StatementEnd\n\n" +
		"-- +goose Down\n-- +goose StatementBegin\n" + down + "-- +goose StatementEnd\n"
}

// atlasFile has Atlas end a statement at three line breaks, which no file has, because older
// versions split the bodies of functions at their semicolons.
func atlasFile(up, _ string) string { return `-- atlas:delimiter \n\n\n` + "\n\n" + up }

// render returns the texts of a step by what follows its name. before is what is asked first.
func (s style) render(one step, first bool, before string) map[string]string {
	path := one.String()
	up := "-- Outbox, " + path + ".\n\n" + before + content(path+".up.sql")
	if first {
		up = strings.ReplaceAll(exportHeader, "{tool}", s.tool) + s.notes + "\n" + up
	}
	down := content(path + ".down.sql")
	switch {
	case s.wrap != nil:
		return map[string]string{".sql": s.wrap(up, down)}
	case s.down:
		return map[string]string{".up.sql": up, ".down.sql": down}
	}
	return map[string]string{".up.sql": up}
}

// guards refuse, before the first of the steps to be applied, what any of them would: functions
// that core may not run beside, and tables that Up adopts.
func guards(steps []step) (text string) {
	for _, s := range steps {
		if s.set == "core" && s.Version == 1 {
			text = strangersSQL + "\n" + text
		}
		for _, t := range traces {
			if t.Set == s.set && t.Version == s.Version && t.Table != "" {
				text += strings.TrimSpace(statement("guard", t)) + "\n\n"
			}
		}
		if s.set == "crawl" && s.Version == 1 {
			text += strings.TrimSpace(statement("guard_renamed", nil)) + "\n\n"
		}
	}
	return text
}

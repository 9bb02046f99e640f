package pgmigrations

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/outboxrelay/outbox/internal/migration"
)

const atlasSumName = "atlas.sum"

// folder is what a folder of migrations has.
type folder struct {
	style
	dir     string
	names   []string          // of all SQL files, sorted
	ours    map[string]step   // by file
	numbers map[string]string // file by number and way
	highest uint64
	digits  int // of the highest number
}

var (
	numberedPair = regexp.MustCompile(`^([0-9]{1,18})_([^.]+)\.(?:up|down)\.sql$`)
	numberedFile = regexp.MustCompile(`^([0-9]{1,18})(?:_([^.]+))?\.(?:sql|go)$`)
	ourName      = regexp.MustCompile(`^outbox_(core|events|crawl)_(([0-9]+)_[a-z0-9_]+)$`)
)

func (f *folder) refuse(format string, args ...any) error {
	return fmt.Errorf("%w, and nothing was written: %s", ErrFolder, fmt.Sprintf(format, args...))
}

// readFolder reads the names of a folder's files and refuses what the tool would not understand. One that is not there
// is empty. Files that are not SQL, and folders in it, are nobody's business.
func readFolder(dir string, s style) (*folder, error) {
	f := &folder{style: s, dir: dir, ours: map[string]step{}, numbers: map[string]string{}}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, entry := range entries {
		name := entry.Name()
		// goose runs Go files too.
		code := !s.pairs && !s.sum && filepath.Ext(name) == ".go" && numberedFile.MatchString(name)
		if entry.IsDir() || filepath.Ext(name) != ".sql" && !code {
			continue
		}
		if err := f.add(name, step{}); err != nil {
			return nil, err
		}
	}
	if err := f.inOrder(); err != nil {
		return nil, err
	}
	if s.sum && !f.empty() {
		sum, err := os.ReadFile(filepath.Join(dir, atlasSumName))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		now, err := f.atlasSum(nil)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(sum, now) {
			return nil, f.refuse("%s does not fit the files beside it: run `atlas migrate hash` when they are as you want them",
				atlasSumName)
		}
	}
	return f, nil
}

func (f *folder) empty() bool { return len(f.names) == 0 }

// add takes a file in. The step of one that is about to be written is known.
func (f *folder) add(name string, s step) error {
	pair := strings.HasSuffix(name, ".up.sql") || strings.HasSuffix(name, ".down.sql")
	if pair != f.pairs {
		return f.refuse("%s is not named as %s names its files (%s): "+
			"give --dir a folder of its own, or the --format of this one",
			name, f.tool, map[bool]string{true: "1_name.up.sql", false: "00001_name.sql"}[f.pairs])
	}
	parsed := numberedFile.FindStringSubmatch(name)
	if f.pairs {
		parsed = numberedPair.FindStringSubmatch(name)
	}
	if parsed == nil {
		return f.refuse("%s has no number and name that %s would read: rename it, or move it out of the folder",
			name, f.tool)
	}
	number, err := strconv.ParseUint(parsed[1], 10, 64)
	if err != nil {
		return f.refuse("%s: %v", name, err)
	}
	place := strconv.FormatUint(number, 10)
	if strings.HasSuffix(name, ".down.sql") {
		place += " down"
	}
	if other, taken := f.numbers[place]; taken {
		return f.refuse("%s and %s have the same number: renumber the one that no database has yet", other, name)
	}
	f.numbers[place] = name
	if number >= f.highest {
		f.highest, f.digits = number, len(parsed[1])
	}
	if known := ourName.FindStringSubmatch(parsed[2]); known != nil && s.set == "" {
		version, err := strconv.ParseUint(known[3], 10, 32)
		if err != nil {
			return f.refuse("%s: %v", name, err)
		}
		s = step{known[1], migration.Migration{Version: uint(version), Name: known[2]}}
	}
	if s.set != "" {
		f.ours[name] = s
	}
	f.names = append(f.names, name)
	slices.SortFunc(f.names, f.byNumber)
	return nil
}

func numberOf(name string) uint64 {
	digits, _, _ := strings.Cut(strings.TrimSuffix(name, ".sql"), "_")
	number, _ := strconv.ParseUint(digits, 10, 64) // add has checked it
	return number
}

// byNumber is the order in which the tool goes through the files; up before down.
func (f *folder) byNumber(a, b string) int {
	if order := cmp.Compare(numberOf(a), numberOf(b)); order != 0 {
		return order
	}
	return cmp.Compare(b, a)
}

// inOrder refuses numbers that the tool would refuse, or read in another order.
func (f *folder) inOrder() error {
	if !f.gaps {
		for number := range f.highest {
			if _, there := f.numbers[strconv.FormatUint(number+1, 10)]; !there {
				return f.refuse("there is no %d_….up.sql, and %s wants the numbers from 1 without a gap: "+
					"renumber what no database has yet", number+1, f.tool)
			}
		}
	}
	if f.sum && !slices.IsSorted(f.names) {
		return f.refuse("%s goes by the names as texts, and by those %v come in another order than by their numbers: "+
			"write the numbers with leading zeros", f.tool, f.names)
	}
	return nil
}

// next is the number of a new file, with as many digits as the highest one.
func (f *folder) next() string {
	if f.empty() {
		return padded(f.highest+1, f.width)
	}
	return padded(f.highest+1, f.digits)
}

// sets are those of which the folder has steps.
func (f *folder) sets() (named []string) {
	for _, set := range every {
		for _, s := range f.ours {
			if s.set == set {
				named = append(named, set)
				break
			}
		}
	}
	return named
}

// missing returns the steps of the sets that the folder lacks, in the order in which they are applied.
func (f *folder) missing(from migration.Files, sets []string) (steps []step, err error) {
	there := map[string]bool{}
	newest := map[string]uint{}
	for _, s := range f.ours {
		there[s.String()] = true
		newest[s.set] = max(newest[s.set], s.Version)
	}
	for _, set := range every {
		for _, one := range from.List(set) {
			s := step{set, one}
			switch {
			case there[s.String()]:
			case one.Version < newest[set]:
				return nil, f.refuse("it has later steps of %s, and not %s: put that file back, from your version control",
					set, s)
			case slices.Contains(sets, set):
				steps = append(steps, s)
			case set == "core" && len(sets) > 0:
				return nil, fmt.Errorf("%s needs %s, which the folder lacks: name core too, --set core,%s: %w",
					sets[0], s, strings.Join(sets, ","), ErrCoreMissing)
			}
		}
	}
	return steps, nil
}

// atlasSum is the text of atlas.sum for the files that are there and those that are about to be written. A file's line
// is the digest of all names and contents up to it, the first line that of the lines below.
func (f *folder) atlasSum(written map[string][]byte) ([]byte, error) {
	var lines bytes.Buffer
	files, all := sha256.New(), sha256.New()
	for _, name := range f.names {
		text, ok := written[name]
		if !ok {
			var err error
			if text, err = os.ReadFile(filepath.Join(f.dir, name)); err != nil {
				return nil, err
			}
		}
		_, _ = files.Write([]byte(name)) // a hash returns no error
		_, _ = files.Write(text)
		digest := base64.StdEncoding.EncodeToString(files.Sum(nil))
		_, _ = all.Write([]byte(name + digest))
		fmt.Fprintf(&lines, "%s h1:%s\n", name, digest)
	}
	return []byte("h1:" + base64.StdEncoding.EncodeToString(all.Sum(nil)) + "\n" + lines.String()), nil
}

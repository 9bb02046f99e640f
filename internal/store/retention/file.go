package retention

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Suffixes of archive files. A file has the second one added until it is whole.
const (
	suffix  = ".jsonl.gz"
	partial = ".tmp"
)

// Line is one line of an archive file: the columns of table outbox_archive.
type Line struct {
	Table      string          `json:"table"`
	ID         uuid.UUID       `json:"id"`
	Position   int64           `json:"position"`
	ArchivedAt time.Time       `json:"archived_at"`
	Row        json.RawMessage `json:"row"`
}

// file is an archive file being written: gzip, one Line a line.
type file struct {
	path  string // its name when it is whole
	file  *os.File
	zip   *gzip.Writer
	lines *json.Encoder
}

// createFile begins a file whose name sorts by time. Payloads are nobody else's business: only its
// owner may read it.
func createFile(dir, table string, began time.Time, number int, owner uuid.UUID) (*file, error) {
	// The owner's last digits, because two databases with a table of that name may share the
	// directory.
	name := fmt.Sprintf("%s-%s-%04d-%s%s", strings.ReplaceAll(table, "/", "_"),
		began.UTC().Format("20060102T150405.000000Z"), number, owner.String()[28:], suffix)
	path := filepath.Join(dir, name)
	f, err := os.OpenFile(path+partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create archive file: %w", err)
	}
	zip := gzip.NewWriter(f)
	lines := json.NewEncoder(zip)
	lines.SetEscapeHTML(false)
	return &file{path: path, file: f, zip: zip, lines: lines}, nil
}

func (f *file) add(table string, row Row) error {
	line := Line{Table: table, ID: row.ID, Position: row.Position, ArchivedAt: time.Now().UTC(), Row: row.Content}
	if err := f.lines.Encode(line); err != nil {
		return fmt.Errorf("write archive file: %w", err)
	}
	return nil
}

// seal returns when the file is on disk under its final name, whatever happens to the machine then.
func (f *file) seal() (path string, err error) {
	for _, step := range []func() error{
		f.zip.Close,
		f.file.Sync,
		f.file.Close,
		func() error { return os.Rename(f.path+partial, f.path) },
		func() error { return syncDir(filepath.Dir(f.path)) },
	} {
		if err := step(); err != nil {
			return "", fmt.Errorf("finish archive file: %w", err)
		}
	}
	return f.path, nil
}

// syncDir makes a rename in the directory last: the name of a file is the directory's data, not the
// file's.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// abandon removes what is there of a file that will not be finished. f may be nil. What a crash
// leaves stays, as .tmp.
func (f *file) abandon() {
	if f != nil {
		_ = f.file.Close() // it may be closed already, and nobody wants its content
		_ = os.Remove(f.path + partial)
	}
}

package retention

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestFileHasItsNameOnlyWhenWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	began := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("", 3600))
	owner := uuid.MustParse("00000000-0000-0000-0000-00000000abcd")
	const name = "a_b-20260102T020405.000006Z-0001-0000abcd.jsonl.gz"
	create := func() *file {
		t.Helper()
		f, err := createFile(dir, "a/b", began, 1, owner)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.add("a/b", Row{ID: owner, Content: []byte(`{"x": 1}`)}); err != nil {
			t.Fatal(err)
		}
		if got := list(t, dir); !slices.Equal(got, []string{name + ".tmp"}) {
			t.Errorf("while it is written there is %v", got)
		}
		return f
	}
	create().abandon()
	if got := list(t, dir); len(got) != 0 {
		t.Errorf("abandoned, but there is %v", got)
	}
	path, err := create().seal()
	if err != nil || path != filepath.Join(dir, name) {
		t.Fatalf("got %s, error %v, want %s", path, err, name)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || len(list(t, dir)) != 1 {
		t.Errorf("got %v, error %v, beside %v", info, err, list(t, dir))
	}
	(*file)(nil).abandon() // as there is none
	next, err := createFile(dir, "a/b", began.Add(time.Microsecond), 1, owner)
	if err != nil {
		t.Fatal(err)
	}
	if path, err = next.seal(); err != nil || filepath.Base(path) < name {
		t.Errorf("a later file is %s, error %v: names sort by time", path, err)
	}
}

func TestFileThatCannotBeFinished(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := createFile(dir, "t", time.Now(), 1, uuid.New())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if path, err := f.seal(); err == nil {
		t.Errorf("sealed %s in a directory that is gone", path)
	}
	f.abandon()
	if _, err := createFile(dir, "t", time.Now(), 1, uuid.New()); err == nil {
		t.Error("created a file in a directory that is gone")
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	if _, err := New(nil, Config{OlderThan: -1, Batch: -1, Every: -1}); err == nil {
		t.Error("no problem found")
	} else {
		for _, field := range []string{"Table", "OlderThan", "Batch", "Every"} {
			if !strings.Contains(err.Error(), field+" ") {
				t.Errorf("%v does not name %s", err, field)
			}
		}
	}
	dir := t.TempDir()
	for text, want := range map[string]Archive{"table": {}, "none": {None: true}, dir: {Dir: dir}} {
		if got, err := ParseArchive(text); err != nil || got != want {
			t.Errorf("%q: got %+v, error %v", text, got, err)
		}
	}
	for _, text := range []string{"", "tabel", dir + "/missing"} {
		if got, err := ParseArchive(text); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
}

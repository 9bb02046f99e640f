package clients

import (
	"archive/zip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What is published has the code, its types, the licence and a README, and no test.
func TestPackages(t *testing.T) {
	t.Parallel()
	t.Run("npm", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		tool(t, "typescript", "npm", "pack", "--ignore-scripts", "--pack-destination", dir) // TestMain has built it
		listed := tool(t, dir, "tar", "-tzf", "outboxrelay-client-0.1.0.tgz")
		holds(t, strings.Fields(listed), "package/", "package.json", "LICENSE", "README.md", "dist/index.js", "dist/index.d.ts",
			"dist/react.js", "dist/react.d.ts", "dist/openapi.d.ts")
	})
	t.Run("wheel", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		tool(t, "python", python(t), "-m", "hatchling", "build", "--target", "wheel", "--directory", dir)
		wheel, err := zip.OpenReader(filepath.Join(dir, "outboxrelay-0.1.0-py3-none-any.whl"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = wheel.Close() }()
		var names []string
		for _, f := range wheel.File {
			names = append(names, f.Name)
		}
		holds(t, names, "outboxrelay/", "__init__.py", "postgres.py", "py.typed")
		holds(t, names, "outboxrelay-0.1.0.dist-info/", "METADATA", "licenses/LICENSE")
	})
}

// holds asks for files of an archive, and for none of a test.
func holds(t *testing.T, names []string, prefix string, wanted ...string) {
	t.Helper()
	for _, name := range wanted {
		if !slices.Contains(names, prefix+name) {
			t.Errorf("%s%s is not in %q", prefix, name, names)
		}
	}
	for _, name := range names {
		if strings.Contains(name, "test") {
			t.Errorf("%s is in the package", name)
		}
	}
}

func TestLicencesAreTheRepositorys(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"typescript", "python"} {
		if got, err := os.ReadFile(filepath.Join(dir, "LICENSE")); err != nil || string(got) != string(want) {
			t.Errorf("%s/LICENSE is another one than the repository's (%v)", dir, err)
		}
	}
}

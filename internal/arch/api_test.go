package arch

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

var update = flag.Bool("update", false, "write api.txt anew")

// TestAPIIsTheOneThatWasReviewed compares what the library exports with api.txt. Who changes it
// changes that file too (go test ./internal/arch -update), in sight of the review.
func TestAPIIsTheOneThatWasReviewed(t *testing.T) {
	t.Parallel()
	lines, internal := api(t, sources(t))
	now := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile("api.txt", []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	reviewed, err := os.ReadFile("api.txt")
	if err != nil {
		t.Fatal(err)
	}
	before := strings.Split(strings.TrimSpace(string(reviewed)), "\n")
	for _, line := range lines {
		if !slices.Contains(before, line) {
			t.Errorf("new: %s", line)
		}
	}
	for _, line := range before {
		if !slices.Contains(lines, line) {
			t.Errorf("gone: %s", line)
		}
	}
	if t.Failed() {
		t.Error("if that is meant: go test ./internal/arch -run API -update")
	}
	for _, line := range internal {
		if !slices.ContainsFunc(knownInternal, func(known string) bool { return strings.HasPrefix(line, known) }) {
			t.Errorf("nobody outside can name a type of this: %s", line)
		}
	}
}

// knownInternal are exported declarations with types that only this module can name: hooks of the
// command.
var knownInternal = []string{
	"store/postgres: func (d *DB) OpenRetention", "store/sqlite: func (d *DB) OpenRetention",
}

// sources are the Go files of the repository.
func sources(t *testing.T) fstest.MapFS {
	t.Helper()
	all := fstest.MapFS{}
	err := filepath.WalkDir(root, func(name string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := entry.Name(); entry.IsDir() && (base == "testdata" || base == ".git") {
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(name) != ".go" {
			return nil
		}
		source, err := os.ReadFile(name)
		within, _ := filepath.Rel(root, name)
		all[filepath.ToSlash(within)] = &fstest.MapFile{Data: source}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// api returns the library's exported declarations, a line each, sorted: functions and methods,
// types, and the fields and methods of those. internal are the ones with a type of a package below
// internal.
func api(t *testing.T, sources fstest.MapFS) (lines, internal []string) {
	t.Helper()
	for path, source := range sources {
		folder := filepath.ToSlash(filepath.Dir(path))
		if !library(folder) || strings.HasSuffix(path, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, path, source.Data, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		var hidden []string // what the file calls packages below internal
		for _, imported := range parsed.Imports {
			if at := strings.Trim(imported.Path.Value, `"`); strings.Contains(at, "/internal/") {
				hidden = append(hidden, at[strings.LastIndex(at, "/")+1:]+".")
			}
		}
		f := exportedOf{fset: fset}
		for _, declaration := range parsed.Decls {
			f.add(declaration)
		}
		for _, line := range f.lines {
			line = folder + ": " + line
			lines = append(lines, line)
			if slices.ContainsFunc(hidden, func(name string) bool { return strings.Contains(line, name) }) {
				internal = append(internal, line)
			}
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines), internal
}

// exportedOf are the exported declarations of a file.
type exportedOf struct {
	fset  *token.FileSet
	lines []string
}

// line adds one of words and of what is printed as Go.
func (f *exportedOf) line(parts ...any) {
	var words []string
	for _, part := range parts {
		var b bytes.Buffer
		if node, ok := part.(ast.Node); ok {
			_ = printer.Fprint(&b, f.fset, node) // into memory
		} else {
			fmt.Fprint(&b, part)
		}
		words = append(words, strings.Fields(b.String())...)
	}
	f.lines = append(f.lines, strings.Join(words, " "))
}

func (f *exportedOf) add(declaration ast.Decl) {
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d.Recv.List[0].Type))) {
			f.line(&ast.FuncDecl{Recv: d.Recv, Name: d.Name, Type: d.Type})
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() {
					f.typed(spec)
				}
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					if name.IsExported() {
						f.line(d.Tok, name)
					}
				}
			}
		}
	}
}

func (f *exportedOf) typed(spec *ast.TypeSpec) {
	fields, kind := (*ast.FieldList)(nil), ""
	switch of := spec.Type.(type) {
	case *ast.StructType:
		fields, kind = of.Fields, "struct"
	case *ast.InterfaceType:
		fields, kind = of.Methods, "interface"
	default:
		f.line("type", spec.Name, spec.Type)
		return
	}
	f.line("type", spec.Name, kind)
	for _, field := range fields.List {
		if len(field.Names) == 0 {
			f.line(spec.Name, "embeds", field.Type)
		}
		for _, name := range field.Names {
			if name.IsExported() {
				f.line(spec.Name.Name+"."+name.Name, field.Type)
			}
		}
	}
}

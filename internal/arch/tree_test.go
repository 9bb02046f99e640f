package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"
)

// file is one Go file of the module. Files are read, not built: rules hold for every build tag and
// in code that does not compile yet.
type file struct {
	path    string // from the repository's root
	folder  string // "." at the root
	pkg     string
	test    bool
	lines   int
	doc     string   // the package comment
	imports []string // import paths; within the module from its root, such as "./store/postgres"
	inits   int
	fresh   []int // lines that call context.Background or context.TODO
	wide    []int // lines with more than maxColumns characters, but for those of a raw string
	wordy   []int // lines of prose in comments with more than maxProse columns
}

const modulePath = "github.com/outboxrelay/outbox"

// readTree reads every Go file, except in modules of their own (bench) and where the go command
// does not look either.
func readTree(tree fs.FS) (files []file, err error) {
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if entry.IsDir() && name != "." {
			_, nested := fs.Stat(tree, path.Join(name, "go.mod"))
			if nested == nil || base == "testdata" || base[0] == '.' || base[0] == '_' {
				return fs.SkipDir
			}
		}
		if entry.IsDir() || path.Ext(name) != ".go" {
			return nil
		}
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		read, err := readFile(name, source)
		files = append(files, read)
		return err
	})
	return files, err
}

func readFile(name string, source []byte) (file, error) {
	set := token.NewFileSet()
	syntax, err := parser.ParseFile(set, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return file{}, fmt.Errorf("parse %s: %w", name, err)
	}
	f := file{
		path: name, folder: path.Dir(name), pkg: syntax.Name.Name, test: strings.HasSuffix(name, "_test.go"),
		lines: bytes.Count(source, []byte("\n")), doc: syntax.Doc.Text(),
	}
	raw := map[int]bool{}
	ast.Inspect(syntax, func(node ast.Node) bool {
		if text, ok := node.(*ast.BasicLit); ok && text.Kind == token.STRING && text.Value[0] == '`' {
			for line := set.Position(text.Pos()).Line; line <= set.Position(text.End()).Line; line++ {
				raw[line] = true
			}
		}
		return true
	})
	number := 0
	for line := range bytes.Lines(source) {
		number++
		if raw[number] {
			continue
		}
		characters := utf8.RuneCount(bytes.TrimSuffix(line, []byte("\n")))
		if characters > maxColumns {
			f.wide = append(f.wide, number)
		}
		columns := characters + 3*bytes.Count(line, []byte("\t"))
		if bytes.HasPrefix(bytes.TrimLeft(line, "\t"), []byte("// ")) && columns > maxProse {
			f.wordy = append(f.wordy, number)
		}
	}
	for _, spec := range syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return file{}, fmt.Errorf("parse %s: %w", name, err)
		}
		if within, ok := strings.CutPrefix(imported+"/", modulePath+"/"); ok {
			imported = "./" + strings.TrimSuffix(within, "/")
		}
		f.imports = append(f.imports, imported)
	}
	ast.Inspect(syntax, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			if node.Recv == nil && node.Name.Name == "init" {
				f.inits++
			}
		case *ast.SelectorExpr:
			from, ok := node.X.(*ast.Ident)
			if ok && from.Name == "context" && (node.Sel.Name == "Background" || node.Sel.Name == "TODO") {
				f.fresh = append(f.fresh, set.Position(node.Pos()).Line)
			}
		}
		return true
	})
	return f, nil
}

// folderOf is the repository folder of an import within the module.
func folderOf(imported string) (folder string, within bool) {
	folder, within = strings.CutPrefix(imported, "./")
	if within && folder == "" {
		folder = "."
	}
	return folder, within
}

// below is true of a folder and all under it. "." is the root package alone.
func below(folder, top string) bool {
	return folder == top || top != "." && strings.HasPrefix(folder, top+"/")
}

func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestExportedNamesHaveUsers wants a user outside its package for each name that the library
// exports. A test or an example beside the package is one; a type may also be what another exported
// name is made of.
func TestExportedNamesHaveUsers(t *testing.T) {
	t.Parallel()
	_, unused := exported(t, sources(t))
	for _, name := range unused {
		t.Errorf("%s is exported and has no user: unexport it, or show in an example what it is for", name)
	}
}

// library tells whether the names of a folder are for users of the library.
func library(folder string) bool {
	top, _, _ := strings.Cut(folder, "/")
	return !slices.Contains([]string{"server", "internal", "cmd", "bench", "examples"}, top) &&
		!strings.Contains(folder, "internal")
}

// exported counts the library's exported names and returns those that nobody uses. It goes by names
// alone: one that is also somebody else's counts as used, which no name in doubt profits from for
// long.
func exported(t *testing.T, sources fstest.MapFS) (count int, unused []string) {
	t.Helper()
	type name struct {
		folder, of, is string   // of: the receiver
		group          []string // of constants: one that is used explains the others
	}
	var names []name
	outside, within := map[string]map[string]bool{}, map[string]map[string]bool{} // name -> folders that mention it
	mention := func(in map[string]map[string]bool, is, folder string) {
		if in[is] == nil {
			in[is] = map[string]bool{}
		}
		in[is][folder] = true
	}
	for path, source := range sources {
		parsed, err := parser.ParseFile(token.NewFileSet(), path, source.Data, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		folder, test := filepath.ToSlash(filepath.Dir(path)), strings.HasSuffix(path, "_test.go")
		ast.Inspect(parsed, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.SelectorExpr:
				mention(outside, node.Sel.Name, folder)
			case *ast.Ident:
				if test {
					mention(outside, node.Name, folder+" (test)")
				}
			case *ast.FuncType, *ast.StructType, *ast.InterfaceType:
				ast.Inspect(node, func(inner ast.Node) bool {
					if id, ok := inner.(*ast.Ident); ok {
						mention(within, id.Name, folder)
					}
					return true
				})
			}
			return true
		})
		if test || !library(folder) {
			continue
		}
		for _, declaration := range parsed.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				of := ""
				if d.Recv != nil {
					of = strings.Trim(receiver(d.Recv.List[0].Type), "*")
				}
				if d.Name.IsExported() && (of == "" || ast.IsExported(of)) {
					names = append(names, name{folder, of, d.Name.Name, nil})
				}
			case *ast.GenDecl:
				first := len(names)
				var group []string
				for _, spec := range d.Specs {
					var ids []*ast.Ident
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						ids = []*ast.Ident{spec.Name}
					case *ast.ValueSpec:
						ids = spec.Names
					}
					for _, id := range ids {
						if id.IsExported() {
							names, group = append(names, name{folder, "", id.Name, nil}), append(group, id.Name)
						}
					}
				}
				for i := first; i < len(names) && d.Tok == token.CONST; i++ {
					names[i].group = group
				}
			}
		}
	}
	used := func(folder, is string) bool {
		folders := len(outside[is])
		if outside[is][folder] {
			folders-- // the package itself
		}
		return folders > 0
	}
	for _, n := range names {
		if used(n.folder, n.is) || within[n.is][n.folder] && n.of == "" || implied[n.is] ||
			slices.ContainsFunc(n.group, func(is string) bool { return used(n.folder, is) }) {
			continue
		}
		unused = append(unused, strings.Trim(fmt.Sprintf("%s: %s.%s", n.folder, n.of, n.is), "."))
	}
	slices.Sort(unused)
	return len(names), unused
}

// implied are methods that the standard library calls, and River.
var implied = map[string]bool{"Error": true, "Unwrap": true, "String": true, "Format": true, "MarshalText": true,
	"IsMiddleware": true, "Work": true}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func TestExportedIsCaught(t *testing.T) {
	t.Parallel()
	count, unused := exported(t, fstest.MapFS{
		"sink/a/a.go": {Data: []byte(`package a
			type Sink struct{ c Config }
			type Config struct{}
			type Alone struct{}
			func New(Config) *Sink { return nil }
			func Lonely() { _ = Alone{} }
			func (Sink) Publish() {}
			func (Sink) Stats() {}
			func (Sink) Error() string { return "" }
			const (First = iota; Second)
			func (hidden) Exported() {}`)},
		"sink/a/a_test.go": {Data: []byte("package a_test\nfunc use() { a.New().Publish(); _ = a.Second }")},
		"server/b/b.go":    {Data: []byte("package b\nfunc Unused() {}")},
	})
	want := []string{"sink/a: .Alone", "sink/a: .Lonely", "sink/a: Sink.Stats"}
	if count != 10 || !slices.Equal(unused, want) {
		t.Errorf("counted %d, unused %q, want 10 and %q", count, unused, want)
	}
}

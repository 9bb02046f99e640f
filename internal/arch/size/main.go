// Command size measures the source of the repository: how much there is of it, and how far one
// thing is from another.
//
// Guaranteed: it reads what git knows of the folder, and type-checks what it says of circles.
//
// Not guaranteed: that less is better.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// unshipped are folders of tests, suites, benchmarks, examples and what builds the image.
var unshipped = regexp.MustCompile(`^(bench|deploy/image|examples|outboxtest|server/storetest|` +
	`internal/(test|arch|operatetest|tabletest|testenv|pgtest|sqlitetest|chaos|integration))/`)

const manyWays = 15 // through one function

func main() {
	dir := flag.String("dir", ".", "the `folder` of the repository")
	all := flag.Bool("v", false, "also list the functions and the circles")
	flag.Parse()
	s, err := measure(*dir)
	if err == nil {
		err = s.circles(*dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "measure the source:", err)
		os.Exit(1)
	}
	for _, row := range s.rows() {
		fmt.Printf("%s\t%s\n", row[0], row[1])
	}
	if *all {
		fmt.Println(strings.Join(slices.Concat(s.complex, s.round), "\n"))
	}
}

// sizes are what is measured. Counts are lines unless they say otherwise.
type sizes struct {
	shipped, sql, tests int
	over100, over120    int // columns, a tab being four, of shipped lines
	circle, of          int // files of the package whose files use each other in the largest circle
	circleIn            string
	complex             []string // functions
	round               []string // packages with circles
	adrWords, changeLog int      // words of ADRs
	largest, rootFiles  int
	largestName         string
	internalFolders     int
}

func (s sizes) rows() [][2]string {
	share := func(n int) string { return fmt.Sprintf("%.2f %%", 100*float64(n)/float64(max(s.shipped, 1))) }
	return [][2]string{
		{"shipped Go", fmt.Sprint(s.shipped)},
		{"SQL", fmt.Sprint(s.sql)},
		{"tests", fmt.Sprint(s.tests)},
		{"largest circle of files", fmt.Sprintf("%d of %d, %s", s.circle, s.of, path.Base(s.circleIn))},
		{fmt.Sprintf("functions over complexity %d", manyWays), fmt.Sprint(len(s.complex))},
		{"lines over 100 columns", share(s.over100)},
		{"lines over 120 columns", share(s.over120)},
		{"words of ADRs", fmt.Sprint(s.adrWords)},
		{"lines of CHANGELOG.md", fmt.Sprint(s.changeLog)},
		{"largest file", fmt.Sprintf("%d, %s", s.largest, s.largestName)},
		{"Go files in the root beside tests", fmt.Sprint(s.rootFiles)},
		{"folders in internal/", fmt.Sprint(s.internalFolders)},
	}
}

// measure counts everything but circles of files.
func measure(dir string) (s sizes, err error) {
	command := exec.Command("git", "-C", dir, "ls-files")
	listed, err := command.Output()
	if err != nil {
		return s, fmt.Errorf("list files: %w", err)
	}
	folders := map[string]bool{}
	for name := range strings.Lines(string(listed)) {
		name = strings.TrimSuffix(name, "\n")
		text, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted and not committed yet
		} else if err != nil {
			return s, err
		}
		if err := s.add(name, text, folders); err != nil {
			return s, err
		}
	}
	s.internalFolders = len(folders)
	return s, nil
}

func (s *sizes) add(name string, text []byte, folders map[string]bool) error {
	lines := bytes.Count(text, []byte("\n"))
	if parts := strings.Split(name, "/"); parts[0] == "internal" && filepath.Ext(name) == ".go" {
		folders[parts[1]] = true
	}
	switch ext := filepath.Ext(name); {
	case strings.HasSuffix(name, "_test.go"):
		s.tests += lines
	case ext == ".go" && !unshipped.MatchString(name):
		s.shipped += lines
		if !strings.Contains(name, "/") {
			s.rootFiles++
		}
		if lines > s.largest {
			s.largest, s.largestName = lines, name
		}
		for line := range strings.Lines(string(text)) {
			columns := len([]rune(strings.TrimSuffix(line, "\n"))) + 3*strings.Count(line, "\t")
			if columns > 100 {
				s.over100++
			}
			if columns > 120 {
				s.over120++
			}
		}
		return s.functions(name, text)
	case (ext == ".sql" || ext == ".lua") && !unshipped.MatchString(name) && !strings.Contains(name, "testdata"):
		s.sql += lines
	case strings.HasPrefix(name, "docs/adr/"):
		s.adrWords += len(bytes.Fields(text))
	case name == "CHANGELOG.md":
		s.changeLog = lines
	}
	return nil
}

// functions notes those with many ways through them: each if, loop, case, && and || is one more
// (McCabe 1976).
func (s *sizes) functions(name string, text []byte) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, declaration := range parsed.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ways := 1
		ast.Inspect(function, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
				ways++
			case *ast.CaseClause:
				ways += min(len(n.List), 1)
			case *ast.CommClause:
				if n.Comm != nil {
					ways++
				}
			case *ast.BinaryExpr:
				if n.Op == token.LAND || n.Op == token.LOR {
					ways++
				}
			}
			return true
		})
		if ways > manyWays {
			s.complex = append(s.complex, fmt.Sprintf("%s: %s (%d)", name, function.Name.Name, ways))
		}
	}
	return nil
}

// listedPackage is what go list says of a package.
type listedPackage struct {
	Dir, ImportPath, Export string
	GoFiles                 []string
	DepOnly                 bool
}

// circles finds the package whose files use each other in the largest circle.
func (s *sizes) circles(dir string) error {
	command := exec.Command("go", "list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles,DepOnly", "./...")
	command.Dir, command.Stderr = dir, os.Stderr
	listed, err := command.Output()
	if err != nil {
		return fmt.Errorf("list packages: %w", err)
	}
	exports := map[string]string{}
	var own []listedPackage
	for decoder := json.NewDecoder(bufio.NewReader(bytes.NewReader(listed))); ; {
		var p listedPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			own = append(own, p)
		}
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	for _, p := range own {
		largest, err := circleOf(p, lookup)
		if err != nil {
			return err
		}
		if len(largest) > 1 {
			s.round = append(s.round, fmt.Sprintf("%s: %d of %d files: %s", p.ImportPath, len(largest), len(p.GoFiles),
				strings.Join(largest, " ")))
		}
		if len(largest) > s.circle {
			s.circle, s.of, s.circleIn = len(largest), len(p.GoFiles), p.ImportPath
		}
	}
	return nil
}

// circleOf returns the files of a package that are in its largest circle of mutual use.
func circleOf(p listedPackage, lookup importer.Lookup) ([]string, error) {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		parsed, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, parsed)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	checker := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup)}
	checked, err := checker.Check(p.ImportPath, fset, files, info)
	if err != nil {
		return nil, fmt.Errorf("type-check %s: %w", p.ImportPath, err)
	}
	uses := map[string][]string{} // by file: the files that it uses
	for id, object := range info.Uses {
		if object.Pkg() != checked || !object.Pos().IsValid() {
			continue
		}
		from, to := filepath.Base(fset.Position(id.Pos()).Filename), filepath.Base(fset.Position(object.Pos()).Filename)
		if from != to && !slices.Contains(uses[from], to) {
			uses[from] = append(uses[from], to)
		}
	}
	return largestCircle(uses), nil
}

// largestCircle is the largest strongly connected component (Tarjan 1972).
func largestCircle(uses map[string][]string) (largest []string) {
	index, low, onStack := map[string]int{}, map[string]int{}, map[string]bool{}
	var stack []string
	var visit func(file string)
	visit = func(file string) {
		index[file] = len(index) + 1
		low[file] = index[file]
		stack, onStack[file] = append(stack, file), true
		for _, next := range uses[file] {
			if index[next] == 0 {
				visit(next)
				low[file] = min(low[file], low[next])
			} else if onStack[next] {
				low[file] = min(low[file], index[next])
			}
		}
		if low[file] != index[file] {
			return
		}
		at := slices.Index(stack, file)
		if len(stack)-at > len(largest) {
			largest = slices.Sorted(slices.Values(stack[at:]))
		}
		for _, member := range stack[at:] {
			onStack[member] = false
		}
		stack = stack[:at]
	}
	for file := range uses {
		if index[file] == 0 {
			visit(file)
		}
	}
	return largest
}

package arch

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// tierCount counts the tests of each tier. Fuzz tests, examples and benchmarks are not counted.
type tierCount struct {
	tests    map[string]int // by the tier that the test's first statement names; "test" without one
	quick    map[string]int // tests of the tier "test" by their folder
	subtests []string       // tests with subtests that name a tier
	breaches []string
}

// countTiers reads the test files below the root, those of other modules too.
func countTiers(tree fs.FS) (tierCount, error) {
	count := tierCount{tests: map[string]int{}, quick: map[string]int{}}
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if entry.IsDir() && name != "." && (base == "testdata" || base == "node_modules" || base[0] == '.') {
			return fs.SkipDir
		}
		if entry.IsDir() || path.Ext(name) != ".go" {
			return nil
		}
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		return count.add(name, source)
	})
	return count, err
}

func (c *tierCount) add(name string, source []byte) error {
	syntax, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse %s: %w", name, err)
	}
	for _, decl := range syntax.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Body == nil || path.Dir(name) == "internal/test/tier" {
			continue
		}
		calls, stated := 0, ""
		ast.Inspect(f.Body, func(node ast.Node) bool {
			if tierOf(node) != "" {
				calls++
			}
			return true
		})
		if len(f.Body.List) > 0 {
			if first, ok := f.Body.List[0].(*ast.ExprStmt); ok {
				stated = tierOf(first.X)
			}
		}
		isTest := strings.HasSuffix(name, "_test.go") && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") &&
			f.Name.Name != "TestMain"
		if isTest {
			c.tests[cmp.Or(stated, "test")]++
			if stated == "" {
				c.quick[path.Dir(name)]++
			}
		}
		where := name + ": " + f.Name.Name
		switch {
		case calls == 0 || isTest && stated != "" && calls == 1:
		case stated != "":
			c.breaches = append(c.breaches, where+" names its tier twice, or is a helper that names one for its callers")
		default:
			c.subtests = append(c.subtests, where)
		}
	}
	return nil
}

// tierOf returns the tier that a call of package tier names, and "" for any other node.
func tierOf(node ast.Node) string {
	call, ok := node.(*ast.CallExpr)
	if !ok {
		return ""
	}
	selected, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if pkg, ok := selected.X.(*ast.Ident); !ok || pkg.Name != "tier" {
		return ""
	}
	return map[string]string{"Full": "full", "All": "all"}[selected.Sel.Name]
}

// TestTiersLeaveOutCountedTests prints how many tests each tier leaves out. See internal/test/tier.
func TestTiersLeaveOutCountedTests(t *testing.T) {
	t.Parallel()
	count, err := countTiers(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, breach := range count.breaches {
		t.Error(breach)
	}
	quick, full, all := count.tests["test"], count.tests["full"], count.tests["all"]
	if quick == 0 || full == 0 || all == 0 {
		t.Errorf("a tier has no tests: %v", count.tests)
	}
	t.Logf("%d tests: make test leaves out %d, make test-full %d, make test-all 0", quick+full+all, full+all, all)
	t.Logf("tests with subtests that name a later tier: %s", strings.Join(count.subtests, ", "))
}

// scripts/test.sh does not link packages for the tier "test" if all their tests belong to later ones.
func TestPackagesLeftOutHaveNoQuickTests(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(root + "/scripts/test.sh")
	if err != nil {
		t.Fatal(err)
	}
	pattern := regexp.MustCompile(`(?m)^later='(.+)'$`).FindSubmatch(script)
	if pattern == nil {
		t.Fatal("scripts/test.sh has no line later='pattern'")
	}
	later := regexp.MustCompile(string(pattern[1]))
	count, err := countTiers(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for folder, n := range count.quick {
		if later.MatchString("/" + folder) {
			t.Errorf("scripts/test.sh leaves %s out of the tier test, but it has %d tests of that tier", folder, n)
		}
	}
}

func TestCountTiersSeesEachStatement(t *testing.T) {
	t.Parallel()
	count, err := countTiers(fstest.MapFS{
		"a_test.go": {Data: []byte(`package a
			func TestQuick(t *testing.T) { t.Parallel() }
			func TestFull(t *testing.T) { tier.Full(t); t.Parallel() }
			func TestAll(t *testing.T) { tier.All(t) }
			func TestRows(t *testing.T) { t.Run("row", func(t *testing.T) { tier.Full(t) }) }
			func TestTwice(t *testing.T) { tier.Full(t); tier.All(t) }
			func setUp(t *testing.T) { tier.Full(t) }`)},
		"testdata/b_test.go": {Data: []byte("no Go")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if c := count.tests; c["test"] != 2 || c["full"] != 2 || c["all"] != 1 {
		t.Errorf("the tiers have %v", c)
	}
	if !slices.Equal(count.subtests, []string{"a_test.go: TestRows"}) || len(count.breaches) != 2 {
		t.Errorf("subtests %q, breaches %q", count.subtests, count.breaches)
	}
}

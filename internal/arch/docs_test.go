package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	docLink  = regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`) // a colon: an address elsewhere
	mention  = regexp.MustCompile(`\bdocs/[A-Za-z0-9_/-]+\.md(?:#([a-z0-9-]+))?`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	testName = regexp.MustCompile("`((?:Test|Fuzz)[A-Z0-9][A-Za-z0-9]*)`")
)

// A document that points to a file or names a test is wrong the day that is renamed, and nobody
// notices.
func TestDocumentsPointAtWhatExists(t *testing.T) {
	t.Parallel()
	const root = "../.."
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	var tests strings.Builder
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		tests.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	links, names := 0, 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range docLink.FindAllStringSubmatch(string(text), -1) {
			links++
			to := page
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(page), m[1])
			}
			checkTarget(t, page, to, m[2])
		}
		for _, m := range testName.FindAllStringSubmatch(string(text), -1) {
			names++
			if !strings.Contains(tests.String(), "func "+m[1]+"(") {
				t.Errorf("%s: there is no test %s", page, m[1])
			}
		}
	}
	if links == 0 || names == 0 {
		t.Errorf("found %d links and %d names of tests in %d pages: the patterns find nothing", links, names, len(pages))
	}
}

// checkTarget complains of a page that names a file that is not there, or a heading that the file
// does not have.
func checkTarget(t *testing.T, page, to, anchor string) {
	t.Helper()
	if _, err := os.Stat(to); err != nil {
		t.Errorf("%s: nothing is at %s", page, to)
		return
	}
	if anchor == "" || filepath.Ext(to) != ".md" {
		return
	}
	text, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
		id := regexp.MustCompile(`[^a-z0-9_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		if strings.ReplaceAll(id, " ", "-") == anchor {
			return
		}
	}
	t.Errorf("%s: %s has no heading for #%s", page, to, anchor)
}

// elsewhere are names of documents that nobody who has the repository can open: docs/seeds.md and
// docs/adr have what they say.
var elsewhere = regexp.MustCompile(`SEED_FACTS|DESIGN(\.md| §)|\b[Ii]ssue \d+,|\bseed 00\d|\bADR \d`)

// A block of Go that names a file of tests above it is in that file, paragraph by paragraph, and so
// it is compiled.
func TestCodeOfDocumentsIsCompiled(t *testing.T) {
	t.Parallel()
	block := regexp.MustCompile("(?ms)^<!-- (\\S+_test\\.go) -->\n```go\n(.*?)^```$")
	indent := regexp.MustCompile(`(?m)^\t+`)
	found := 0
	pages, err := filepath.Glob("../../docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range block.FindAllStringSubmatch(string(text), -1) {
			found++
			code, err := os.ReadFile("../../" + m[1])
			if err != nil {
				t.Fatalf("%s: %v", page, err)
			}
			compiled := indent.ReplaceAllString(string(code), "")
			for paragraph := range strings.SplitSeq(strings.TrimSpace(indent.ReplaceAllString(m[2], "")), "\n\n") {
				if !strings.Contains(compiled, paragraph) {
					t.Errorf("%s: %s lacks\n%s", page, m[1], paragraph)
				}
			}
		}
	}
	if found < 4 {
		t.Errorf("found %d blocks of code that name their file, want 4 or more", found)
	}
}

// The headers of migrations are as they were when somebody may have applied or exported them.
func TestSourcesAreInTheRepository(t *testing.T) {
	t.Parallel()
	const root = "../.."
	kinds := map[string]bool{".go": true, ".sql": true, ".md": true, ".lua": true, ".sh": true}
	read := 0
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "node_modules") {
			return filepath.SkipDir
		}
		kind := filepath.Ext(path)
		migration := kind == ".sql" && strings.Contains(path, "migrations/")
		if !kinds[kind] || migration || strings.HasSuffix(path, "internal/arch/docs_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		read++
		for _, found := range elsewhere.FindAllString(string(text), -1) {
			t.Errorf("%s names %q, which is not in the repository", path, found)
		}
		for _, m := range mention.FindAllStringSubmatch(string(text), -1) {
			file, _, _ := strings.Cut(m[0], "#")
			checkTarget(t, path, filepath.Join(root, file), m[1])
		}
		return nil
	})
	if err != nil || read == 0 {
		t.Errorf("read %d files: %v", read, err)
	}
}

// The headers of migrations are left as they are here too.
func TestCommentsOfSQLAreNarrow(t *testing.T) {
	t.Parallel()
	read := 0
	err := filepath.WalkDir("../..", func(path string, entry os.DirEntry, err error) error {
		name := filepath.Base(path)
		if err != nil || filepath.Ext(name) != ".sql" || name[0] >= '0' && name[0] <= '9' {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		read++
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			if strings.HasPrefix(strings.TrimSpace(line), "--") && len([]rune(strings.TrimSuffix(line, "\n"))) > maxColumns {
				t.Errorf("%s:%d: a comment of more than %d columns", path, number, maxColumns)
			}
		}
		return nil
	})
	if err != nil || read == 0 {
		t.Errorf("read %d files: %v", read, err)
	}
}

// A server whose encoding lacks a character refuses SQL that contains it, even within a comment.
func TestSQLIsASCII(t *testing.T) {
	t.Parallel()
	read := 0
	err := filepath.WalkDir("../..", func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == "testdata" { // the seeds' own text
			return filepath.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".sql" {
			return err
		}
		text, err := os.ReadFile(path)
		read++
		for number, line := range strings.Split(string(text), "\n") {
			if i := strings.IndexFunc(line, func(r rune) bool { return r > '~' }); i >= 0 {
				t.Errorf("%s:%d: %q is not ASCII", path, number+1, line[i:])
			}
		}
		return err
	})
	if err != nil || read == 0 {
		t.Errorf("read %d files: %v", read, err)
	}
}

// A tag of an action can be moved to other code, a commit cannot. A secret in the environment of a
// whole job or workflow is known to every action and script in it.
func TestWorkflowsPinActionsAndKeepSecretsInSteps(t *testing.T) {
	t.Parallel()
	workflows, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	if err != nil || len(workflows) == 0 {
		t.Fatalf("%d workflows, error %v", len(workflows), err)
	}
	pinned := regexp.MustCompile(`^[\w./-]+@[0-9a-f]{40} # v[\d.]+$`)
	for _, name := range workflows {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(text), "\n") {
			if _, action, uses := strings.Cut(line, "uses: "); uses && !pinned.MatchString(action) {
				t.Errorf("%s:%d: %q is not pinned by commit, want owner/name@commit # version", name, n+1, action)
			}
			step := strings.HasPrefix(line, "          ") // ten blanks: an env of a step
			if strings.Contains(line, "${{ secrets.") && !step || strings.Contains(line, "GITHUB_ENV") {
				t.Errorf("%s:%d: other steps see this secret or variable: %s", name, n+1, strings.TrimSpace(line))
			}
		}
	}
}

var (
	advisoryLock = regexp.MustCompile(`pg_(?:try_)?advisory_\w+\(`)
	listedLock   = regexp.MustCompile(`\]\(([\w/]+/sql/\w*lock\w*\.sql)\)`)
)

// Every login may take an advisory lock and keep it. SECURITY.md lists those that the product takes.
func TestAdvisoryLocksAreListed(t *testing.T) {
	t.Parallel()
	const root = "../.."
	page, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, link := range listedLock.FindAllStringSubmatch(string(page), -1) {
		listed[link[1]] = true
	}
	err = filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		ext := filepath.Ext(path)
		if err != nil || ext != ".go" && ext != ".sql" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		if advisoryLock.Match(text) && !listed[filepath.ToSlash(name)] {
			t.Errorf("%s takes an advisory lock that SECURITY.md does not list", name)
		}
		return err
	})
	if err != nil || len(listed) != 4 {
		t.Errorf("%d advisory locks are listed: %v", len(listed), err)
	}
}

// Package arch holds no code, only tests of how the repository is built: imports run one way,
// nobody pays for a broker he does not use, files stay small, every folder says what it guarantees.
// The rules are data, each with its reason, in rules_test.go; who breaks one either mends the code
// or changes the rule there, in sight of the review.
//
// Not checked here: what a function does, and modules of their own such as bench.
package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const root = "../.."

func TestSourceKeepsTheRules(t *testing.T) {
	t.Parallel()
	files, err := readTree(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(files, func(f file) bool { return f.path == "internal/arch/arch_test.go" }) {
		t.Fatalf("%s is not the repository's root", root)
	}
	for _, breach := range check(files) {
		t.Error(breach)
	}
}

// TestUsersPayForWhatTheyUse asks the go command, because only it knows what the imports of our
// imports are.
func TestUsersPayForWhatTheyUse(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-test", "-json=ImportPath,ForTest,Deps", "./...")
	cmd.Dir = root
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list packages: %v\n%s", err, stderr.String())
	}
	packages := 0
	for list := json.NewDecoder(strings.NewReader(string(out))); ; packages++ {
		var listed struct {
			ImportPath, ForTest string
			Deps                []string
		}
		if err := list.Decode(&listed); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		of := listed.ForTest // set for what is built for the tests of a package
		if of == "" {
			of = strings.TrimSuffix(listed.ImportPath, ".test")
		}
		folder := strings.TrimPrefix(strings.TrimPrefix(of, modulePath), "/")
		if listed.ForTest == "" && of == listed.ImportPath {
			for _, breach := range checkLinked(folder, listed.Deps) {
				t.Errorf("%s: %s", listed.ImportPath, breach)
			}
		}
		for _, breach := range append(checkPayer(folder, listed.Deps), checkReached(folder, listed.Deps)...) {
			t.Errorf("%s: %s", listed.ImportPath, breach)
		}
	}
	if packages == 0 {
		t.Error("go list knows no packages")
	}
}

// checkPayer returns what a folder reaches through deps and may not.
func checkPayer(folder string, deps []string) (found []string) {
	// internal/test/testenv's own tests try its servers with real clients: nobody imports those
	// tests, so nobody pays for them.
	if at, _, known := place(folder); known && at.rank >= appRank || folder == "internal/test/testenv" {
		return nil
	}
	for _, rule := range payers {
		if slices.ContainsFunc(rule.folders, func(may string) bool { return below(folder, may) }) {
			continue
		}
		for _, dep := range deps {
			if below(dep, rule.module) {
				found = append(found, fmt.Sprintf("reaches %s (%s)", rule.module, rule.reason))
				break
			}
		}
	}
	return found
}

// checkLinked returns what a program that imports a folder would hold through deps and must not.
func checkLinked(folder string, deps []string) (found []string) {
	if folder == "" {
		folder = "."
	}
	for _, rule := range unlinked {
		if !slices.Contains(rule.folders, folder) {
			continue
		}
		for _, p := range rule.packages {
			if slices.Contains(deps, p) {
				found = append(found, fmt.Sprintf("reaches %s: %s", p, rule.reason))
			}
		}
	}
	return found
}

// checkReached returns what a folder reaches of this module through deps and must not.
func checkReached(folder string, deps []string) (found []string) {
	if folder == "" {
		folder = "."
	}
	for _, rule := range unreached {
		if !slices.ContainsFunc(rule.from, func(top string) bool { return below(folder, top) }) {
			continue
		}
		for _, dep := range deps {
			if below(dep, modulePath+"/"+rule.folder) {
				found = append(found, fmt.Sprintf("reaches %s: %s", dep, rule.reason))
			}
		}
	}
	return found
}

func TestReachedIsCaught(t *testing.T) {
	t.Parallel()
	deps := []string{"context", modulePath + "/eventbus", modulePath + "/server/crawl"}
	for folder, caught := range map[string]bool{
		"": true, "eventbus": true, "store/postgres": true, "store/sqlite/migrations": true, "sink/kafka": true,
		"outboxtest": true, "contrib/river": true,
		"server/gateway": false, "server/pgstore": false, "internal/app": false, "internal/test/chaos": false,
		"cmd/outbox": false,
	} {
		if found := checkReached(folder, deps); len(found) > 0 != caught {
			t.Errorf("%q reaching server/crawl: %v, want caught = %v", folder, found, caught)
		}
	}
	if found := checkReached("", []string{modulePath + "/serverless", modulePath}); len(found) > 0 {
		t.Errorf("caught by mistake: %q", found)
	}
	for _, rule := range unreached {
		for _, folder := range slices.Concat(rule.from, []string{rule.folder}) {
			if _, err := os.Stat(path.Join(root, folder)); err != nil {
				t.Errorf("a rule names a folder that is not there: %v", err)
			}
		}
	}
}

func TestLinkedIsCaught(t *testing.T) {
	t.Parallel()
	deps := []string{"fmt", "text/template/parse", "text/template"}
	for folder, caught := range map[string]bool{"": true, "store/postgres": true, "store/sqlite/migrations": true,
		"internal/cli": false, "server/gateway": false} {
		if found := checkLinked(folder, deps); len(found) > 0 != caught {
			t.Errorf("%q reaching text/template: %v, want caught = %v", folder, found, caught)
		}
	}
	for _, rule := range unlinked {
		for _, folder := range rule.folders {
			if _, err := os.Stat(path.Join(root, folder)); err != nil {
				t.Errorf("a rule names a folder that is not there: %v", err)
			}
		}
	}
}

func TestPayersAreCaught(t *testing.T) {
	t.Parallel()
	redis := []string{"context", "github.com/redis/go-redis/v9/internal/pool"}
	for folder, caught := range map[string]bool{
		"": true, "store/postgres": true, "sink/kafka": true, "server/crawl": true, "server/pgstore": true,
		"sink/redispubsub": false, "sink/redispubsub/script": false, "internal/app": false, "cmd/outbox": false,
	} {
		if found := checkPayer(folder, redis); len(found) > 0 != caught {
			t.Errorf("%q reaching go-redis: %v, want caught = %v", folder, found, caught)
		}
	}
}

// Each case is a module that breaks one rule, so that a rule which no longer finds anything fails
// here.
func TestBreachesAreCaught(t *testing.T) {
	t.Parallel()
	const doc = "// Package x is here.\n"
	long := strings.Repeat("//\n", maxLines) + "\n" + doc + "package x\n"
	cases := map[string]struct{ path, source, want string }{
		"root imports a driver": {"a.go", doc + `package x; import _ "github.com/jackc/pgx/v5"`,
			"pays for all it imports"},
		"root imports a store": {"a.go", doc + `package x; import _ "github.com/outboxrelay/outbox/store/postgres"`,
			"not below it"},
		"store imports sink": {"store/postgres/a.go",
			doc + `package x; import _ "github.com/outboxrelay/outbox/sink/kafka"`, "not below it"},
		"sink imports sink": {"sink/natsjs/a.go",
			doc + `package x; import _ "github.com/outboxrelay/outbox/sink/kafka"`, "not below it"},
		"sink imports store": {"sink/natsjs/a.go",
			doc + `package x; import _ "github.com/outboxrelay/outbox/store/postgres"`, "not below it"},
		"store imports store": {"store/sqlite/a.go",
			doc + `package x; import _ "github.com/outboxrelay/outbox/store/postgres"`, "not below it"},
		"cli imports a sink": {"internal/cli/a.go",
			doc + `package x; import _ "github.com/outboxrelay/outbox/sink/kafka"`, "one place decides"},
		"code imports testenv": {"internal/app/a.go",
			doc + `package x; import _ "github.com/outboxrelay/outbox/internal/test/testenv"`, "needs servers"},
		"a layer imports the next": {"server/crawl/a.go",
			doc + `package x; import _ "github.com/outboxrelay/outbox/server/gateway"`,
			"not below it"},
		"store imports the server": {"store/postgres/a.go",
			doc + `package x; import _ "github.com/outboxrelay/outbox/server/crawl"`, "not below it"},
		"one store of the server imports the other": {"server/pgstore/a.go",
			doc + `package x; import _ "github.com/outboxrelay/outbox/server/sqlitestore"`, "not below it"},
		"fault imports a module": {"internal/fault/a.go", doc + `package x; import _ "github.com/google/uuid"`,
			"compiled into the library"},
		"a folder without a place": {"util/a.go", doc + `package x`, "no place in layers"},
		"an import without a place": {"server/gateway/a.go",
			doc + `package x; import _ "github.com/outboxrelay/outbox/common"`,
			"no place in layers"},
		"init": {"a.go", doc + `package x; func init() {}`, "importing a package must do nothing"},
		"init under a build tag": {"a.go", "//go:build never\n\n" + doc + `package x; func init() {}`,
			"importing a package must do nothing"},
		"context of its own": {"a.go", doc + `package x; import "context"; var c = context.TODO()`,
			"cannot be cancelled"},
		"a long file": {"a.go", long, "more than 600"},
		"a wide line": {"a_test.go", doc + "package x\n\n// " + strings.Repeat("x", 118), "more than 120"},
		"a wide comment": {"a.go", doc + "package x\n\n\t// " + strings.Repeat("x", 94),
			"prose of more than 100"},
		"a long median":             {"a.go", long, "more than 150"},
		"no package comment":        {"a.go", `package x`, "0 package comments"},
		"a comment of another name": {"a.go", "// Package y is elsewhere.\npackage x", "does not begin with"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := breaches(t, fstest.MapFS{c.path: {Data: []byte(c.source)}})
			if !slices.ContainsFunc(found, func(breach string) bool { return strings.Contains(breach, c.want) }) {
				t.Errorf("want a breach with %q, got %q", c.want, found)
			}
		})
	}
	two := fstest.MapFS{"a.go": {Data: []byte(doc + "package x")}, "b.go": {Data: []byte(doc + "package x")}}
	if found := breaches(t, two); len(found) != 1 || !strings.Contains(found[0], "2 package comments") {
		t.Errorf("two package comments: %q", found)
	}
}

func TestAllowedIsNotCaught(t *testing.T) {
	t.Parallel()
	const doc, imports = "// Package x is here.\npackage x; import _ \"", "github.com/outboxrelay/outbox"
	tree := fstest.MapFS{
		"a.go": {Data: []byte(doc + imports +
			`/internal/fault"; import _ "github.com/google/uuid"`)},
		"a_test.go": {Data: []byte(`package x_test; import _ "` + imports +
			`/store/postgres"; import "context"; var c = context.Background()`)},
		"store/postgres/a.go": {Data: []byte(doc + imports + `"; import _ "` + imports +
			`/store/postgres/migrations"`)},
		"store/postgres/migrations/a.go": {Data: []byte(doc + `embed"`)},
		"server/pgstore/a.go": {Data: []byte(doc + imports + `/server/crawl"` + "\nimport _ \"" + imports +
			`/store/postgres"`)},
		"sink/kafka/a.go":   {Data: []byte(doc + imports + `/sink"`)},
		"internal/cli/a.go": {Data: []byte(doc + imports + `/sink"`)},
		"internal/app/a.go": {Data: []byte(doc + imports + `/sink/kafka"; import _ "` + imports +
			`/store/postgres"`)},
		"cmd/outbox/main.go": {Data: []byte("// Command outbox runs.\npackage main; import \"context\"; var c = " +
			"context.Background()")},
		"bench/go.mod":                 {Data: []byte("module elsewhere")},
		"bench/a.go":                   {Data: []byte("package b; func init() {}")},
		"store/postgres/testdata/a.go": {Data: []byte("this is no Go")},
	}
	if found := breaches(t, tree); len(found) > 0 {
		t.Errorf("caught by mistake: %q", found)
	}
}

func breaches(t *testing.T, tree fstest.MapFS) []string {
	t.Helper()
	files, err := readTree(tree)
	if err != nil {
		t.Fatal(err)
	}
	return check(files)
}

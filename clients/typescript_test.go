package clients

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write typescript/src/openapi.ts anew")

// The types are those of what the gateway says of itself.
func TestTypesAreOfTheGateway(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t), t.TempDir()
	description, made := filepath.Join(dir, "openapi.json"), filepath.Join(dir, "openapi.ts")
	if err := os.WriteFile(description, get(t, "http://"+w.address+"/openapi.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	tool(t, "typescript", "npm", "run", "generate", "--", description, "--output", made)
	want, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	const committed = "typescript/src/openapi.ts"
	if *update {
		if err := os.WriteFile(committed, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(committed); err != nil || string(got) != string(want) {
		t.Errorf("%s is stale: go -C clients test -run %s -update (%v)", committed, t.Name(), err)
	}
}

func TestStreams(t *testing.T) {
	t.Parallel()
	newWorld(t).run("typescript", "node", "--test", "test/stream.test.mjs")
}

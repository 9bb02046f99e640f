package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/test/pgtest"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// fenced are the blocks of a Markdown file that are in one language.
func fenced(t *testing.T, path, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	noError(t, err)
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

const producersPage = "../../../docs/guide/producers.md"

// What docs/guide/producers.md has people send is taken as it stands, from the role that it names
// before the block, and its events arrive.
func TestStatementsOfTheDocs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	noError(t, pgtest.ApplyRoles(t.Context(), w.url))
	w.exec(t, "CREATE TABLE orders (id bigint PRIMARY KEY, total numeric)") // the application's own, by its own rights
	w.exec(t, "GRANT INSERT ON orders TO PUBLIC")
	w.relay(t, nil)
	conn, err := pgx.Connect(t.Context(), w.url)
	noError(t, err)
	defer conn.Close(t.Context())
	page, err := os.ReadFile(producersPage)
	noError(t, err)
	roles := regexp.MustCompile("(?m)^<!-- as (outbox_[a-z_]+) -->\n```sql$").FindAllStringSubmatch(string(page), -1)
	blocks := fenced(t, producersPage, "sql")
	if len(roles) != len(blocks) {
		t.Fatalf("%d of %d blocks name the role that runs them", len(roles), len(blocks))
	}
	for n, block := range blocks {
		if _, err := conn.Exec(t.Context(), "SET ROLE "+roles[n][1]); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.PgConn().Exec(t.Context(), block).ReadAll(); err != nil {
			t.Fatalf("as %s: %v\n%s", roles[n][1], err, block)
		}
	}
	var got []string
	for _, m := range w.wait(t, 7, 500*time.Millisecond) {
		got = append(got, m.Channel+" "+m.Type)
	}
	slices.Sort(got)
	const run = "run:00000000-0000-7000-8000-000000000001 "
	want := []string{"audit order.shipped", "invoice.created invoice.created", "order.paid order.paid",
		"order.placed order.placed",
		"order.shipped order.shipped", run + "NODE_VISITED", run + "RUN_STARTED"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	w.eventually(t, "the letter of the job is there", `SELECT count(*) = 1 FROM job_dlq WHERE source = 'job'`)
}

// The table of Debezium's outbox event router is served as docs/guide/coming-from-debezium.md says.
func TestComingFromDebezium(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	const page = "../../../docs/guide/coming-from-debezium.md"
	w := newWorld(t)
	for _, block := range fenced(t, page, "sql") {
		w.exec(t, block)
	}
	file := filepath.Join(t.TempDir(), "outbox.yaml")
	noError(t, os.WriteFile(file, []byte(strings.Join(fenced(t, page, "yaml"), "")), 0o600))
	w.relay(t, nil, "--config", file)
	m := w.wait(t, 1, 0)[0]
	if m.Channel != "outbox.event.Order" || m.Type != "OrderPlaced" {
		t.Errorf("got %+v", m)
	}
	w.eventually(t, "the row is delivered", "SELECT delivered_at IS NOT NULL FROM outboxevent")
}

// The programs of docs/guide/producers.md, run as they stand where their language and its driver
// are on this machine.
func TestProgramsOfTheDocs(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	for _, p := range []struct {
		language, file string
		driver         []string // the command that gets the driver, or finds it
		interpreter    string
	}{
		{"python", "produce.py", []string{"python3", "-c", "import psycopg"}, "python3"},
		{"typescript", "produce.mjs", []string{"npm", "install", "--no-audit", "--no-fund", "pg@8"}, "node"},
	} {
		t.Run(p.language, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			run := func(command ...string) (string, error) {
				cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
				cmd.Dir = dir
				out, err := cmd.CombinedOutput()
				return strings.TrimSpace(string(out)), err
			}
			if out, err := run(p.driver...); err != nil {
				t.Skipf("no %s with its driver on this machine: %v: %s", p.language, err, out[strings.LastIndexByte(out, '\n')+1:])
			}
			w := newWorld(t)
			w.relay(t, nil)
			w.exec(t, "CREATE TABLE orders (id bigint PRIMARY KEY, total numeric)")
			program := strings.Join(fenced(t, producersPage, p.language), "\n")
			noError(t, os.WriteFile(filepath.Join(dir, p.file), []byte(program), 0o600))
			if out, err := run("env", "DATABASE_URL="+w.url, p.interpreter, p.file); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if m := w.wait(t, 1, 300*time.Millisecond)[0]; m.Channel != "order.placed" ||
				!strings.Contains(string(m.Data), "total") {
				t.Errorf("got %+v", m)
			}
			w.eventually(t, "the order is there", `SELECT count(*) = 1 FROM orders`)
		})
	}
}

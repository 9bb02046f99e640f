package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// load parses a command line as a command with all flags would.
func load(t *testing.T, file string, environ []string, args ...string) (Config, error) {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	for _, set := range []*pflag.FlagSet{All(), ServeFlags(), Global(), Client()} {
		fs.AddFlagSet(set)
	}
	if file != "" {
		environ = append(environ, "OUTBOX_CONFIG="+write(t, file))
	}
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Load(kinds, environ, fs)
}

func write(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "outbox.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPrecedence(t *testing.T) {
	file := "poll_max: 4s\nbatch: 4\nlisten: file:1\ntable: [a, b]\ndestination: {billing.outbox: " +
		"'x.{topic}'}\nlog_level: warn\n"
	environ := []string{"OUTBOX_BATCH=3", "OUTBOX_LISTEN=env:1", "OUTBOX_DEDUP_WINDOW=", "OUTBOX_TABLE=c,d",
		"OUTBOX_UNKNOWN=1", "PATH=/bin"}
	c, err := load(t, file, environ, "--listen", "flag:1")
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range []struct {
		name string
		ok   bool
	}{
		{"a flag wins", c.Listen == "flag:1"},
		{"then the environment", c.Batch == 3},
		{"then the file", c.PollMax == 4*time.Second && c.LogLevel == "warn"},
		{"then the default", c.LeaseTTL == 10*time.Second && c.Envelope.All == "cloudevents"},
		{"an empty variable is unset", c.DedupWindow == 2*time.Minute},
		{"a list is replaced, not extended", strings.Join(c.Table, " ") == "c d"},
		{"a key of a map keeps its point", c.Destination.Of("billing.outbox") == "x.{topic}"},
	} {
		if !check.ok {
			t.Errorf("%s: got %+v", check.name, c)
		}
	}
}

func TestURLVariables(t *testing.T) {
	for _, c := range []struct {
		environ        []string
		args           []string
		database, sink string
	}{
		{[]string{"DATABASE_URL=d", "OUTBOX_SINK=r"}, nil, "d", "r"},
		{[]string{"DATABASE_URL=d", "OUTBOX_DATABASE_URL=od", "OUTBOX_SINK=or", "REDIS_URL=r"}, nil, "od", "or"},
		{[]string{"DATABASE_URL=d", "OUTBOX_DATABASE_URL=", "OUTBOX_SINK=r"}, []string{"--sink", "fr"}, "d", "fr"},
		{[]string{"REDIS_URL=r"}, nil, "", ""},
	} {
		got, err := load(t, "", c.environ, c.args...)
		if err != nil || got.Database != c.database || got.Sink[DefaultSink] != c.sink {
			t.Errorf("%v: got %q, %v, error %v, want %q, %q", c.environ, got.Database, got.Sink, err, c.database, c.sink)
		}
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	c, err := load(t, "pol_max: 4s\nlog-level: info\nbatch: many\ndatabase_url: redis://h\npoll_max: 5\nnonsense: 1\n",
		[]string{"OUTBOX_POLL_MAX=soon", "OUTBOX_STREAM_LIMIT=x"}, "--batch", "0")
	if err != nil {
		t.Fatal(err)
	}
	wantProblems(t, c.Check(Serving|Database), `outbox.yaml:1: unknown key "pol_max"`,
		`outbox.yaml:2: unknown key "log-level"`, `outbox.yaml:3: batch: "many" is no whole number`,
		`unknown key "database_url"`, "5 needs a unit", `unknown key "nonsense" (keys are`,
		`OUTBOX_POLL_MAX: "soon" is no time`, `OUTBOX_STREAM_LIMIT: "x" is no whole number`, "the database is not set",
		"batch is 0")

	_, err = load(t, "a: [", nil)
	wantProblems(t, err, "YAML")

	_, err = load(t, "", nil, "--config", "/no/such/file.yaml")
	wantProblems(t, err, "/no/such/file.yaml does not exist")

	c, err = load(t, "", nil, "--backoff-base", "1us", "--poll-max", "2us", "--batch", "0", "--lease-ttl", "1ms",
		"--route-timeout", "0s",
		"--max-attempts", "-1", "--envelope", "xml",
		"--listen", "9464", "--table", "nobody,outbox_events", "--destination", "neither=x,outbox_events={oops}",
		"-o", "yaml", "--log-level", "loud")
	if err != nil {
		t.Fatal(err)
	}
	wantProblems(t, c.Check(Database|Publishing|Serving), "OUTBOX_DATABASE_URL or DATABASE_URL",
		"set OUTBOX_SINK or sink", "backoff-base is 1µs", "poll-max is 2µs", "route-timeout is 0s",
		"--batch, or set OUTBOX_BATCH or batch", "lease-ttl", "max-attempts", "envelope", "listen", "nobody", "neither",
		"unknown placeholder {oops}", "output", "log-level")
}

// wantProblems also holds that there are no others.
func wantProblems(t *testing.T, err error, parts ...string) {
	t.Helper()
	var problems *Error
	if !errors.As(err, &problems) {
		t.Errorf("got error %v, want %d problems", err, len(parts))
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("problems lack %q:\n%v", part, err)
		}
	}
	if len(problems.Problems) != len(parts) {
		t.Errorf("got %d problems, want %d:\n%v", len(problems.Problems), len(parts), err)
	}
}

// A variable or a flag that hides a setting of the file is named, where the settings are printed
// and where they are wrong because of it.
func TestWhatHidesTheFile(t *testing.T) {
	const file = "sink: {default: redis://d, a: redis://a, b: redis://b}\nbatch: 7\n" +
		"routes:\n  - {table: outbox_events, to: [a, b]}\n"
	for name, c := range map[string]struct {
		environ, args []string
		says          string
	}{
		"a variable": {[]string{"OUTBOX_SINK=redis://c"}, nil, "(OUTBOX_SINK is in effect instead of sink at "},
		"a flag":     {nil, []string{"--sink", "redis://c"}, "(--sink is in effect instead of sink at "},
		"another":    {[]string{"OUTBOX_BATCH=0"}, nil, "(OUTBOX_BATCH is in effect instead of batch at "},
	} {
		cfg, err := load(t, file, c.environ, c.args...)
		if err != nil {
			t.Fatal(err)
		}
		if err = cfg.Check(Serving | Publishing); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		hidden := 0
		for _, s := range cfg.Effective() {
			if s.Hides != "" && strings.Contains(s.Hides, ".yaml:") {
				hidden++
			}
		}
		if hidden != 1 {
			t.Errorf("%s: %d settings hide another, want 1", name, hidden)
		}
	}
	cfg, err := load(t, file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.Check(Serving | Publishing); err != nil {
		t.Errorf("the file by itself: %v", err)
	}
}

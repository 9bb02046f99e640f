package config

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// uncommented is the template with every setting in effect.
func uncommented(t *testing.T) string {
	t.Helper()
	text, err := Template(kinds)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^#([a-z]|  )`).ReplaceAllString(text, "$1")
}

// entries are settings that stand among the examples.
var entries = map[string]bool{"layouts": true, "routes": true}

func TestTemplate(t *testing.T) {
	text := uncommented(t)
	All().VisitAll(func(f *pflag.Flag) {
		if n := strings.Count("\n"+text, "\n"+key(f.Name)+": "); n != 1 && f.Name != "config" && !entries[f.Name] {
			t.Errorf("%s is there %d times", f.Name, n)
		}
		if f.Usage == "" {
			t.Errorf("%s has no text", f.Name)
		}
	})
	for name := range headings {
		if All().Lookup(name) == nil {
			t.Errorf("a heading is before %s, which is no flag", name)
		}
	}
	for line := range strings.Lines(text) {
		if line != "\n" && !strings.HasPrefix(line, "# ") && !regexp.MustCompile(`^[a-z_]+:\s|^  [ -]`).MatchString(line) &&
			line != "#\n" {
			t.Errorf("neither text nor setting: %q", line)
		}
	}
	// Every value that stands there is the default, and every example is right.
	c, err := load(t, text, []string{"OUTBOX_DATABASE_URL=postgres://h/d", "OUTBOX_SINK=redis://h"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(Parts); err != nil {
		t.Fatal(err)
	}
	if names(c.mapped) != "billing.outbox, outbox" || len(c.Policies("outbox_events")) != 1 ||
		len(c.Policies("crawl_outbox")) != 0 {
		t.Errorf("the examples gave %s and %+v", names(c.mapped), c.Policies("outbox_events"))
	}
	defaults, err := load(t, "", []string{"OUTBOX_DATABASE_URL=postgres://h/d", "OUTBOX_SINK=redis://h"})
	if err != nil {
		t.Fatal(err)
	}
	want, got := defaults.Effective(), c.Effective()
	for i, w := range want {
		if slices.Contains(append(entryLists, "config", "parts", "server", "token"), w.Name) || entries[w.Name] {
			continue
		}
		if !reflect.DeepEqual(got[i].Value, w.Value) && (!empty(got[i].Value) || !empty(w.Value)) {
			t.Errorf("%s: got %#v, the default is %#v", w.Name, got[i].Value, w.Value)
		}
		if w.Name != "database" && w.Name != "sink" && !strings.Contains(got[i].From, "outbox.yaml:") {
			t.Errorf("%s is from %s", w.Name, got[i].From)
		}
	}
	// As it is written, nothing is set.
	asWritten, err := Template(kinds)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = load(t, asWritten, nil); err != nil || c.Check(0) != nil {
		t.Fatal(err, c.Check(0))
	}
	for _, s := range c.Effective() {
		if s.From != "default" && s.Name != "config" {
			t.Errorf("%s is set by %s", s.Name, s.From)
		}
	}
}

// docs/reference/settings.md has a row for each setting, with the default that outbox init writes.
func TestSettingsOfTheDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := Template(kinds)
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, m := range regexp.MustCompile(`(?m)^#([a-z_]+): (.*?)(?:  # .*)?$`).FindAllStringSubmatch(text, -1) {
		row := "\n| `" + m[1] + "` | "
		if value := strings.Trim(m[2], "'"); !slices.Contains([]string{`""`, "[]", "{}", "0", "0s"}, value) {
			row += "`" + value + "`"
		}
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/reference/settings.md has no row that begins with %q", row[1:])
		}
		rows++
	}
	if in := strings.Count(string(page), "\n| `"); in != rows {
		t.Errorf("docs/reference/settings.md has %d settings, there are %d", in, rows)
	}
}

// empty tells that a list or map has nothing in it, whether it is there or not.
func empty(v any) bool {
	r := reflect.ValueOf(v)
	return (r.Kind() == reflect.Slice || r.Kind() == reflect.Map) && r.Len() == 0
}

func TestEffective(t *testing.T) {
	file := write(t, "# x\nbatch: 4\npoll_max: 4s\ntable: [a, b]\nlease_ttl:\n")
	c, err := load(t, "", []string{"OUTBOX_CONFIG=" + file, "OUTBOX_DATABASE_URL=postgres://u:hunter2@db:1/shop",
		"OUTBOX_SINK=redis://:hunter2@h/0?password=hunter2", "OUTBOX_TOKEN=hunter2",
		"OUTBOX_PUBLIC_URL=https://u:hunter2@h", "OUTBOX_CORS_ORIGIN=https://u:hunter2@h,https://shop.example",
		"OUTBOX_DEDUP_WINDOW=2m"}, "--listen", "h:1", "--server", "http://h/?token=hunter2", "--destination", "a=b")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Setting{}
	for _, s := range c.Effective() {
		if strings.Contains(fmt.Sprint(s.Value), "hunter2") {
			t.Errorf("the password is shown: %+v", s)
		}
		got[s.Name] = s
	}
	for _, want := range []Setting{
		{"config", file, "OUTBOX_CONFIG", ""}, {"batch", 4, file + ":2", ""}, {"poll_max", "4s", file + ":3", ""},
		{"table", []string{"a", "b"}, file + ":4", ""}, {"lease_ttl", "10s", "default", ""},
		{"database", "shop at db:1", "OUTBOX_DATABASE_URL", ""},
		{"sink", map[string]string{"default": "redis://h/0"}, "OUTBOX_SINK", ""},
		{"dedup_window", "2m", "OUTBOX_DEDUP_WINDOW", ""}, {"listen", "h:1", "--listen", ""},
		{"cors_origin", []string{"(no origin, not shown)", "https://shop.example"}, "OUTBOX_CORS_ORIGIN", ""},
		{"destination", []string{"a=b"}, "--destination", ""},
		{"retention", []string{"168h", "job_dlq=720h"}, "default", ""},
		{"token", "(set, not shown)", "OUTBOX_TOKEN", ""},
	} {
		if !reflect.DeepEqual(got[want.Name], want) {
			t.Errorf("got %+v, want %+v", got[want.Name], want)
		}
	}
	if n := reflect.TypeFor[Config](); len(got) < n.NumField() {
		t.Errorf("%d settings of a struct with %d fields", len(got), n.NumField())
	}
	c, err = load(t, "", []string{"OUTBOX_CONFIG=" + file}, "--config", os.DevNull)
	if err != nil || c.Effective()[0] != (Setting{"config", os.DevNull, "--config", ""}) {
		t.Errorf("got %+v, error %v", c.Effective()[0], err)
	}
	if err := c.Check(0); err != nil {
		t.Error(err)
	}
	if c, err = load(t, "", nil, "--database", "sqlite://x"); err != nil || c.Effective()[1].Value != "sqlite:x" {
		t.Errorf("got %+v, error %v", c.Effective()[1], err)
	}
}

func TestFingerprint(t *testing.T) {
	of := func(file string, args ...string) (settings, tables string) {
		c, err := load(t, file, nil, args...)
		if err != nil {
			t.Fatal(err)
		}
		settings, tables, _ = strings.Cut(c.Fingerprint(), "/")
		return settings, tables
	}
	route := "routes: [{to: [default]}]\n"
	settings, tables := of("table: [a, b]\ndestination: {a: x, b: y}\nsink: redis://:hunter2@h/0\n" + route)
	for _, c := range []struct {
		what, file              string
		args                    []string
		sameSettings, sameTable bool
	}{
		{"another way to say it", route,
			[]string{"--table=b,a", "--destination=b=y,a=x", "--sink=redis://h/0", "--batch=7"}, true, true},
		{"other tables", route, []string{"--destination=b=y,a=x", "--sink=redis://h/0"}, true, false},
		{"another sink", route, []string{"--table=b,a", "--destination=b=y,a=x", "--sink=redis://i/0"}, false, true},
		{"another route", "routes: [{topic: t, to: [default]}]\n",
			[]string{"--table=b,a", "--destination=b=y,a=x", "--sink=redis://h/0"}, false, true},
	} {
		if s, of := of(c.file, c.args...); (s == settings) != c.sameSettings || (of == tables) != c.sameTable {
			t.Errorf("%s: got %s/%s beside %s/%s", c.what, s, of, settings, tables)
		}
	}
}

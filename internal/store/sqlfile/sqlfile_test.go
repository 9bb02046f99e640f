package sqlfile

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"text/template"
	"time"
)

type column struct{ Name, Text string }

type tableOf struct {
	Table, Key, Status string
}

type place struct{ Position int64 }

type given struct {
	tableOf
	State    kind
	Since    time.Time
	Columns  []column
	Names    []string
	After    *place
	Limit    int
	OneByOne bool

	args []any
}

type kind string

func (g *given) Call(function string, operand any) (any, error) {
	if function != "arg" {
		return nil, fmt.Errorf("there is no %s", function)
	}
	g.args = append(g.args, operand)
	return fmt.Sprintf("$%d", len(g.args)), nil
}

// parts are templates that every case may call.
const parts = `{{define "of"}}{{.Table}} e{{end}}{{define "said"}}<{{.}}>{{end}}{{define "none"}}-{{end}}`

func newSet(t *testing.T, text string) *Set {
	t.Helper()
	set, err := Parse(fstest.MapFS{"a.sql": {Data: []byte(text)}, "parts.sql": {Data: []byte(parts)}}, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// what the language has and text/template has too: both must render the same.
var shared = map[string]string{
	"a text":  "SELECT 1",
	"names":   "SELECT {{.Key}} FROM {{.Table}} LIMIT {{.Limit}}",
	"if":      "a{{if .Key}} b{{else}} c{{end}} d{{if .Status}} e{{else}} f{{end}}",
	"else if": `{{if eq .State "x"}}1{{else if eq .State "pending"}}2{{else}}3{{end}}{{if .Status}}4{{else if .Key}}5{{end}}`,
	"with": "{{with .Key}}{{.}} of {{$.Table}}{{end}}{{with .Status}}{{.}}{{else}}none{{end}}{{with " +
		".After}}{{.Position}}{{end}}",
	"range": "{{range .Names}}{{.}},{{end}}{{range .Columns}}{{.Text}}{{end}}",
	"range with variables": "{{range $i, $c := .Columns}}{{if $i}}, {{end}}{{$c.Name}}{{if eq $c.Name $.Key}} is key " +
		"{{$.Table}}{{end}}{{end}}",
	"range inside range": "{{range $i, $c := .Columns}}{{range $j, $n := $.Names}}{{$i}}{{$j}}{{$n}}{{$c.Text}} " +
		"{{end}}{{end}}",
	"templates":          `{{template "of" .}} {{template "said" .Key}} {{template "said" "a b"}} {{template "none"}} {{range .Names}}{{template "of" $}}{{end}}`,
	"define in the file": "a{{define \"x\"}}{{if .Key}}b{{end}}{{end}}{{template \"x\" .}}\n{{- /* said\nhere */ -}}\n c",
	"functions":          `{{if and .Key (not .Status)}}1{{end}}{{if or .Status (ne .Key "k") .OneByOne}}2{{end}}{{and .Key .Table .Limit}}{{or .Status .Key}}{{if and .Key .OneByOne}}3{{end}}{{if eq (or .Status .Key) .Key}}4{{end}}`,
	"trimming": "a \n {{- if .Key}} b {{- end -}} \n c {{/* no trim */}} d {{- /* both */ -}} e {{if .Key " +
		"-}}\n f\n{{- end}}\n",
	"trimming twice":       "a {{- /* x */}} {{- if .Key}} b{{end}} {{- /* y */ -}} {{- /* z */}} c",
	"a minus that is text": "1 - 1 {{.Key}}- {{.Limit}} -1",
	"else with trims":      "{{if .Status -}} a {{- else -}} b {{- end -}} c",
	"fields of a text":     `{{with .Table}}{{template "said" .}}{{end}}`,
}

func TestRenderIsTextTemplates(t *testing.T) {
	t.Parallel()
	data := &given{tableOf: tableOf{Table: `"shop"."t"`, Key: "k"}, State: "pending", Limit: 7, Names: []string{"x", "y"},
		Columns: []column{{"k", "'k'"}, {"l", "'l'"}}, After: &place{42}}
	for name, text := range shared {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want strings.Builder
			if err := template.Must(template.New("a").Parse(parts+text)).Execute(&want, data); err != nil {
				t.Fatal(err)
			}
			if got, err := newSet(t, text).Render("a", data); err != nil || got != want.String() {
				t.Errorf("rendered %q, %v\n  want   %q", got, err, want.String())
			}
		})
	}
}

func TestStatementLeavesItsHeadOut(t *testing.T) {
	t.Parallel()
	set := newSet(t, "-- verb: of {{.Table}}.\n-- Index: none.\nSELECT 1 -- one\n-- two\n")
	if got, err := set.Statement("a", tableOf{Table: "t"}); err != nil || got != "SELECT 1 -- one\n-- two\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

// Functions are called wherever the dot is, in the order of the text; a time is a condition by
// itself.
func TestFunctionsOfTheData(t *testing.T) {
	t.Parallel()
	data := &given{tableOf: tableOf{Key: "k"}, Limit: 3, Names: []string{"x", "y"}, Since: time.Unix(1, 0)}
	set := newSet(t,
		`{{with .Key}}{{arg .}}{{end}} {{range .Names}}{{arg .}}{{end}} {{template "said" (arg .Limit)}}{{if .Since}} s{{end}}{{if .Status}}{{arg .Status}}{{end}}`)
	if got, err := set.StatementWith("a", data, data); err != nil || got != "$1 $2$3 <$4> s" {
		t.Errorf("got %q, %v", got, err)
	}
	if got := fmt.Sprint(data.args); got != "[k x y 3]" {
		t.Errorf("arguments %s", got)
	}
	data.Since = time.Time{}
	if got, err := newSet(t, "{{if .Since}}s{{end}}").Render("a", data); err != nil || got != "" {
		t.Errorf("no time: %q, %v", got, err)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{{if .Key}}a":                           "is missing",
		"{{if .Key}}a{{else}}b":                  "is missing",
		"a{{end}}":                               "ends nothing",
		"a{{else}}b":                             "ends nothing",
		"{{if .Key}}a{{else}}b{{else}}c{{end}}":  "is missing",
		"{{if .Key}}a{{else with .Key}}b{{end}}": "is not known",
		"{{if}}a{{end}}":                         "a value is missing",
		"{{.Key":                                 "has no end",
		"{{.Key {{.Key}}":                        "has no end",
		"{{}}":                                   "is empty",
		"{{.Key .Key}}":                          "is left over",
		"{{.key}}":                               "is no value",
		"{{Key}}":                                "is no value",
		"{{.Key | arg}}":                         "left over",
		"{{$c.Name}}":                            "no variable $c",
		"{{range $i, $c := .Columns}}{{end}}{{$c}}":                "no variable $c",
		"{{range $c := .Columns}}{{end}}":                          "two variables or none",
		"{{range .Columns}}{{else}}{{end}}":                        "no else",
		`{{range $i, $c := .C}}{{define "x"}}{{$c}}{{end}}{{end}}`: "no variable $c",
		`{{template "absent" .}}`:                                  `no template "absent"`,
		"{{template of}}":                                          "in quotes",
		"{{define of}}{{end}}":                                     "in quotes",
		`{{define "of"}}again{{end}}`:                              "defined twice",
		`{{define "x"}}{{else}}{{end}}`:                            "has an else",
		"{{and .Key}}":                                             "takes 2 operands",
		"{{not .Key .Key}}":                                        "takes 1 operands",
		"{{arg}}":                                                  "takes 1 operands",
		"{{if and .Key (not .Status}}a{{end}}":                     "not closed",
		"\n\n{{if eq .State \"pend}}a{{end}}":                      "line 3",
		`{{printf "%s" .Key}}`:                                     "takes 1 operands",
	} {
		_, err := Parse(fstest.MapFS{"a.sql": {Data: []byte(text)}, "parts.sql": {Data: []byte(parts)}}, "*.sql")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

func TestRenderRefuses(t *testing.T) {
	t.Parallel()
	data := &given{tableOf: tableOf{Table: "t"}, After: &place{1}}
	for text, want := range map[string]string{
		"{{.Kee}}":                                "no field Kee",
		"{{if .Kee}}a{{end}}":                     "no field Kee",
		"{{.Table.Name}}":                         "string has no fields",
		"{{.After}}":                              "is no text",
		"{{if eq .Columns .Table}}a{{end}}":       "is no text",
		"{{.OneByOne}}":                           "is no text",
		"{{if .After.Position}}{{.Since}}{{end}}": "is no text",
		"{{range .Table}}{{end}}":                 "is no list",
		`{{template "of"}}`:                       "has no fields",
		"{{call .Table}}":                         "no call",
	} {
		if got, err := newSet(t, text).StatementWith("a", data, data); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, error %v, want %q", text, got, err, want)
		}
	}
	if _, err := newSet(t, "{{arg .Table}}").Render("a", tableOf{}); err == nil ||
		!strings.Contains(err.Error(), "nobody gives the function arg") {
		t.Errorf("data without functions: %v", err)
	}
	if _, err := newSet(t, "").Render("b", nil); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no such file: %v", err)
	}
}

// Every file of the stores parses: the words are known, the ends are there, the templates too.
func TestFilesOfTheStoresParse(t *testing.T) {
	t.Parallel()
	const pattern = "sql/*.sql"
	for folder, besides := range map[string][]string{
		"store/postgres":                   {"internal/store/pgtable"},
		"store/postgres/internal/logtable": {"internal/store/pgtable"},
		"store/sqlite":                     {"internal/store/sqlitetable"},
		"internal/store/pgcold":            {"internal/store/cold", "internal/store/pgtable"},
		"internal/store/sqlitecold":        {"internal/store/cold", "internal/store/sqlitetable"},
		"server/pgstore":                   nil,
		"server/sqlitestore":               nil,
	} {
		files := os.DirFS("../../../" + folder)
		if names, err := fs.Glob(files, pattern); err != nil || len(names) == 0 {
			t.Fatalf("%s: %d files, %v", folder, len(names), err)
		}
		var beside []fs.FS
		for _, b := range besides {
			beside = append(beside, os.DirFS("../../../"+b))
		}
		if _, err := Parse(files, pattern, beside...); err != nil {
			t.Errorf("%s: %v", folder, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range shared {
		f.Add(text)
	}
	f.Add("{{- /* */ -}}{{$}}{{(}}")
	f.Fuzz(func(t *testing.T, text string) {
		set, err := Parse(fstest.MapFS{"a.sql": {Data: []byte(text)}, "parts.sql": {Data: []byte(parts)}}, "*.sql")
		if err != nil || strings.Contains(text, "template") {
			return // a template that calls itself has no end
		}
		if got, err := set.Render("a", &given{Names: []string{"x"}}); err == nil && !strings.Contains(text, "{{") &&
			got != text {
			t.Errorf("%q became %q", text, got)
		}
	})
}

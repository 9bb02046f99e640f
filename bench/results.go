package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// figures is what one run of a bench has measured. It is kept as JSON, and docs/benchmarks.md is made of it.
type figures struct {
	Bench    string  `json:"bench"`
	Day      string  `json:"day"`
	Machine  machine `json:"machine"`
	Rows     int     `json:"rows"`
	Rounds   int     `json:"rounds"`
	Seconds  int     `json:"seconds"`
	Comments string  `json:"comments,omitempty"`
	Lines    []*line `json:"lines"`
}

type machine struct {
	CPUs     int    `json:"cpus"`
	Go       string `json:"go"`
	Postgres string `json:"postgres"`
	Redis    string `json:"redis"`
}

// line is one side: of each thing measured its values, a round each.
type line struct {
	Name   string            `json:"name"`
	Kind   kind              `json:"kind"`
	Base   string            `json:"base,omitempty"` // the line that it is compared with
	Values map[string]series `json:"values"`
}

func (l *line) add(what string, value float64) { l.Values[what] = append(l.Values[what], value) }

// the returns the values of one thing, which somebody has measured.
func (l *line) the(what string) series { return l.Values[what] }

func newFigures(bench string, s *servers, o options) *figures {
	return &figures{Bench: bench, Day: time.Now().UTC().Format(time.DateOnly), Rows: o.rows, Rounds: o.rounds,
		Seconds: o.seconds, Comments: o.comments,
		Machine: machine{runtime.NumCPU(), runtime.Version(), s.postgresVersion, s.redisVersion}}
}

// line returns the line of a name, which it adds if there is none.
func (f *figures) line(name string, k kind) *line {
	if l := f.find(name); l != nil {
		return l
	}
	f.Lines = append(f.Lines, &line{Name: name, Kind: k, Values: map[string]series{}})
	return f.Lines[len(f.Lines)-1]
}

func (f *figures) find(name string) *line {
	i := slices.IndexFunc(f.Lines, func(l *line) bool { return l.Name == name })
	if i < 0 {
		return nil
	}
	return f.Lines[i]
}

// done prints the table and, if a folder was named, keeps the figures there.
func (f *figures) done(to io.Writer, o options) error {
	if _, err := io.WriteString(to, f.table()); err != nil || o.out == "" {
		return err
	}
	text, err := f.encode()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.out, f.Bench+".json"), text, 0o644)
}

// encode has four significant digits of each value, and one line a thing measured, so that a diff can be read.
func (f *figures) encode() ([]byte, error) {
	for _, l := range f.Lines {
		for _, values := range l.Values {
			for i, v := range values {
				if _, err := fmt.Sscan(fmt.Sprintf("%.4g", v), &values[i]); err != nil {
					return nil, err
				}
			}
		}
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(joinNumbers(text), '\n'), nil
}

// joinNumbers puts the numbers of an array on its line.
func joinNumbers(text []byte) []byte {
	var out bytes.Buffer
	within := false
	for part := range bytes.Lines(text) {
		trimmed := bytes.TrimSpace(part)
		switch {
		case within && bytes.HasPrefix(trimmed, []byte("]")):
			within = false
			out.Write(append(trimmed, '\n'))
		case within:
			out.Write(trimmed)
			if bytes.HasSuffix(trimmed, []byte(",")) {
				out.WriteByte(' ')
			}
		case bytes.HasSuffix(trimmed, []byte("[")) && !bytes.HasPrefix(trimmed, []byte(`"lines"`)):
			within = true
			out.Write(bytes.TrimRight(part, "\n"))
		default:
			out.Write(part)
		}
	}
	return out.Bytes()
}

// readFigures returns those of a folder, by bench.
func readFigures(dir string) (map[string]*figures, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("there are no results in " + dir + ": make bench, or go run . -out " + dir + " peers")
	}
	all := map[string]*figures{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var f figures
		if err := json.Unmarshal(text, &f); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		all[f.Bench] = &f
	}
	return all, nil
}

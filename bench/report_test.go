package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// docs/benchmarks.md, its plots and the README's figures are what `go run . report` makes of the
// results.
func TestDocumentIsWhatTheResultsSay(t *testing.T) {
	all, err := readFigures(resultsDir)
	if err != nil {
		t.Fatal(err)
	}
	files, err := render(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, bench := range []string{"drain", "latency", "producer"} {
		if !bytes.Contains(files[document], []byte("<!-- generated: "+bench+" -->\n\nMeasured on ")) {
			t.Errorf("%s has no figures of %s: it lacks the markers", document, bench)
		}
	}
	if !bytes.Contains(files[readme], []byte("<!-- generated: speed -->\n\n| a backlog drains ")) {
		t.Errorf("%s has no figures: it lacks the markers", readme)
	}
	for path, want := range files {
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what %s says: run make bench-report", path, resultsDir)
		}
	}
}

// What is written to a file of results is what is read from it.
func TestResultsAreReadAsWritten(t *testing.T) {
	f := &figures{Bench: "flat", Rows: 10}
	f.line("a", ours).add("rate", 12345.678)
	f.line("a", ours).add("rate", 0.5)
	f.line("b", peer).add("rate", 3)
	out := t.TempDir()
	if err := f.done(&bytes.Buffer{}, options{out: out}); err != nil {
		t.Fatal(err)
	}
	all, err := readFigures(out)
	if err != nil {
		t.Fatal(err)
	}
	got := all["flat"]
	if len(got.Lines) != 2 || got.Rows != 10 || got.Lines[1].Kind != peer {
		t.Fatalf("read %+v", got)
	}
	if rates := got.Lines[0].the("rate"); len(rates) != 2 || rates[0] != 12350 || rates[1] != 0.5 {
		t.Errorf("read the rates %v, want four digits of those written", rates)
	}
}

// A peer that fails is left out and said to have failed; the limit or one of ours ends the run.
func TestPeerThatFailsIsLeftOut(t *testing.T) {
	f := &figures{Bench: "drain"}
	fail := func(context.Context, *line) error { return errors.New("no reply\nat all") }
	if err := f.line("ours", ours).measure(t.Context(), fail); err == nil {
		t.Error("one of ours has failed, and the run goes on")
	}
	f = &figures{Bench: "drain"}
	f.line("bad", peer).add("rate", 99)
	if err := f.line("bad", peer).measure(t.Context(), fail); err != nil {
		t.Errorf("the run ends with a peer: %v", err)
	}
	for _, of := range []struct {
		name string
		kind kind
		rate float64
	}{{"good", peer, 10}, {"relay", ours, 40}} {
		for _, what := range []string{"cpu_postgres", "cpu_redis", "cpu_relay", "wal", "dead", "copies", "inversions",
			"missing"} {
			f.line(of.name, of.kind).add(what, 1)
		}
		f.line(of.name, of.kind).add("rate", of.rate)
	}
	table := f.table()
	for _, want := range []string{"| bad | failed: no reply; at all |", "| **relay** | 40 | 4.00 |"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
	for _, p := range f.plots() {
		if svg := p.svg(); bytes.Contains(svg, []byte(">bad<")) || !bytes.Contains(svg, []byte(">relay<")) {
			t.Errorf("the plot %s is not of those that have not failed:\n%s", p.name, svg)
		}
	}
}

func TestArrivalsCountCopiesAndInversions(t *testing.T) {
	a := newArrivals(4, 2)
	for _, payload := range []string{`{"n": 1}`, `{"data":{"n":3,"pad":"n"}}`, `{"n" : 2}`, `{"n": 3}`, `{"n": 9}`, `{}`,
		`{"n"`} {
		a.note(nil, []byte(payload), time.Now())
	}
	select {
	case <-a.all:
		t.Fatal("all have come, though 4 has not")
	default:
	}
	a.note(nil, []byte(`{"n": 4}`), time.Now())
	<-a.all
	if a.distinct != 4 || a.copies != 1 || a.inversions != 0 {
		t.Errorf("%d numbers, %d copies, %d out of order; want 4, 1 and 0", a.distinct, a.copies, a.inversions)
	}
	b := newArrivals(4, 2)
	for _, payload := range []string{`{"n": 3}`, `{"n": 1}`, `{"n": 2}`, `{"n": 4}`} {
		b.note(nil, []byte(payload), time.Now())
	}
	if b.inversions != 1 {
		t.Errorf("%d out of order, want 1: the number 1 behind 3 of its key", b.inversions)
	}
}

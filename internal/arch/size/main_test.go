package main

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestShippedLinesAreBelowTheCeiling(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("ceiling.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(text))
	ceiling, err := strconv.Atoi(lines[len(lines)-1])
	if err != nil {
		t.Fatal(err)
	}
	s, err := measure("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if s.shipped > ceiling {
		t.Errorf("%d lines are shipped, more than %d: delete some, or raise the number in ceiling.txt and say for what",
			s.shipped, ceiling)
	}
	if s.tests == 0 || s.sql == 0 || s.adrWords == 0 {
		t.Errorf("something was not found: %+v", s)
	}
}

func TestLargestCircle(t *testing.T) {
	t.Parallel()
	for want, uses := range map[int]map[string][]string{
		1: {"a": {"b"}, "b": {"c"}},
		2: {"a": {"b"}, "b": {"a", "c"}, "c": {"d"}},
		3: {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}},
	} {
		if got := len(largestCircle(uses)); got != want {
			t.Errorf("%v: %d, want %d", uses, got, want)
		}
	}
}

func TestFunctionsAreCounted(t *testing.T) {
	t.Parallel()
	many := "package x\nfunc plain() {}\nfunc many(a bool) { " + strings.Repeat("if a && a { }; ", 8) + "}\n"
	var s sizes
	if err := s.functions("x.go", []byte(many)); err != nil || len(s.complex) != 1 || s.complex[0] != "x.go: many (17)" {
		t.Errorf("%q, %v", s.complex, err)
	}
}

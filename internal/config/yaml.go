package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readYAML returns what a file of one document has in it, nil if that is nothing. Errors begin with path and line, and
// quote no value.
func readYAML(path string, text []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err == nil {
		if err = decoder.Decode(&second); err == nil {
			return nil, fmt.Errorf("%s:%d: begins a second document (---), which would be ignored: make it one", path,
				second.Line)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, unreadable(path, text, err)
	}
	return document.Content[0], nil
}

// into is node.Decode with an error like those of readYAML.
func into(path string, node *yaml.Node, dst any) error {
	if err := node.Decode(dst); err != nil {
		return unreadable(path, nil, err)
	}
	return nil
}

func unreadable(path string, text []byte, err error) error {
	line, problem := lineOf(err)
	if line == 0 {
		// The library does not tell the first line. In its place it tells the second, if there is one before.
		if err := yaml.Unmarshal(append([]byte("#\n"), text...), new(yaml.Node)); err != nil {
			if after, _ := lineOf(err); after > 0 {
				line = 1
			}
		}
	}
	if strings.HasPrefix(problem, "unknown anchor") {
		problem = "a value begins with * and refers to nothing: put it in quotes" // the library would quote it
	}
	if line > 0 {
		path = fmt.Sprintf("%s:%d", path, line)
	}
	return fmt.Errorf("%s: cannot be read as YAML: %s", path, problem)
}

var ofParser = regexp.MustCompile(`^did not find expected (<|node content|'-' indicator|key|',')`)

// lineOf takes the line, 0 if there is none, off the first problem of the library's error.
func lineOf(err error) (line int, problem string) {
	problem = strings.TrimPrefix(err.Error(), "yaml: ")
	if mismatch, ok := errors.AsType[*yaml.TypeError](err); ok {
		problem = mismatch.Errors[0]
	}
	if n, _ := fmt.Sscanf(problem, "line %d:", &line); n == 1 {
		_, problem, _ = strings.Cut(problem, ": ")
		if ofParser.MatchString(problem) {
			line++ // its parser counts from 0, its scanner from 1
		}
	}
	return line, problem
}

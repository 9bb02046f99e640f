package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
		return nil, unreadable(path, err)
	}
	return document.Content[0], nil
}

// into is node.Decode with an error like those of readYAML.
func into(path string, node *yaml.Node, dst any) error {
	if err := node.Decode(dst); err != nil {
		return unreadable(path, err)
	}
	return nil
}

func unreadable(path string, err error) error {
	line, problem := lineOf(err)
	if strings.HasPrefix(problem, "unknown anchor") {
		problem = "a value begins with * and refers to nothing: put it in quotes" // the library would quote it
	}
	if line > 0 {
		path = fmt.Sprintf("%s:%d", path, line)
	}
	return fmt.Errorf("%s: cannot be read as YAML: %s", path, problem)
}

// lineOf takes the line, 0 if there is none, off the first problem of the library's error.
func lineOf(err error) (line int, problem string) {
	problem = strings.TrimPrefix(err.Error(), "yaml: ")
	if mismatch, ok := errors.AsType[*yaml.TypeError](err); ok {
		problem = mismatch.Errors[0]
	}
	if n, _ := fmt.Sscanf(problem, "line %d:", &line); n == 1 {
		_, problem, _ = strings.Cut(problem, ": ")
	}
	return line, problem
}

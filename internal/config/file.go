package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// entryLists are the keys of a file whose values are lists of entries with several keys each.
var entryLists = []string{"layouts", "routes", "limits", "retry"}

// readFile gives the settings what a file says, and puts the entries of lists into lists.
func (c *Config) readFile(path string, settings *pflag.FlagSet, lists map[string][]*yaml.Node) error {
	top, err := readYAML(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s does not exist: correct --config or OUTBOX_CONFIG", path)
	}
	if err != nil || top == nil || top.Tag == null {
		return err
	}
	if top.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: want settings such as batch: 500, and not a list or text", path, top.Line)
	}
	byKey := map[string]*pflag.Flag{}
	settings.VisitAll(func(f *pflag.Flag) { byKey[key(f.Name)] = f })
	delete(byKey, "config") // says where the file is
	for _, k := range mapping(top) {
		at, f, isList := fmt.Sprintf("%s:%d", path, k.line), byKey[k.name], slices.Contains(entryLists, k.name)
		switch {
		case f == nil && !isList:
			c.found.problems.add("config file %s: unknown key %q (keys are the names of flags with _ for -, limits and retry)",
				at, k.name)
		case k.value.Tag == null: // "batch:" and nothing behind it
		case isList && k.value.Kind == yaml.SequenceNode:
			lists[k.name], c.found.origins[k.name] = k.value.Content, at
		case f == nil:
			c.found.problems.add("config file %s: %s: want a list, and not %s", at, k.name, kindOf(k.value))
		default:
			texts, err := nodeTexts(f, k.value)
			if err != nil {
				c.found.problems.add("config file %s: %s: %v", at, k.name, err)
				continue
			}
			c.take(f, texts, at, "config file "+at+": "+k.name)
		}
	}
	return nil
}

// readYAML returns what a file of one document has in it, nil if that is nothing. Errors begin with the path and quote
// no value.
func readYAML(path string) (*yaml.Node, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var document, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	err = decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err == nil {
		err = document.Decode(new(any)) // a key that is there twice
	}
	if err == nil {
		if err = decoder.Decode(&second); err == nil {
			return nil, fmt.Errorf("%s:%d: begins a second document (---), which would be ignored: make it one", path,
				second.Line)
		}
	}
	if errors.Is(err, io.EOF) {
		return document.Content[0], nil
	}
	problem := strings.TrimPrefix(err.Error(), "yaml: ")
	if wrong, ok := errors.AsType[*yaml.TypeError](err); ok {
		problem = strings.Join(wrong.Errors, "; ")
	}
	if strings.Contains(problem, "unknown anchor") {
		problem = "a value begins with * and refers to nothing: put it in quotes" // the library would quote it
	}
	return nil, fmt.Errorf("%s: cannot be read as YAML: %s", path, problem)
}

const null = "!!null"

// pair is a key of a file with its value.
type pair struct {
	name  string
	line  int
	value *yaml.Node
}

func mapping(n *yaml.Node) (pairs []pair) {
	for i := 0; i < len(n.Content); i += 2 {
		pairs = append(pairs, pair{n.Content[i].Value, n.Content[i].Line, resolved(n.Content[i+1])})
	}
	return pairs
}

func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// nodeTexts are the texts for a flag that stand in a file: one, a list of them, or keys with values.
func nodeTexts(f *pflag.Flag, n *yaml.Node) (texts []string, err error) {
	_, isList := f.Value.(pflag.SliceValue)
	switch {
	case n.Kind == yaml.ScalarNode && f.Value.Type() == "stringArray":
		return []string{n.Value}, nil // a space is no end of a URL here
	case n.Kind == yaml.ScalarNode:
		return split(f, n.Value), nil
	case !isList:
		return nil, fmt.Errorf("want one value, and not %s", kindOf(n))
	case n.Kind == yaml.MappingNode && !pairwise[f.Name]:
		return nil, errors.New("want a list, and not keys with values")
	case n.Kind == yaml.MappingNode:
		for _, p := range mapping(n) {
			if p.value.Kind != yaml.ScalarNode {
				return nil, fmt.Errorf("%s: want text, and not %s", shape(p.name), kindOf(p.value))
			}
			texts = append(texts, p.name+"="+p.value.Value)
		}
		return texts, nil
	}
	for _, item := range n.Content {
		if item = resolved(item); item.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("want a list of texts, and not %s in it", kindOf(item))
		}
		texts = append(texts, item.Value)
	}
	return texts, nil
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "keys with values"
	}
	return shape(n.Value)
}

// fill reads an entry of a list into a struct, and tells whether all of it is right. Problems begin with at, where the
// entry is, which gets what the entry calls itself under the key label.
func (e *Error) fill(entry any, n *yaml.Node, at *string, label string) bool {
	before := len(e.Problems)
	if n = resolved(n); n.Kind != yaml.MappingNode {
		e.add("%s: want keys with values (name: value), and not %s", *at, kindOf(n))
		return false
	}
	keys, all := mapping(n), fields(entry)
	if i := slices.IndexFunc(keys, func(k pair) bool { return k.name == label }); i >= 0 {
		*at += fmt.Sprintf(" (%s %q)", label, keys[i].value.Value)
	}
	for _, k := range keys {
		f := all.Lookup(k.name)
		if f == nil {
			e.add("%s: unknown key %q", *at, k.name)
		} else if texts, err := nodeTexts(f, k.value); err != nil {
			e.add("%s: %s: %v", *at, k.name, err)
		} else if err := assign(f, texts); err != nil && k.value.Tag != null {
			e.add("%s: %s: %s", *at, k.name, Misfit(f, strings.Join(texts, ","), err))
		}
	}
	return len(e.Problems) == before
}

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/outboxrelay/outbox"
)

// ByTable is a value for all tables, and others for single ones.
type ByTable struct {
	All    string
	Single map[string]string
}

// Of returns a table's value.
func (b ByTable) Of(table string) string {
	if value, ok := b.Single[table]; ok {
		return value
	}
	return b.All
}

// What tables have of which nothing is said. The ages are the library's, which are the seeds'.
var (
	defaultForms = []string{"cloudevents"}
	defaultAges  = []string{brief(relayDefaults.Retention.After),
		Letters + "=" + brief(relayDefaults.LetterRetention.After)}
)

// byTable reads texts of the forms VALUE and TABLE=VALUE.
func byTable(defaults, texts []string) ByTable {
	b := ByTable{Single: map[string]string{}}
	for _, text := range slices.Concat(defaults, texts) {
		if table, value, ofOne := strings.Cut(strings.TrimSpace(text), "="); ofOne {
			b.Single[table] = value
		} else {
			b.All = table
		}
	}
	return b
}

// single wants each value to be of a table.
func single(all bool, value string) error {
	if all && value != "" {
		return fmt.Errorf("want TABLE=VALUE, in a file keys with values, and not %s", shape(value))
	}
	return nil
}

func isEnvelope(_ bool, form string) error {
	if form != "cloudevents" && form != "payload" {
		return fmt.Errorf("unknown envelope %q (known: cloudevents, payload)", form)
	}
	return nil
}

func isAge(_ bool, text string) error {
	if age, err := time.ParseDuration(text); err != nil {
		return errors.New(noDuration(text))
	} else if age < 0 {
		return fmt.Errorf("%s is no age, must be 0 or more", text)
	}
	return nil
}

// assign gives a setting its texts, of whatever source.
func assign(f *pflag.Flag, texts []string) error {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.Replace(texts)
	}
	before := f.Value.String()
	err := f.Value.Set(texts[0])
	if err != nil {
		_ = f.Value.Set(before) // pflag has made it zero
	}
	return err
}

// textsOf are the texts that a flag has.
func textsOf(f *pflag.Flag) []string {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.GetSlice()
	}
	return []string{f.Value.String()}
}

// split parts a text as the flag itself would, a variable's several for --sink at its spaces.
func split(f *pflag.Flag, text string) []string {
	switch f.Value.Type() {
	case "stringSlice":
		return strings.Split(text, ",")
	case "stringArray":
		return strings.Fields(text)
	}
	return []string{text}
}

// valueOf is a flag's value as a file would have it.
func valueOf(f *pflag.Flag) any {
	text := f.Value.String()
	switch kind := f.Value.Type(); kind {
	case "stringSlice", "stringArray":
		return textsOf(f)
	case "int":
		n, _ := strconv.Atoi(text) // it is the flag's own text
		return n
	case "duration":
		d, _ := time.ParseDuration(text)
		return brief(d)
	}
	return text
}

// fields declares a flag for each field of an entry of a list that has a name in files.
func fields(entry any) *pflag.FlagSet {
	fs, v := flagSet("entry"), reflect.ValueOf(entry).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("yaml")
		if name == "-" || !v.Type().Field(i).IsExported() {
			continue
		}
		switch field := v.Field(i).Addr().Interface().(type) {
		case *outbox.Layout:
			fs.AddFlagSet(fields(field))
		case *outbox.SettleMode:
			fs.StringVar((*string)(field), name, string(*field), "")
		case *string:
			fs.StringVar(field, name, *field, "")
		case *[]string:
			fs.StringSliceVar(field, name, *field, "")
		case *int:
			fs.IntVar(field, name, *field, "")
		case *float64:
			fs.Float64Var(field, name, *field, "")
		case *time.Duration:
			fs.DurationVar(field, name, *field, "")
		}
	}
	return fs
}

// Misfit says what is wrong with the text that was given for a flag.
func Misfit(f *pflag.Flag, text string, err error) string {
	switch kind := f.Value.Type(); {
	case errors.Is(err, strconv.ErrRange):
		return text + " is too large"
	case kind == "int":
		return shape(text) + " is no whole number"
	case kind == "float64":
		return shape(text) + " is no number"
	case kind == "duration":
		return noDuration(text)
	}
	return err.Error()
}

func noDuration(text string) string {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return text + " needs a unit: for instance 5ms, 10s or 2m"
	}
	return shape(text) + " is no time such as 5ms, 10s, 15m or 168h (a week)"
}

// shape quotes a text that cannot be a URL with a password.
func shape(text string) string {
	if strings.Contains(text, "@") || strings.Contains(text, "://") {
		return "the text (not shown, it may hold a password)"
	}
	return fmt.Sprintf("%q", text)
}

// brief is a duration without the zeros: 168h and not 168h0m0s.
func brief(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

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
			c.found.problems.add("config file %s: unknown key %q (keys are the names of flags "+
				"with _ for -, limits and retry)",
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

// readYAML returns what a file of one document has in it, nil if that is nothing. Errors begin with
// the path and quote no value.
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
			return nil, fmt.Errorf("%s:%d: begins a second document (---), which would be "+
				"ignored: make it one", path,
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

// nodeTexts are the texts for a flag that stand in a file: one, a list of them, or keys with
// values.
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

// fill reads an entry of a list into a struct, and tells whether all of it is right. Problems begin
// with at, where the entry is, which gets what the entry calls itself under the key label.
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

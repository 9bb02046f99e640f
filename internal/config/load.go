package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Error is what is wrong with the settings, all of it.
type Error struct{ Problems []string }

func (e *Error) Error() string { return strings.Join(e.Problems, "\n") }

func (e *Error) add(format string, args ...any) {
	e.Problems = append(e.Problems, fmt.Sprintf(format, args...))
}

// orNil returns e if there is something in it.
func (e *Error) orNil() error {
	if len(e.Problems) == 0 {
		return nil
	}
	return e
}

// koanf splits keys at the delimiter; a point would cut the table name billing.outbox in two.
const delim = "\x1f"

// Load reads the settings that a command has flags for, after the command line was parsed into flags, for a program
// that can open these kinds of servers. environ is as
// os.Environ gives it. The error, an *Error, says that the file cannot be read at all. What is wrong with single
// settings Check says, together with all else that is wrong; until then they have their defaults.
func Load(kinds Kinds, environ []string, flags ...*pflag.FlagSet) (Config, error) {
	given := pflag.NewFlagSet("given", pflag.ContinueOnError)
	for _, set := range flags {
		given.AddFlagSet(set)
	}
	set := settingsOf(environ)
	vars := variables(set, given)
	var problems Error
	ignored := strangers(set)
	origins := map[string]string{}

	k := koanf.New(delim)
	path := vars["config"].value
	if path != "" {
		origins["config"] = vars["config"].name
	}
	if f := given.Lookup("config"); f != nil && f.Changed {
		path, origins["config"] = f.Value.String(), "--config"
	}
	if path != "" {
		if err := loadFile(k, path, origins, &problems); err != nil {
			return Config{}, &Error{Problems: []string{err.Error()}}
		}
	}
	ofFile := maps.Clone(origins)
	if err := k.Load(confmap.Provider(fromEnvironment(vars, origins, &problems), delim), nil); err != nil {
		problems.add("read the environment: %v", err)
	}
	// Last, because it skips a flag that was not given where another source has set it, and so supplies the defaults
	// too.
	byKey := func(f *pflag.Flag) (string, any) {
		if f.Name == "config" {
			return "", nil
		}
		if f.Changed {
			origins[key(f.Name)] = "--" + f.Name
		}
		return key(f.Name), posflag.FlagVal(given, f)
	}
	if err := k.Load(posflag.ProviderWithFlag(given, delim, k, byKey), nil); err != nil {
		problems.add("read the flags: %v", err)
	}
	var c Config
	_, wrong := decode(k.Raw(), &c)
	problems.Problems = append(problems.Problems, wrong...)
	c.kinds = kinds
	c.found = findings{path: path, environ: set, origins: origins, ignored: ignored, problems: problems.Problems,
		hidden: map[string]string{}}
	for name, at := range ofFile {
		if name != "config" && origins[name] != at {
			c.found.hidden[name] = at
		}
	}
	return c, nil
}

// findings are what Load has found out beside the settings.
type findings struct {
	path     string // of the file, "": none
	environ  map[string]string
	origins  map[string]string // by key; a setting that is not here has its default
	hidden   map[string]string // by key, where the file has a setting that a variable or a flag overrides
	ignored  []string          // variables
	problems []string
}

// Ignored returns the environment variables that look like settings of ours and are none. Others may have set them;
// somebody may have meant one.
func (c Config) Ignored() []string {
	var read []string
	for _, d := range c.kinds.Sinks.Drivers() {
		read = append(read, d.Reads...)
	}
	return slices.DeleteFunc(slices.Clone(c.found.ignored), func(name string) bool { return slices.Contains(read, name) })
}

// loadFile merges the keys of a file that are right into k.
func loadFile(k *koanf.Koanf, path string, origins map[string]string, problems *Error) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("config file %s does not exist: correct --config or OUTBOX_CONFIG", path)
	}
	if err != nil {
		return fmt.Errorf("config file: %w", err)
	}
	top, err := readYAML(path, text)
	if err != nil {
		return fmt.Errorf("config file %w", err)
	}
	if top == nil || top.Tag == "!!null" {
		return nil
	}
	if top.Kind != yaml.MappingNode {
		return fmt.Errorf("config file %s:%d: want settings such as batch: 500, and not a list or text", path, top.Line)
	}
	raw, lines := map[string]any{}, map[string]int{}
	if err := into(path, top, &raw); err != nil {
		return fmt.Errorf("config file %w", err)
	}
	for i := 0; i < len(top.Content); i += 2 {
		lines[top.Content[i].Value] = top.Content[i].Line
	}
	inOrder := func(a, b string) int { return cmp.Or(cmp.Compare(lines[a], lines[b]), cmp.Compare(a, b)) }
	for _, name := range slices.SortedFunc(maps.Keys(raw), inOrder) { // one by one, so that the others have their values
		at := fmt.Sprintf("%s:%d", path, lines[name])
		unused, wrong := decode(map[string]any{name: raw[name]}, &Config{})
		switch {
		case len(wrong) > 0:
			for _, problem := range wrong {
				problems.add("config file %s: %s", at, problem)
			}
			delete(raw, name)
		case len(unused) > 0:
			problems.add("config file %s: %s (keys are the names of flags with _ for -, limits and retry)", at,
				unknownKeys(unused))
			delete(raw, name)
		case raw[name] == nil: // "batch:" and nothing behind it
			delete(raw, name)
		default:
			origins[name] = at
		}
	}
	return k.Load(confmap.Provider(raw, delim), nil)
}

type variable struct{ name, value string }

// settingsOf returns the variables of an environment. An empty one counts as unset.
func settingsOf(environ []string) map[string]string {
	set := map[string]string{}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok && value != "" {
			set[name] = value
		}
	}
	return set
}

// variables finds each flag's environment variable.
func variables(set map[string]string, given *pflag.FlagSet) map[string]variable {
	found := map[string]variable{}
	given.VisitAll(func(f *pflag.Flag) {
		for _, name := range variableNames(f.Name) {
			if value, ok := set[name]; ok {
				found[f.Name] = variable{name, value}
				return
			}
		}
	})
	return found
}

// fromEnvironment parses each variable as its flag would be, so that both accept the same and a problem names the
// variable.
func fromEnvironment(vars map[string]variable, origins map[string]string, problems *Error) map[string]any {
	parsed := All() // a copy: setting the real flags would look like the command line
	values := map[string]any{}
	for _, flag := range slices.Sorted(maps.Keys(vars)) {
		if flag == "config" {
			continue
		}
		f := parsed.Lookup(flag)
		each := []string{vars[flag].value}
		if f.Value.Type() == "stringArray" { // a flag that is given several times
			each = strings.Fields(vars[flag].value)
		}
		if err := setEach(f, each); err != nil {
			problems.add("%s: %s", vars[flag].name, Misfit(f, vars[flag].value, err))
			continue
		}
		values[key(flag)], origins[key(flag)] = posflag.FlagVal(parsed, f), vars[flag].name
	}
	return values
}

func setEach(f *pflag.Flag, values []string) error {
	for _, value := range values {
		if err := f.Value.Set(value); err != nil {
			return err
		}
	}
	return nil
}

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

// decode fills dst, a pointer to a struct. It returns the keys that dst has no field for, and what is wrong with
// values, in which case dst is filled in part.
func decode(from, dst any) (unused, problems []string) {
	// What dst has fields for, it says when it gets nothing: of a decoding that fails mapstructure does not tell which
	// keys were unknown.
	var meta mapstructure.Metadata
	err := fill(map[string]any{}, reflect.New(reflect.TypeOf(dst).Elem()).Interface(), &meta)
	if m := reflect.ValueOf(from); m.Kind() == reflect.Map {
		for _, key := range m.MapKeys() {
			if name := fmt.Sprint(key); !slices.Contains(meta.Unset, name) {
				unused = append(unused, name)
			}
		}
	}
	slices.Sort(unused)
	return unused, append(each(err), each(fill(from, dst, nil))...)
}

func fill(from, dst any, meta *mapstructure.Metadata) error {
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Result: dst, Metadata: meta, TagName: "yaml",
		MatchName:  func(key, field string) bool { return key == field }, // a key has one spelling
		DecodeHook: mapstructure.ComposeDecodeHookFunc(fit, mapstructure.StringToSliceHookFunc(",")),
	})
	if err != nil {
		return fmt.Errorf("set up decoder: %w", err)
	}
	return d.Decode(from)
}

// each returns the single problems, each with its key, in which mapstructure's errors are nested.
func each(err error) (problems []string) {
	switch e := err.(type) { //nolint:errorlint // this is what unwraps
	case nil:
	case *mapstructure.DecodeError:
		problem := e.Unwrap().Error()
		if e.Name() != "" {
			problem = e.Name() + ": " + problem
		}
		problems = append(problems, problem)
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			problems = append(problems, each(one)...)
		}
	default:
		if inner := errors.Unwrap(err); inner != nil {
			return each(inner)
		}
		problems = append(problems, err.Error())
	}
	return problems
}

// fit converts a value to its setting's type, or says in words of YAML and not of Go that it is another. mapstructure
// by itself would cut 1.5 off at 1.
func fit(from, to reflect.Value) (any, error) {
	value := from.Interface()
	text, isText := value.(string)
	switch {
	case to.Type() == reflect.TypeFor[Sinks]():
		return sinksOf(value)
	case from.Type() == to.Type(), to.Kind() == reflect.Interface, isText && to.Kind() == reflect.String:
		return value, nil
	case to.Type() == reflect.TypeFor[time.Duration]():
		return fitDuration(from)
	}
	switch to.Kind() {
	case reflect.Int:
		return fitInt(from)
	case reflect.Float64:
		if isNumber(from) {
			return value, nil
		}
		_, err := strconv.ParseFloat(text, 64)
		return nil, fmt.Errorf("%s is no number%s", shape(value), unquote(err))
	case reflect.String:
		return nil, noText(from)
	case reflect.Slice:
		if from.Kind() != reflect.Slice && (!isText || to.Type() != reflect.TypeFor[[]string]()) {
			return nil, fmt.Errorf("want a list, and not %s", shape(value))
		}
	case reflect.Map, reflect.Struct:
		if from.Kind() != reflect.Map {
			return nil, fmt.Errorf("want keys with values (name: value), and not %s", shape(value))
		}
	}
	return value, nil
}

func noText(from reflect.Value) error {
	switch {
	case isNumber(from): // not shown: it may be what a token or a password begins with
		return errors.New("want text, and not a number: put it in quotes")
	case from.Kind() == reflect.Map, from.Kind() == reflect.Slice:
		return fmt.Errorf("want text, and not %s", shape(from.Interface()))
	}
	return fmt.Errorf("want text, and not %s: put it in quotes", shape(from.Interface()))
}

func isNumber(v reflect.Value) bool { return v.CanInt() || v.CanUint() || v.CanFloat() }

func fitDuration(from reflect.Value) (any, error) {
	text, isText := from.Interface().(string)
	switch {
	case isText:
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, errors.New(noDuration(text))
		}
		return d, nil
	case !isNumber(from):
		return nil, errors.New(noDuration(shape(from.Interface())))
	case from.Interface() != 0:
		return nil, errors.New(noDuration(fmt.Sprint(from.Interface()))) // "poll_max: 5" would be five nanoseconds
	}
	return time.Duration(0), nil
}

func fitInt(from reflect.Value) (any, error) {
	value := from.Interface()
	f, isFloat := value.(float64)
	whole := isFloat && f == math.Trunc(f)
	switch {
	case whole && math.Abs(f) < math.MaxInt64:
		return int(f), nil // 1e6 is a whole number
	case from.CanInt():
		return value, nil
	case from.CanUint() || whole:
		return nil, fmt.Errorf("%v is too large", value)
	}
	text, _ := value.(string)
	_, err := strconv.Atoi(text)
	return nil, fmt.Errorf("%s is no whole number%s", shape(value), unquote(err))
}

func unquote(err error) string {
	if err == nil {
		return ": leave the quotes away"
	}
	return ""
}

// shape names a value for people.
func shape(value any) string {
	switch v := value.(type) {
	case string:
		if strings.Contains(v, "@") || strings.Contains(v, "://") {
			return "the text (not shown, it may hold a password)"
		}
		return strconv.Quote(v)
	case time.Time:
		return "a date"
	}
	switch reflect.ValueOf(value).Kind() {
	case reflect.Slice:
		return "a list"
	case reflect.Map:
		return "keys with values"
	}
	return fmt.Sprint(value)
}

// noDuration says why text is no duration; what is no text is its shape already.
func noDuration(text string) string {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return text + " needs a unit: for instance 5ms, 10s or 2m"
	}
	if text != "a list" && text != "keys with values" && text != "a date" {
		text = shape(text)
	}
	return text + " is no time such as 5ms, 10s, 15m or 168h (a week)"
}

// Misfit says what is wrong with the text that was given for a flag, in the words that are used for a file.
func Misfit(f *pflag.Flag, text string, err error) string {
	switch kind := f.Value.Type(); {
	case errors.Is(err, strconv.ErrRange):
		return text + " is too large"
	case kind == "int":
		return shape(text) + " is no whole number"
	case kind == "duration":
		return noDuration(text)
	}
	return err.Error()
}

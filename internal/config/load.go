package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
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

// Load reads the settings that a command has flags for, after the command line was parsed into flags. environ is as os.Environ
// gives it. An error is an *Error.
func Load(environ []string, flags ...*pflag.FlagSet) (Config, error) {
	given := pflag.NewFlagSet("given", pflag.ContinueOnError)
	for _, set := range flags {
		given.AddFlagSet(set)
	}
	vars := variables(environ, given)
	var problems Error
	var c Config

	k := koanf.New(delim)
	path := vars["config"].value
	if f := given.Lookup("config"); f != nil && f.Changed {
		path = f.Value.String()
	}
	if path != "" {
		loadFile(k, path, &problems)
	}
	if err := k.Load(confmap.Provider(fromEnvironment(vars, &problems), delim), nil); err != nil {
		problems.add("read the environment: %v", err)
	}
	// Last, because it skips a flag that was not given where another source has set it, and so supplies the defaults too.
	byKey := func(f *pflag.Flag) (string, any) {
		if f.Name == "config" {
			return "", nil
		}
		return key(f.Name), posflag.FlagVal(given, f)
	}
	if err := k.Load(posflag.ProviderWithFlag(given, delim, k, byKey), nil); err != nil {
		problems.add("read the flags: %v", err)
	}
	if len(problems.Problems) > 0 {
		return c, &problems // a default in the place of what could not be read would only cause a second complaint
	}
	if _, err := decode(k.Raw(), &c); err != nil {
		problems.add("%v", err)
	}
	return c, problems.orNil()
}

// loadFile merges a file into k. It is decoded by itself before, so that its problems carry its name.
func loadFile(k *koanf.Koanf, path string, problems *Error) {
	alone := koanf.New(delim)
	if err := alone.Load(file.Provider(path), yaml.Parser()); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			problems.add("config file %s does not exist: correct --config or OUTBOX_CONFIG", path)
		} else {
			problems.add("config file %s: cannot be read as YAML: %v", path, err)
		}
		return
	}
	raw := alone.Raw()
	for _, name := range slices.Sorted(maps.Keys(raw)) { // one by one: the decoder stops at its first problem
		unused, err := decode(map[string]any{name: raw[name]}, &Config{})
		if err != nil {
			problems.add("config file %s: %v", path, err)
		} else if len(unused) > 0 {
			problems.add("config file %s: unknown key %q: keys are the names of flags with _ for -, layouts and retry", path, name)
		}
	}
	if len(problems.Problems) == 0 {
		if err := k.Load(confmap.Provider(raw, delim), nil); err != nil {
			problems.add("config file %s: %v", path, err)
		}
	}
}

// decode fills dst and returns the keys that it has no field for.
func decode(from any, dst any) (unused []string, err error) {
	var meta mapstructure.Metadata
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Result: dst, Metadata: &meta, TagName: "koanf",
		MatchName:  func(key, field string) bool { return key == field }, // a key has one spelling
		DecodeHook: mapstructure.ComposeDecodeHookFunc(refuseBareNumbers, mapstructure.StringToTimeDurationHookFunc(), mapstructure.StringToSliceHookFunc(",")),
	})
	if err != nil {
		return nil, fmt.Errorf("set up decoder: %w", err)
	}
	if err := d.Decode(from); err != nil {
		return nil, errors.New(flatten(err.Error()))
	}
	slices.Sort(meta.Unused)
	return meta.Unused, nil
}

// refuseBareNumbers refuses "poll_min: 5", which would be five nanoseconds.
func refuseBareNumbers(from, to reflect.Type, value any) (any, error) {
	if to == reflect.TypeFor[time.Duration]() && from != to && from.Kind() != reflect.String && value != 0 {
		return nil, fmt.Errorf("%v needs a unit: for instance 5ms, 10s or 2m", value)
	}
	return value, nil
}

// flatten makes mapstructure's list of problems one line.
func flatten(text string) string {
	text = strings.TrimPrefix(text, "decoding failed due to the following error(s):")
	return strings.Join(strings.Split(strings.TrimSpace(text), "\n"), "; ")
}

type variable struct{ name, value string }

// variables finds each flag's environment variable: OUTBOX_ and its name. The two URLs end in _URL, and fall back to the names that
// platforms set. An empty one counts as unset.
func variables(environ []string, given *pflag.FlagSet) map[string]variable {
	set := map[string]string{}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok && value != "" {
			set[name] = value
		}
	}
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

func variableNames(flag string) []string {
	switch flag {
	case "database":
		return []string{"OUTBOX_DATABASE_URL", "DATABASE_URL"}
	case "redis":
		return []string{"OUTBOX_REDIS_URL", "REDIS_URL"}
	}
	return []string{"OUTBOX_" + strings.ToUpper(key(flag))}
}

func key(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

// fromEnvironment parses each variable as its flag would be, so that both accept the same and a problem names the variable.
func fromEnvironment(vars map[string]variable, problems *Error) map[string]any {
	parsed := pflag.NewFlagSet("environment", pflag.ContinueOnError) // a copy: setting the real flags would look like the command line
	for _, set := range []*pflag.FlagSet{Global(), Mapping(), Relay(), RetentionFlags(), ServeFlags(), Client()} {
		parsed.AddFlagSet(set)
	}
	values := map[string]any{}
	for _, flag := range slices.Sorted(maps.Keys(vars)) {
		if flag == "config" {
			continue
		}
		f := parsed.Lookup(flag)
		if err := f.Value.Set(vars[flag].value); err != nil {
			problems.add("%s: it takes what --%s takes: %v", vars[flag].name, flag, err)
			continue
		}
		values[key(flag)] = posflag.FlagVal(parsed, f)
	}
	return values
}

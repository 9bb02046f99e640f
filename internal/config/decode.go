package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
)

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
	number := from.CanInt() || from.CanUint() || from.CanFloat()
	switch {
	case to.Type() == reflect.TypeFor[Sinks]():
		return sinksOf(value)
	case from.Type() == to.Type(), to.Kind() == reflect.Interface, isText && to.Kind() == reflect.String:
		return value, nil
	case to.Type() == reflect.TypeFor[time.Duration]():
		if isText {
			d, err := time.ParseDuration(text)
			if err != nil {
				return nil, errors.New(noDuration(text))
			}
			return d, nil
		}
		if number && value != 0 {
			return nil, errors.New(noDuration(fmt.Sprint(value))) // "poll_max: 5" would be five nanoseconds
		}
		if number {
			return time.Duration(0), nil
		}
		return nil, errors.New(noDuration(shape(value)))
	}
	switch to.Kind() {
	case reflect.Int:
		if f, ok := value.(float64); ok && f == math.Trunc(f) && math.Abs(f) < math.MaxInt64 {
			return int(f), nil // 1e6 is a whole number
		} else if from.CanInt() {
			return value, nil
		} else if from.CanUint() || ok && f == math.Trunc(f) {
			return nil, fmt.Errorf("%v is too large", value)
		}
		_, err := strconv.Atoi(text)
		return nil, fmt.Errorf("%s is no whole number%s", shape(value), unquote(err))
	case reflect.Float64:
		if number {
			return value, nil
		}
		_, err := strconv.ParseFloat(text, 64)
		return nil, fmt.Errorf("%s is no number%s", shape(value), unquote(err))
	case reflect.String:
		switch {
		case number: // not shown: it may be what a token or a password begins with
			return nil, errors.New("want text, and not a number: put it in quotes")
		case from.Kind() == reflect.Map, from.Kind() == reflect.Slice:
			return nil, fmt.Errorf("want text, and not %s", shape(value))
		}
		return nil, fmt.Errorf("want text, and not %s: put it in quotes", shape(value))
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

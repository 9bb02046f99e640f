package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

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
	defaultAges  = []string{brief(relayDefaults.Retention.After), Letters + "=" + brief(relayDefaults.LetterRetention.After)}
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

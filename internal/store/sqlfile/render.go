package sqlfile

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Caller has functions for templates, such as one that adds an argument to the statement and
// returns its number. Call must refuse a name that it does not know.
type Caller interface {
	Call(function string, operand any) (any, error)
}

// rendering is one call of Render.
type rendering struct {
	text   strings.Builder
	caller Caller
}

// scope is what can be seen at a place of a template.
type scope struct {
	dot       any
	variables []variable
}

type variable struct {
	name  string
	value any
}

func (s scope) find(name string) any {
	for i := len(s.variables) - 1; i >= 0; i-- {
		if s.variables[i].name == name {
			return s.variables[i].value
		}
	}
	return nil // not reached: Parse knows the variables
}

func (b body) render(r *rendering, s scope) error {
	for _, n := range b {
		if err := n(r, s); err != nil {
			return err
		}
	}
	return nil
}

// Has tells whether there is a file name.sql.
func (f *Set) Has(name string) bool {
	_, there := f.templates[name+".sql"]
	return there
}

// Render returns the text of file name.sql with data filled in.
func (f *Set) Render(name string, data any) (string, error) { return f.render(name, data, nil) }

func (f *Set) render(name string, data any, caller Caller) (string, error) {
	b, there := f.templates[name+".sql"]
	if !there {
		return "", fmt.Errorf("render %s.sql: there is no such file", name)
	}
	r := rendering{caller: caller}
	if err := b.render(&r, scope{dot: data, variables: []variable{{"$", data}}}); err != nil {
		return "", fmt.Errorf("render %s.sql: %w", name, err)
	}
	return r.text.String(), nil
}

// Statement is Render without the comment at the head of the file, which is for its readers and not
// for the server.
func (f *Set) Statement(name string, data any) (string, error) {
	return f.StatementWith(name, data, nil)
}

// StatementWith is Statement for a file that calls functions.
func (f *Set) StatementWith(name string, data any, caller Caller) (string, error) {
	text, err := f.render(name, data, caller)
	for strings.HasPrefix(text, "--") {
		_, text, _ = strings.Cut(text, "\n")
	}
	return text, err
}

// fieldOf never asks for a method: see the package comment.
func fieldOf(v any, name string) (any, error) {
	of := reflect.Indirect(reflect.ValueOf(v))
	if of.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%T has no fields", v)
	}
	field := of.FieldByName(name)
	if !field.IsValid() {
		return nil, fmt.Errorf("%T has no field %s", v, name)
	}
	return field.Interface(), nil
}

func truth(v any) (bool, error) {
	if at, ok := v.(time.Time); ok {
		return !at.IsZero(), nil
	}
	of := reflect.ValueOf(v)
	switch of.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.Pointer, reflect.Array:
		return !of.IsZero(), nil
	case reflect.String, reflect.Slice:
		return of.Len() > 0, nil
	default:
		return false, fmt.Errorf("%T is no condition", v)
	}
}

func textOf(v any) (string, error) {
	of := reflect.ValueOf(v)
	switch of.Kind() {
	case reflect.String:
		return of.String(), nil
	case reflect.Int, reflect.Int64:
		return strconv.FormatInt(of.Int(), 10), nil
	default:
		return "", fmt.Errorf("%T is no text", v)
	}
}

func each(v any, do func(i int, v any) error) error {
	of := reflect.ValueOf(v)
	if of.Kind() != reflect.Slice {
		return fmt.Errorf("%T is no list", v)
	}
	for i := range of.Len() {
		if err := do(i, of.Index(i).Interface()); err != nil {
			return err
		}
	}
	return nil
}

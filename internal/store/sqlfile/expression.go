package sqlfile

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// expression finds a value.
type expression func(r *rendering, s scope) (any, error)

// tokens of an expression: a text in quotes, a bracket, or a run of anything else.
var tokens = regexp.MustCompile(`"[^"]*"|[()]|[^\s()"]+`)

var (
	number   = regexp.MustCompile(`^[0-9]+$`)
	function = regexp.MustCompile(`^[a-z_]+$`)
	operand  = regexp.MustCompile(`^(\$[a-z]*)?((\.[A-Z][A-Za-z]*)*|\.)$`)
)

// expression reads a value, or a function with its arguments.
func (p *parser) expression(text string) (expression, error) {
	list := tokens.FindAllString(text, -1)
	e, rest, err := p.operation(list)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%q is left over", strings.Join(rest, " "))
	}
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	return e, nil
}

// operation reads one operand, or a function and operands up to the end or a closing bracket.
func (p *parser) operation(list []string) (e expression, rest []string, err error) {
	if len(list) == 0 {
		return nil, nil, fmt.Errorf("a value is missing")
	}
	if !function.MatchString(list[0]) {
		return p.operand(list)
	}
	name := list[0]
	var operands []expression
	for rest = list[1:]; len(rest) > 0 && rest[0] != ")"; {
		if e, rest, err = p.operand(rest); err != nil {
			return nil, nil, err
		}
		operands = append(operands, e)
	}
	of, known := builtins[name]
	if !known {
		of = builtin{operands: 1, apply: caller(name)}
	}
	if len(operands) < of.operands || len(operands) > of.operands && !of.more {
		return nil, nil, fmt.Errorf("%s takes %d operands, not %d", name, of.operands, len(operands))
	}
	return func(r *rendering, s scope) (any, error) { return of.apply(r, s, operands) }, rest, nil
}

func (p *parser) operand(list []string) (e expression, rest []string, err error) {
	word := list[0]
	switch {
	case word == "(":
		if e, rest, err = p.operation(list[1:]); err == nil && (len(rest) == 0 || rest[0] != ")") {
			err = fmt.Errorf("a bracket is not closed")
		}
		if err != nil {
			return nil, nil, err
		}
		return e, rest[1:], nil
	case word[0] == '"':
		if len(word) < 2 {
			return nil, nil, fmt.Errorf("a quote is not closed")
		}
		return constant(word[1 : len(word)-1]), list[1:], nil
	case number.MatchString(word):
		n, err := strconv.Atoi(word)
		return constant(n), list[1:], err
	case operand.MatchString(word) && word != "":
		e, err := p.path(word)
		return e, list[1:], err
	}
	return nil, nil, fmt.Errorf("%q is no value", word)
}

func constant(v any) expression { return func(*rendering, scope) (any, error) { return v, nil } }

// path is the dot or a variable, and fields of it.
func (p *parser) path(word string) (expression, error) {
	start, fields, _ := strings.Cut(word, ".")
	if start != "" && !slices.Contains(p.variables, start) {
		return nil, fmt.Errorf("there is no variable %s", start)
	}
	var names []string
	if fields != "" {
		names = strings.Split(fields, ".")
	}
	return func(_ *rendering, s scope) (v any, err error) {
		if v = s.dot; start != "" {
			v = s.find(start)
		}
		for _, name := range names {
			if v, err = fieldOf(v, name); err != nil {
				return nil, fmt.Errorf("%s: %w", word, err)
			}
		}
		return v, nil
	}, nil
}

// builtin is a function of the language.
type builtin struct {
	operands int
	more     bool // takes more too
	apply    func(r *rendering, s scope, operands []expression) (any, error)
}

// As in text/template, and and or return the operand that decided and do not look at those after
// it.
var builtins = map[string]builtin{
	"and": {2, true, decided(false)},
	"or":  {2, true, decided(true)},
	"eq":  {2, false, compared(true)},
	"ne":  {2, false, compared(false)},
	"not": {1, false, func(r *rendering, s scope, operands []expression) (any, error) {
		v, err := operands[0](r, s)
		if err != nil {
			return nil, err
		}
		yes, err := truth(v)
		return !yes, err
	}},
}

func decided(by bool) func(*rendering, scope, []expression) (any, error) {
	return func(r *rendering, s scope, operands []expression) (any, error) {
		last := len(operands) - 1
		for _, o := range operands[:last] {
			v, err := o(r, s)
			if err != nil {
				return nil, err
			}
			if yes, err := truth(v); err != nil || yes == by {
				return v, err
			}
		}
		return operands[last](r, s)
	}
}

func compared(equal bool) func(*rendering, scope, []expression) (any, error) {
	return func(r *rendering, s scope, operands []expression) (any, error) {
		var texts [2]string
		for i, o := range operands {
			v, err := o(r, s)
			if err != nil {
				return nil, err
			}
			if texts[i], err = textOf(v); err != nil {
				return nil, err
			}
		}
		return (texts[0] == texts[1]) == equal, nil
	}
}

// caller is a function that the Caller has.
func caller(name string) func(*rendering, scope, []expression) (any, error) {
	return func(r *rendering, s scope, operands []expression) (any, error) {
		v, err := operands[0](r, s)
		if err != nil {
			return nil, err
		}
		if r.caller == nil {
			return nil, fmt.Errorf("nobody gives the function %s", name)
		}
		return r.caller.Call(name, v)
	}
}

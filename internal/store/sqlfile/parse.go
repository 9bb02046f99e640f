package sqlfile

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Set is the files of a folder, or of several. It is safe for concurrent use.
type Set struct {
	templates map[string]body
}

// Files are folders that are parsed at the first use, and once: opening a store asks for them
// several times.
type Files struct{ parse func() (*Set, error) }

// Folder is the folder sql/ of files, and those beside it.
func Folder(files fs.FS, beside ...fs.FS) Files {
	return Files{sync.OnceValues(func() (*Set, error) { return Parse(files, "sql/*.sql", beside...) })}
}

// Set is what the files say.
func (f Files) Set() (*Set, error) { return f.parse() }

// Statement is Set.Statement.
func (f Files) Statement(name string, data any) (string, error) {
	set, err := f.parse()
	if err != nil {
		return "", err
	}
	return set.Statement(name, data)
}

// Fill sets each text to the statement of its name.
func (f Files) Fill(data any, texts map[string]*string) (err error) {
	for name, text := range texts {
		if *text, err = f.Statement(name, data); err != nil {
			return err
		}
	}
	return nil
}

// body is a template: what it consists of, one after the other.
type body []node

// node writes its part of the text.
type node func(r *rendering, s scope) error

// Parse reads the files that pattern names in files, and in the folders beside it. A file is a
// template by its base name, and no two folders may have the same.
func Parse(files fs.FS, pattern string, beside ...fs.FS) (*Set, error) {
	set := &Set{templates: map[string]body{}}
	var called []string
	for _, folder := range append([]fs.FS{files}, beside...) {
		calls, err := set.parse(folder, pattern)
		if err != nil {
			return nil, err
		}
		called = append(called, calls...)
	}
	for _, name := range called {
		if _, there := set.templates[name]; !there {
			return nil, fmt.Errorf("parse %s: there is no template %q", pattern, name)
		}
	}
	return set, nil
}

// parse adds the files of one folder, and returns the templates that they call.
func (f *Set) parse(files fs.FS, pattern string) (called []string, err error) {
	names, err := fs.Glob(files, pattern)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", pattern, err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", name, err)
		}
		p := parser{set: f, rest: string(text), variables: []string{"$"}}
		if err := p.file(path.Base(name)); err != nil {
			done := strings.Count(string(text[:len(text)-len(p.rest)]), "\n")
			return nil, fmt.Errorf("parse %s: line %d: %w", name, done+1, err)
		}
		called = append(called, p.called...)
	}
	return called, nil
}

// parser reads one file.
type parser struct {
	set       *Set
	rest      string
	trim      bool     // the action before ended with -}}
	variables []string // that can be seen here
	called    []string // templates
}

const blanks = " \t\r\n"

func (p *parser) file(name string) error {
	b, end, err := p.body()
	if err == nil && end.word != "" {
		err = fmt.Errorf("{{%s}} ends nothing", end.word)
	}
	if err != nil {
		return err
	}
	return p.add(name, b)
}

func (p *parser) add(name string, b body) error {
	if _, there := p.set.templates[name]; there {
		return fmt.Errorf("template %q is defined twice", name)
	}
	p.set.templates[name] = b
	return nil
}

// action is what stands between braces: its first word, if that is one of ours, and the rest.
type action struct{ word, rest string }

var words = []string{"if", "else", "end", "with", "range", "define", "template"}

// body reads up to the end of the file, or to an {{else}} or {{end}}, which it returns.
func (p *parser) body() (b body, end action, err error) {
	for {
		text, found, ok := p.next()
		if text != "" {
			b = append(b, func(r *rendering, _ scope) error { r.text.WriteString(text); return nil })
		}
		if !ok {
			return b, action{}, nil
		}
		a, err := split(found)
		if err != nil {
			return nil, action{}, err
		}
		var n node
		switch a.word {
		case "else", "end":
			return b, a, nil
		case "if", "with":
			n, err = p.choice(a)
		case "range":
			n, err = p.loop(a)
		case "define":
			err = p.define(a)
		case "template":
			n, err = p.call(a)
		default:
			n, err = p.value(a)
		}
		if err != nil {
			return nil, action{}, err
		}
		if n != nil {
			b = append(b, n)
		}
	}
}

// next returns the text before the next action that is no comment, and the action.
func (p *parser) next() (text, found string, ok bool) {
	for {
		before, after, ok := strings.Cut(p.rest, "{{")
		if p.trim {
			before = strings.TrimLeft(before, blanks)
		}
		p.trim = false
		if !ok {
			p.rest = ""
			return text + before, "", false
		}
		if strings.HasPrefix(after, "- ") {
			before, after = strings.TrimRight(before, blanks), after[1:]
		}
		inside, rest, closed := strings.Cut(after, "}}")
		if !closed {
			return text + before, "{{", true // split refuses it
		}
		if cut, ok := strings.CutSuffix(inside, " -"); ok {
			inside, p.trim = cut, true
		}
		p.rest, text = rest, text+before
		if inside = strings.Trim(inside, blanks); strings.HasPrefix(inside, "/*") && strings.HasSuffix(inside, "*/") {
			continue
		}
		return text, inside, true
	}
}

func split(inside string) (action, error) {
	if inside == "" || strings.Contains(inside, "{{") {
		return action{}, fmt.Errorf("an action is empty or has no end")
	}
	word, rest, _ := strings.Cut(inside, " ")
	if !slices.Contains(words, word) {
		return action{rest: inside}, nil
	}
	return action{word, strings.Trim(rest, blanks)}, nil
}

// choice is an if or a with, and all that belongs to it.
func (p *parser) choice(a action) (node, error) {
	condition, err := p.expression(a.rest)
	if err != nil {
		return nil, err
	}
	then, otherwise, err := p.branches()
	if err != nil {
		return nil, err
	}
	dotted := a.word == "with"
	return func(r *rendering, s scope) error {
		v, err := condition(r, s)
		if err != nil {
			return err
		}
		yes, err := truth(v)
		switch {
		case err != nil:
			return err
		case !yes:
			return otherwise.render(r, s)
		case dotted:
			s.dot = v
		}
		return then.render(r, s)
	}, nil
}

// branches reads up to the end that closes what has been opened.
func (p *parser) branches() (then, otherwise body, err error) {
	then, end, err := p.body()
	if err != nil {
		return nil, nil, err
	}
	if end.word == "else" {
		if a, err := split(end.rest + " "); end.rest != "" && (err != nil || a.word != "if") {
			return nil, nil, fmt.Errorf("{{else %s}} is not known", end.rest)
		} else if end.rest != "" {
			n, err := p.choice(a)
			return then, body{n}, err
		}
		if otherwise, end, err = p.body(); err != nil {
			return nil, nil, err
		}
		otherwise = append(body{}, otherwise...) // not nil, though empty
	}
	if end.word != "end" || end.rest != "" {
		return nil, nil, fmt.Errorf("{{end}} is missing, there is %q", strings.Trim(end.word+" "+end.rest, blanks))
	}
	return then, otherwise, nil
}

// loop is {{range values}} or {{range $i, $v := values}}.
func (p *parser) loop(a action) (node, error) {
	names, values, named := strings.Cut(a.rest, ":=")
	var index, item string
	if !named {
		values = a.rest
	} else if index, item, named = strings.Cut(names, ","); !named {
		return nil, fmt.Errorf("range has two variables or none, not %q", names)
	}
	of, err := p.expression(values)
	if err != nil {
		return nil, err
	}
	index, item = strings.Trim(index, blanks), strings.Trim(item, blanks)
	outer := len(p.variables)
	p.variables = append(p.variables, index, item)
	then, otherwise, err := p.branches()
	p.variables = p.variables[:outer]
	if err != nil {
		return nil, err
	}
	if otherwise != nil {
		return nil, fmt.Errorf("range has no else")
	}
	return func(r *rendering, s scope) error {
		v, err := of(r, s)
		if err != nil {
			return err
		}
		return each(v, func(i int, v any) error {
			inner := scope{dot: v, variables: append(slices.Clip(s.variables), variable{index, i}, variable{item, v})}
			return then.render(r, inner)
		})
	}, nil
}

func (p *parser) define(a action) error {
	name, err := strconv.Unquote(a.rest)
	if err != nil {
		return fmt.Errorf("define %s: want a name in quotes", a.rest)
	}
	outer := p.variables
	p.variables = []string{"$"}
	b, otherwise, err := p.branches()
	p.variables = outer
	if err != nil {
		return err
	}
	if otherwise != nil {
		return fmt.Errorf("define %q has an else", name)
	}
	return p.add(name, b)
}

// call is {{template "name"}} or {{template "name" value}}.
func (p *parser) call(a action) (node, error) {
	quoted, rest, _ := strings.Cut(a.rest, " ")
	name, err := strconv.Unquote(quoted)
	if err != nil {
		return nil, fmt.Errorf("template %s: want a name in quotes", a.rest)
	}
	p.called = append(p.called, name)
	given := func(*rendering, scope) (any, error) { return nil, nil }
	if rest = strings.Trim(rest, blanks); rest != "" {
		if given, err = p.expression(rest); err != nil {
			return nil, err
		}
	}
	set := p.set
	return func(r *rendering, s scope) error {
		v, err := given(r, s)
		if err != nil {
			return err
		}
		return set.templates[name].render(r, scope{dot: v, variables: []variable{{"$", v}}})
	}, nil
}

// value writes a text or an integer.
func (p *parser) value(a action) (node, error) {
	of, err := p.expression(a.rest)
	if err != nil {
		return nil, err
	}
	return func(r *rendering, s scope) error {
		v, err := of(r, s)
		if err != nil {
			return err
		}
		text, err := textOf(v)
		r.text.WriteString(text)
		return err
	}, nil
}

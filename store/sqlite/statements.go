package sqlite

import (
	"embed"
	"fmt"
	"strings"
	"sync"
	"text/template"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// parseSQL parses the files once: opening a store asks for them several times.
var parseSQL = sync.OnceValues(func() (*template.Template, error) {
	t, err := template.New("sql").ParseFS(sqlFiles, "sql/*.sql")
	if err != nil {
		return nil, fmt.Errorf("parse SQL templates: %w", err)
	}
	return t, nil
})

// render fills one statement in; its header comment stays in the file.
func render(t *template.Template, name string, data any) (string, error) {
	var b strings.Builder
	if err := t.ExecuteTemplate(&b, name+".sql", data); err != nil {
		return "", fmt.Errorf("render %s.sql: %w", name, err)
	}
	text := b.String()
	for strings.HasPrefix(text, "--") {
		_, text, _ = strings.Cut(text, "\n")
	}
	return text, nil
}

// plain returns a statement that needs no names.
func plain(name string) (string, error) {
	t, err := parseSQL()
	if err != nil {
		return "", err
	}
	return render(t, name, nil)
}

package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// endpointFile is the YAML file that Open describes.
type endpointFile struct {
	path  string
	cfg   Config
	texts map[string]string // of the files that were read, by their paths
	right bool              // nothing was wrong with them
}

const maxFileBytes = 16 << 20

func newFile(path string, cfg Config) *endpointFile { return &endpointFile{path: path, cfg: cfg} }

// read returns the endpoints unless all files are as they were.
func (f *endpointFile) read(context.Context) (List, error) {
	if f.right && f.same() {
		return nil, nil
	}
	f.texts = map[string]string{}
	list, err := f.parse()
	f.right = err == nil
	return list, err
}

func (f *endpointFile) same() bool {
	for path, text := range f.texts {
		if now, err := readFile(path); err != nil || now != text {
			return false
		}
	}
	return true
}

// parse reads the file. All problems are reported at once; none shows a secret.
func (f *endpointFile) parse() (List, error) {
	text, err := f.note(f.path)
	if err != nil {
		return nil, fmt.Errorf("read webhook endpoints: %w", err)
	}
	content := struct{ Endpoints List }{List{}}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&content); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read webhook endpoints of %s: %s", f.path, quoted.ReplaceAllString(err.Error(), "…"))
	}
	var problems []error
	for _, e := range content.Endpoints {
		value := func(of string, text Secret) Secret {
			secret, err := readSecret(string(text), filepath.Dir(f.path), f.note)
			if err != nil {
				problems = append(problems, fmt.Errorf("endpoint %q: %s: %w", e.Name, of, err))
			}
			return secret
		}
		for i, text := range e.Secrets {
			e.Secrets[i] = value(fmt.Sprintf("secret %d", i+1), text)
		}
		for name, text := range e.Headers {
			e.Headers[name] = value("header "+name, text)
		}
	}
	if len(problems) == 0 { // else each would be told of again as a secret that is none
		problems = append(problems, content.Endpoints.check(f.cfg))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("webhook endpoints of %s: %w", f.path, err)
	}
	return content.Endpoints, nil
}

// quoted is what an error of the decoder quotes, to the end if it ends nowhere: a value in the
// wrong place may be a secret.
var quoted = regexp.MustCompile("(?s)`.*?(`|$)|\".*?(\"|$)|'.*?('|$)")

// note reads a file and remembers what is in it.
func (f *endpointFile) note(path string) (string, error) {
	text, err := readFile(path)
	if err == nil && f.texts != nil {
		f.texts[path] = text
	}
	return text, err
}

// ReadSecret returns the secret that a text is, or refers to: env:NAME is a variable of the
// environment, file:PATH a file without its last line break.
func ReadSecret(text string) (Secret, error) { return readSecret(text, "", readFile) }

func readSecret(text, folder string, read func(path string) (string, error)) (Secret, error) {
	if name, ok := strings.CutPrefix(text, "env:"); ok {
		value := os.Getenv(name)
		if value == "" {
			return "", fmt.Errorf("the variable %s is not set", name)
		}
		return Secret(value), nil
	}
	if path, ok := strings.CutPrefix(text, "file:"); ok {
		if !filepath.IsAbs(path) {
			path = filepath.Join(folder, path)
		}
		value, err := read(path)
		return Secret(strings.TrimRight(value, "\r\n")), err
	}
	return Secret(text), nil
}

// isReference tells whether a text names where a secret is.
func isReference(text string) bool {
	return strings.HasPrefix(text, "env:") || strings.HasPrefix(text, "file:")
}

func readFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }() // only read
	text, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err == nil && len(text) > maxFileBytes {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFileBytes)
	}
	return string(text), err
}

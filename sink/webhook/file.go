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
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
)

// endpointFile implements Endpoints by the YAML file that Open describes. While it is in use, it
// checks once a second whether the file has changed. If the file is wrong, the endpoints that were
// read last stay in use.
type endpointFile struct {
	path string
	cfg  Config

	mu      sync.Mutex
	checked time.Time
	list    List              // as it was read last without an error
	texts   map[string]string // content of the files that were read, by path
	err     error             // of the last read
}

const (
	maxFileBytes = 16 << 20
	checkEvery   = time.Second
)

func newFile(path string, cfg Config) *endpointFile { return &endpointFile{path: path, cfg: cfg} }

// Lookup implements Endpoints. If a name is not known, it checks the file at once.
func (f *endpointFile) Lookup(ctx context.Context, names ...string) (map[string]Endpoint, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fresh := time.Since(f.checked) >= checkEvery
	if fresh {
		f.refresh()
	}
	found, err := f.list.Lookup(ctx, names...)
	if len(found) < len(names) && !fresh {
		f.refresh()
		found, err = f.list.Lookup(ctx, names...)
	}
	return found, err
}

// all implements lister. It checks the file.
func (f *endpointFile) all() List {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refresh()
	return f.list
}

// longest implements lister.
func (f *endpointFile) longest() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.list.longest()
}

// failure implements lister. It returns what is wrong with the file, or nil.
func (f *endpointFile) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return fmt.Errorf("the former webhook endpoints are still in use: %w", f.err)
	}
	return nil
}

// refresh reads the file again if it, or a file that it names, has changed.
func (f *endpointFile) refresh() {
	f.checked = time.Now()
	if f.texts != nil && f.err == nil && f.same() {
		return
	}
	again := f.texts != nil
	f.texts = map[string]string{}
	list, err := f.parse()
	switch {
	case err == nil && f.err != nil:
		f.cfg.Logger.Info("webhook endpoints are read again")
	case err != nil && again && (f.err == nil || f.err.Error() != err.Error()):
		f.cfg.Logger.Error("cannot read webhook endpoints, the former ones stay in use", "error", err)
	}
	if f.err = err; err == nil {
		f.list = list
	}
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

// readSecret returns the secret that a text is or refers to, as Open describes it.
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

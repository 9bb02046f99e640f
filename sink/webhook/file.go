package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboxrelay/outbox"
)

// endpointFile is Endpoints in the YAML file that Open describes.
type endpointFile struct {
	path string
	cfg  Config
	env  func(name string) (string, bool)
	log  *slog.Logger

	mu      sync.Mutex
	checked time.Time
	known   List
	stamps  map[string]stamp // of the files that known was read from
	problem error
}

// stamp tells whether a file is still the one that was read.
type stamp struct {
	changed time.Time
	size    int64
	info    fs.FileInfo
}

const (
	checkEvery = time.Second
	// A file that is so young may be written again without its time of change, or its size, telling.
	tooYoung     = 2 * time.Second
	maxFileBytes = 16 << 20
)

// openFile reads the file of endpoints. All problems are reported at once; none shows a secret.
func openFile(path string, cfg Config) (*endpointFile, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configure webhook endpoints: %w", err)
	}
	f := &endpointFile{path: path, cfg: cfg, env: os.LookupEnv, log: cfg.Logger}
	if err := f.read(time.Now()); err != nil {
		return nil, err
	}
	return f, nil
}

// Lookup implements Endpoints. A name that is not known makes it look into the file at once.
func (f *endpointFile) Lookup(ctx context.Context, names ...string) (map[string]Endpoint, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Sub(f.checked) >= checkEvery {
		f.refresh(now)
	}
	found, err := f.known.Lookup(ctx, names...)
	if len(found) < len(names) && f.checked != now {
		f.refresh(now)
		found, err = f.known.Lookup(ctx, names...)
	}
	return found, err
}

// all returns the endpoints in the order of the file.
func (f *endpointFile) all() []Endpoint {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.known)
}

// subscriptions are those of all endpoints, as the file is now.
func (f *endpointFile) subscriptions(ctx context.Context) ([]outbox.Subscription, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refresh(time.Now())
	return f.known.subscriptions(ctx)
}

// longest is the longest timeout of the endpoints that are in use.
func (f *endpointFile) longest() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known.longest()
}

// failure is why the file could not be read again, nil if all is well.
func (f *endpointFile) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problem
}

// refresh reads the file again if it has changed.
func (f *endpointFile) refresh(now time.Time) {
	f.checked = now
	if !f.stale(now) {
		return
	}
	was := f.problem
	f.problem = f.read(now)
	switch {
	case f.problem != nil && (was == nil || was.Error() != f.problem.Error()):
		f.log.Error("cannot read webhook endpoints, the former ones stay in use", "error", f.problem)
	case f.problem == nil && was != nil:
		f.log.Info("webhook endpoints are read again", "file", f.path)
	}
}

func (f *endpointFile) stale(now time.Time) bool {
	if f.problem != nil {
		return true
	}
	for path, read := range f.stamps {
		info, err := os.Stat(path)
		if err != nil || !os.SameFile(info, read.info) || info.Size() != read.size || !info.ModTime().Equal(read.changed) ||
			now.Sub(read.changed) < tooYoung {
			return true
		}
	}
	return false
}

// entry is an Endpoint as the file has it.
type entry struct {
	Name        string            `yaml:"name"`
	Tenant      string            `yaml:"tenant"`
	Topics      []string          `yaml:"topics"`
	Types       []string          `yaml:"types"`
	URL         string            `yaml:"url"`
	Secrets     []string          `yaml:"secrets"`
	Headers     map[string]string `yaml:"headers"`
	Timeout     time.Duration     `yaml:"timeout"`
	Concurrency int               `yaml:"concurrency"`
	Rate        float64           `yaml:"rate"`
	Disabled    bool              `yaml:"disabled"`
}

// read replaces what is known by what the file says, unless something is wrong with it.
func (f *endpointFile) read(now time.Time) error {
	f.checked = now
	stamps := map[string]stamp{}
	text, err := readFile(f.path, stamps)
	if err != nil {
		return fmt.Errorf("read webhook endpoints: %w", err)
	}
	var content struct {
		Endpoints []entry `yaml:"endpoints"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&content); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read webhook endpoints of %s: %w", f.path, unquoted(err))
	}
	var list List
	var problems []error
	for _, one := range content.Endpoints {
		e := Endpoint{Name: one.Name, Tenant: one.Tenant, Topics: one.Topics, Types: one.Types, URL: one.URL,
			Timeout: one.Timeout, Concurrency: one.Concurrency, Rate: one.Rate, Disabled: one.Disabled}
		value := func(of, text string) Secret {
			secret, err := f.secret(text, stamps)
			if err != nil {
				problems = append(problems, fmt.Errorf("endpoint %q: %s: %w", one.Name, of, err))
			}
			return Secret(secret)
		}
		for i, text := range one.Secrets {
			e.Secrets = append(e.Secrets, value(fmt.Sprintf("secret %d", i+1), text))
		}
		for name, text := range one.Headers {
			if e.Headers == nil {
				e.Headers = map[string]Secret{}
			}
			e.Headers[name] = value("header "+name, text)
		}
		list = append(list, e)
	}
	if len(problems) == 0 { // else each would be told of again as a secret that is none
		problems = append(problems, list.check(f.cfg))
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("webhook endpoints of %s: %w", f.path, err)
	}
	f.known, f.stamps = list, stamps
	return nil
}

// secret returns a text, or what it refers to.
func (f *endpointFile) secret(text string, stamps map[string]stamp) (string, error) {
	return resolve(text, filepath.Dir(f.path), f.env, stamps)
}

// resolve returns a text, or what it refers to: env:NAME is a variable, file:PATH a file, which is noted in stamps.
func resolve(
	text, folder string, env func(string) (string, bool), stamps map[string]stamp,
) (string, error) {
	if name, ok := strings.CutPrefix(text, "env:"); ok {
		value, set := env(name)
		if !set || value == "" {
			return "", fmt.Errorf("the variable %s is not set", name)
		}
		return value, nil
	}
	if path, ok := strings.CutPrefix(text, "file:"); ok {
		if !filepath.IsAbs(path) {
			path = filepath.Join(folder, path)
		}
		value, err := readFile(path, stamps)
		if err != nil {
			return "", err
		}
		return strings.TrimRight(string(value), "\r\n"), nil
	}
	return text, nil
}

// isReference tells whether a text names where a secret is.
func isReference(text string) bool {
	return strings.HasPrefix(text, "env:") || strings.HasPrefix(text, "file:")
}

func readFile(path string, stamps map[string]stamp) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFileBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFileBytes)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFileBytes))
	if err != nil {
		return nil, err
	}
	stamps[path] = stamp{info.ModTime(), info.Size(), info}
	return text, nil
}

// unquoted is an error of the decoder without what it quotes: a value in the wrong place may be a secret.
func unquoted(err error) error {
	var wrong *yaml.TypeError
	if !errors.As(err, &wrong) {
		return errors.New(withoutQuotes(err.Error()))
	}
	var lines []error
	for _, line := range wrong.Errors {
		lines = append(lines, errors.New(withoutQuotes(line)))
	}
	return errors.Join(lines...)
}

// withoutQuotes leaves out what stands between backquotes and quotes.
func withoutQuotes(text string) string {
	var b strings.Builder
	inside := rune(0)
	for _, c := range text {
		switch {
		case inside != 0:
			if c == inside {
				inside = 0
				b.WriteRune('…')
				b.WriteRune(c)
			}
		case c == '`' || c == '"' || c == '\'':
			inside = c
			b.WriteRune(c)
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

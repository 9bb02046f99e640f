// Package sinks is how the command finds a sink by its URL: a Registry knows the drivers of package
// sink.
//
// Guaranteed: two drivers of one scheme, and a driver that cannot open, are errors of NewRegistry.
// A registry shows no more of a URL than its driver's Mask does, and of one that no driver knows,
// the scheme.
//
// Not guaranteed: that a driver keeps what its fields ask for. Package outboxtest has the suite for
// what its sinks publish.
package sinks

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
	"github.com/outboxrelay/outbox/sink"
)

// Registry knows drivers by the schemes of their URLs. The zero value knows none.
type Registry struct {
	drivers  []sink.Driver
	byScheme map[string]sink.Driver
}

// scheme is what RFC 3986 makes of one, in lower case.
var scheme = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)

// NewRegistry returns a registry of the drivers. All problems with them are reported at once.
func NewRegistry(drivers ...sink.Driver) (Registry, error) {
	r := Registry{drivers: drivers, byScheme: map[string]sink.Driver{}}
	var problems []error
	for i, d := range drivers {
		if len(d.Schemes) == 0 || d.Example == "" || d.Open == nil {
			problems = append(problems,
				fmt.Errorf("driver %d (schemes %s) lacks one of Schemes, Example and Open", i+1, strings.Join(d.Schemes, ", ")))
		}
		for _, name := range d.Schemes {
			if !scheme.MatchString(name) {
				problems = append(problems, fmt.Errorf("driver %d: %q is no scheme of URLs", i+1, name))
			}
			if _, taken := r.byScheme[name]; taken {
				problems = append(problems, fmt.Errorf("driver %d: another driver has the scheme %s already", i+1, name))
				continue
			}
			r.byScheme[name] = d
		}
	}
	if err := errors.Join(problems...); err != nil {
		return Registry{}, fmt.Errorf("register sinks: %w", err)
	}
	return r, nil
}

// Drivers returns the drivers in their order.
func (r Registry) Drivers() []sink.Driver { return slices.Clone(r.drivers) }

// Examples returns how the URLs of the drivers look, a line each.
func (r Registry) Examples() (lines []string) {
	for _, d := range r.drivers {
		lines = append(lines, d.Example)
	}
	return lines
}

// Find returns the driver of a URL. The error names the known schemes, and shows no more of the URL
// than its scheme.
func (r Registry) Find(url string) (sink.Driver, error) {
	name, _, ok := strings.Cut(url, ":")
	name = strings.ToLower(name)
	if !ok || !scheme.MatchString(name) {
		return sink.Driver{}, fmt.Errorf(
			"the URL has no scheme (not shown, it may hold a password): want one of %s", r.Schemes())
	}
	d, known := r.byScheme[name]
	if !known {
		return sink.Driver{}, fmt.Errorf("there is no sink for URLs of %s: want one of %s", name, r.Schemes())
	}
	return d, nil
}

// Schemes are what the URLs of all drivers begin with, in one text: "kafka:, redis:".
func (r Registry) Schemes() string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(r.byScheme)) {
		names = append(names, name+":")
	}
	return strings.Join(names, ", ")
}

// Check says what is wrong with a URL, without connecting and without showing a password.
func (r Registry) Check(url string) error {
	d, err := r.Find(url)
	if err != nil || d.Check == nil {
		return err
	}
	return d.Check(url)
}

// Mask names the server behind a URL for logs and people.
func (r Registry) Mask(url string) string {
	d, err := r.Find(url)
	switch {
	case err != nil:
		return sinkurl.None
	case d.Mask == nil:
		return sinkurl.Mask(url)
	}
	return d.Mask(url)
}

// Hint asks the drivers for the remedy for an error; "" if none knows one.
func (r Registry) Hint(err error) string {
	for _, d := range r.drivers {
		if d.Hint == nil {
			continue
		}
		if hint := d.Hint(err); hint != "" {
			return hint
		}
	}
	return ""
}

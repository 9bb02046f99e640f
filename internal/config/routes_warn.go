package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// broker is what stands for any word in patterns of NATS and AMQP, and is a letter like any other in a route.
var broker = regexp.MustCompile(`(^|[.])(>|#)($|[.])`)

// RouteWarnings say what routes can hardly be meant to do: those that no event reaches, wildcards of a broker, and
// tables of which some events have no route and become dead letters. Settings that Check refuses have none.
func (c Config) RouteWarnings(needs Need) (warnings []string) {
	if c.withParts(needs)&Serving == 0 {
		return nil
	}
	tables, err := c.Tables()
	entries := c.routeEntries(&Error{})
	if err != nil || len(entries) == 0 {
		return nil
	}
	for _, t := range tables {
		if len(c.RoutesOf(t.Name())) == 0 {
			continue
		}
		of := slices.DeleteFunc(slices.Clone(entries), func(e routeEntry) bool {
			return e.Table != "" && e.Table != t.Name()
		})
		for i, e := range of {
			before := slices.IndexFunc(of[:i], func(b routeEntry) bool { return b.covers(e) })
			if before >= 0 && e.Name == "" {
				warnings = append(warnings, fmt.Sprintf("routes: no event of %s reaches the route %s: %s is before it and "+
					"takes all that it would: put the narrower one first", t.Name(), e, of[before]))
			}
		}
		if !slices.ContainsFunc(of, func(e routeEntry) bool { return e.covers(routeEntry{}) }) {
			warnings = append(warnings, fmt.Sprintf("routes: events of %s that none of its routes fits become dead letters: "+
				"end them with a route without conditions, such as {table: %s, to: [%s]}", t.Name(), t.Name(),
				of[len(of)-1].To[0]))
		}
	}
	for _, e := range entries {
		for _, pattern := range []string{e.Topic, e.Tenant, e.Type} {
			if broker.MatchString(pattern) {
				warnings = append(warnings, fmt.Sprintf("routes: %q is no wildcard of a broker here, > and # stand for "+
					"themselves: write %q, in which * stands for any text, with its dots", pattern,
					broker.ReplaceAllString(pattern, "$1*$3")))
			}
		}
	}
	return warnings
}

// covers tells whether the conditions of a route fit all that another one's fit. A pattern with text around several *
// may do so and not be found out.
func (e routeEntry) covers(other routeEntry) bool {
	return covers(e.Topic, other.Topic) && covers(e.Tenant, other.Tenant) && covers(e.Type, other.Type)
}

func covers(pattern, other string) bool {
	if strings.Trim(pattern, "*") == "" || pattern == other { // "" and * fit everything
		return true
	}
	first, rest, wild := strings.Cut(pattern, "*")
	return wild && rest == "" && other != "" && strings.HasPrefix(other, first)
}

// String names the conditions of a route as the settings have them.
func (e routeEntry) String() string {
	var parts []string
	for _, p := range [][2]string{{"table", e.Table}, {"topic", e.Topic}, {"tenant", e.Tenant}, {"type", e.Type}} {
		if p[1] != "" {
			parts = append(parts, fmt.Sprintf("%s: %q", p[0], p[1]))
		}
	}
	return "{" + strings.Join(append(parts, "to: ["+strings.Join(e.To, ", ")+"]"), ", ") + "}"
}

package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/fault"
)

// variableNames returns the environment variables of a flag: OUTBOX_ and its name. That of the database ends in _URL,
// and falls back to the name that platforms set.
func variableNames(flag string) []string {
	if flag == "database" {
		return []string{"OUTBOX_DATABASE_URL", "DATABASE_URL"}
	}
	return []string{prefix + strings.ToUpper(key(flag))}
}

const prefix = "OUTBOX_"

func key(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

// lists are the keys that a file has beside the flags' names.
var lists = []string{"limits", "retry"}

// knownNames returns the keys of a file and the variables that are settings.
func knownNames() (keys, variables map[string]bool) {
	keys, variables = map[string]bool{}, map[string]bool{}
	All().VisitAll(func(f *pflag.Flag) {
		variables[variableNames(f.Name)[0]] = true
		if f.Name != "config" { // says where the file is
			keys[key(f.Name)] = true
		}
	})
	for _, l := range lists {
		keys[l] = true
	}
	return keys, variables
}

// unknownKeys names the keys that nobody knows.
func unknownKeys(unknown []string) string {
	var each []string
	for _, name := range unknown {
		each = append(each, fmt.Sprintf("unknown key %q", name))
	}
	return strings.Join(each, "; ")
}

// strangers returns the variables that begin with OUTBOX_ and are no setting of any command. They may be somebody
// else's, and must not stop a daemon. Those that Kubernetes sets for a Service whose name begins with outbox are.
func strangers(set map[string]string) (ignored []string) {
	_, known := knownNames()
	for _, name := range slices.Sorted(maps.Keys(set)) {
		ofService := strings.Contains(name, "_SERVICE_") || strings.Contains(name+"_", "_PORT_")
		if strings.HasPrefix(name, prefix) && !known[name] && !ofService &&
			!(fault.Enabled && strings.HasPrefix(name, prefix+"FAULT")) {
			ignored = append(ignored, name)
		}
	}
	return ignored
}

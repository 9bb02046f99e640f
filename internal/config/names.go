package config

import (
	"fmt"
	"maps"
	"regexp"
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

// knownNames returns what somebody may write, in a file and in the environment, and what is right instead: mostly the
// same. The key database_url and the variable OUTBOX_DATABASE are wrong, and yet leave no doubt.
func knownNames() (keys, variables map[string]string) {
	keys, variables = map[string]string{}, map[string]string{}
	All().VisitAll(func(f *pflag.Flag) {
		k, v := key(f.Name), variableNames(f.Name)[0]
		variables[v], variables[prefix+strings.ToUpper(k)] = v, v
		if f.Name != "config" { // says where the file is
			keys[k], keys[strings.ToLower(strings.TrimPrefix(v, prefix))] = k, k
		}
	})
	for _, l := range lists {
		keys[l] = l
	}
	return keys, variables
}

// unknownKeys says what is wrong with keys that nobody knows, each with the nearest of those that are known (which map
// to themselves or to what is right).
func unknownKeys(unknown []string, known map[string]string) string {
	var each []string
	for _, name := range unknown {
		text := fmt.Sprintf("unknown key %q", name)
		// A third of it may be wrong: a suggestion costs nothing, the key is refused anyhow.
		// Keys are lower case; who writes a variable's name or a flag's means its key.
		if right, distance := nearest(strings.TrimPrefix(key(strings.ToLower(name)), "outbox_"), known); distance <= max(2,
			len(name)/3) {
			text += ": did you mean " + right + "?"
		}
		each = append(each, text)
	}
	return strings.Join(each, "; ")
}

// ofKubernetes matches the variables that Kubernetes sets in every pod for a Service whose name begins with outbox:
// OUTBOX_SERVICE_HOST, OUTBOX_PORT_9464_TCP_ADDR.
var ofKubernetes = regexp.MustCompile(`^OUTBOX_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// strangers sorts the variables that begin with OUTBOX_ and are no setting of any command. One that is nearly a setting
// is a problem: a typing error that is passed over loses a setting, and nobody notices until it matters. Any other may
// be somebody else's, and must not stop a daemon.
func strangers(set map[string]string, problems *Error) (ignored []string) {
	_, known := knownNames()
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if !strings.HasPrefix(name, prefix) || known[name] == name || ofKubernetes.MatchString(name) || fault.Enabled &&
			strings.HasPrefix(name, prefix+"FAULT") {
			continue
		}
		if instead, ok := Removed(name); ok {
			problems.add("%s is no setting any more: %s", name, instead)
			continue
		}
		// Of short names two letters are half: OUTBOX_PATH is not OUTBOX_AUTH.
		most := 2
		if len(name) < len(prefix)+6 {
			most = 1
		}
		if right, distance := nearest(name, known); distance <= most {
			problems.add("%s is not a setting: did you mean %s?", name, right)
		} else {
			ignored = append(ignored, name)
		}
	}
	return ignored
}

// nearest returns what is right instead of the known name that is the fewest slips away from name.
func nearest(name string, known map[string]string) (right string, distance int) {
	distance = len(name) + 1
	for _, candidate := range slices.Sorted(maps.Keys(known)) { // sorted: the same answer every time
		if d := slips(name, candidate); d < distance {
			right, distance = known[candidate], d
		}
	}
	return right, distance
}

// slips is the edit distance in which two swapped neighbours are one slip and not two ("optimal string alignment").
func slips(a, b string) int {
	before, last := []int(nil), make([]int, len(b)+1) // rows of the table of distances between beginnings of a and of b
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			other := 1
			if a[i] == b[j] {
				other = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+other)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

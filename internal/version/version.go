// Package version is the one place that knows which outbox a program is or has compiled in.
//
// Guaranteed: one text, which every part of the program says of itself. It has no spaces, and fits
// a User-Agent and an application_name.
package version

import (
	"runtime/debug"
	"slices"
	"sync"
)

const module = "github.com/outboxrelay/outbox"

// Set by the linker when a release is built (scripts/release.sh): what is built outside of a
// module's cache has neither.
var stamped, revision string

// Build is what is known of a program.
type Build struct {
	Version  string // of outbox, not of the program that has it compiled in; "devel" where nobody knows
	Go       string
	Revision string // of the version control system, if any
	Modified bool   // built from a work tree with changes
}

// Of returns what is known of this program.
var Of = sync.OnceValue(func() Build {
	b := Build{Version: stamped, Revision: revision}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	b.Go = info.GoVersion
	own := &info.Main
	if i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == module }); i >= 0 {
		own = info.Deps[i] // in a program of somebody else, whose revision is not ours
	} else {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Revision = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	if b.Version == "" && own.Version != "(devel)" {
		b.Version = own.Version
	}
	if b.Version == "" {
		b.Version = "devel"
	}
	return b
})

// Introduce has a session with these parameters call itself name, unless it is called something
// already.
func Introduce(parameters map[string]string, name string) {
	if parameters["application_name"] == "" {
		parameters["application_name"] = name
	}
}

// Named returns name with the version: how a program calls itself where a server shows its clients.
func Named(name string) string { return name + " " + Of().Version }

// Package endpoint is how the command's database keeps the endpoints of a sink that knows its destinations by name, and
// how its operators change them. The sink knows no database by it, and the database no sink.
//
// Guaranteed: nothing; these are types and interfaces.
//
// Not guaranteed: that a secret is none. A table keeps what a sink has sealed, as it is given it.
package endpoint

import (
	"context"
	"time"
)

// Shown is a destination that a sink knows by its name.
type Shown struct {
	Name   string `json:"name"`
	Tenant string `json:"tenant,omitempty"` // whose events alone it takes
	// To which of the events for all subscribers it has subscribed, by patterns; to none if both are empty.
	Topics  []string `json:"topics,omitempty"`
	Types   []string `json:"types,omitempty"`  // of aggregates
	URL     string   `json:"url"`              // without user and query
	State   string   `json:"state"`            // enabled, disabled
	Reason  string   `json:"reason,omitempty"` // why it is disabled
	Secrets int      `json:"secrets"`          // that sign what is sent
}

// Stored is an endpoint as a database keeps it. Zero means the sink's default.
type Stored struct {
	Name        string
	Tenant      string // takes the events of this tenant only; "": of all
	Topics      []string
	Types       []string
	URL         string
	Secrets     []Secret
	Headers     map[string]string // values as of a Secret
	Timeout     time.Duration
	Concurrency int
	Rate        float64
	Disabled    time.Time // since when; zero: enabled
	Reason      string    // why it is disabled
	Revision    int64     // another one after each change; 0: not stored yet
	Created     time.Time
}

// Secret is what a sink has sealed. No database knows a secret as such, nor where one is.
type Secret struct {
	Value string    `json:"value"`
	Until time.Time `json:"until,omitzero"` // zero: for as long as it is there
}

// Change says who changes an endpoint, and why, for the record of what operators did.
type Change struct{ Action, Actor, Reason string }

// Table is a database's table of endpoints.
type Table interface {
	// Read returns all endpoints by their names and the version of the table, or no endpoints if that is the known one.
	Read(ctx context.Context, known string) (all []Stored, version string, err error)
	// Put adds an endpoint, or replaces the one of its name and Revision. It is false if there is another one of that
	// name, or if somebody else has changed it.
	Put(ctx context.Context, e Stored, c Change) (done bool, err error)
	// Remove is false if there is none of that name.
	Remove(ctx context.Context, name string, c Change) (done bool, err error)
	// Disable is for a sink that was told to send no more. It changes nothing that somebody else has changed.
	Disable(ctx context.Context, name string, revision int64, reason string) error
}

// Lister tells of the destinations that the sinks of a URL know by their names.
type Lister interface {
	List(ctx context.Context) ([]Shown, error)
}

// Editor is a Lister of endpoints that can be changed. An error says what to do.
type Editor interface {
	Lister
	// Add takes secrets and headers, or references to them (env:NAME, file:PATH) which it resolves at once, and seals
	// them. Without a secret it makes one and returns it, which nothing shows again.
	Add(ctx context.Context, e Stored, c Change) (secret string, err error)
	// Rotate puts a secret before the present one, which goes on signing for a while: the one that is given as for Add,
	// or one that is made and returned.
	Rotate(ctx context.Context, name, given string, overlap time.Duration, c Change) (secret string, err error)
	// Disable and Enable tell whether that changed anything.
	Disable(ctx context.Context, name string, c Change) (changed bool, err error)
	Enable(ctx context.Context, name string, c Change) (changed bool, err error)
	Remove(ctx context.Context, name string, c Change) error
}

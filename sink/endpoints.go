package sink

import (
	"context"
	"time"
)

// StoredEndpoint is an endpoint as a database keeps it. Zero means the sink's default.
type StoredEndpoint struct {
	Name        string
	Tenant      string // takes the events of this tenant only; "": of all
	URL         string
	Secrets     []StoredSecret
	Headers     map[string]string // values as of a StoredSecret
	Timeout     time.Duration
	Concurrency int
	Rate        float64
	Disabled    time.Time // since when; zero: enabled
	Reason      string    // why it is disabled
	Revision    int64     // another one after each change; 0: not stored yet
	Created     time.Time
}

// StoredSecret is a reference, such as env:NAME, or what a sink has sealed. No database knows a secret as such.
type StoredSecret struct {
	Value string    `json:"value"`
	Until time.Time `json:"until,omitzero"` // zero: for as long as it is there
}

// Change says who changes an endpoint, and why, for the record of what operators did.
type Change struct{ Action, Actor, Reason string }

// EndpointTable is a database's table of endpoints.
type EndpointTable interface {
	// Read returns all endpoints by their names and the version of the table, or no endpoints if that is the known one.
	Read(ctx context.Context, known string) (all []StoredEndpoint, version string, err error)
	// Put adds an endpoint, or replaces the one of its name and Revision. It is false if there is another one of that
	// name, or if somebody else has changed it.
	Put(ctx context.Context, e StoredEndpoint, c Change) (done bool, err error)
	// Remove is false if there is none of that name.
	Remove(ctx context.Context, name string, c Change) (done bool, err error)
	// Disable is for a sink that was told to send no more. It changes nothing that somebody else has changed.
	Disable(ctx context.Context, name string, revision int64, reason string) error
}

// Endpoints are the destinations that the sinks of a URL know by their names.
type Endpoints interface {
	List(ctx context.Context) ([]Endpoint, error)
}

// EndpointEditor is Endpoints that can be changed. An error says what to do.
type EndpointEditor interface {
	Endpoints
	// Add takes secrets and headers that are references, or texts to be sealed. Without a secret it makes one and
	// returns it, which nothing shows again.
	Add(ctx context.Context, e StoredEndpoint, c Change) (secret string, err error)
	// Rotate puts a secret before the present one, which goes on signing for a while: the given reference, or one that
	// is made and returned.
	Rotate(ctx context.Context, name, reference string, overlap time.Duration, c Change) (secret string, err error)
	// Disable and Enable tell whether that changed anything.
	Disable(ctx context.Context, name string, c Change) (changed bool, err error)
	Enable(ctx context.Context, name string, c Change) (changed bool, err error)
	Remove(ctx context.Context, name string, c Change) error
}

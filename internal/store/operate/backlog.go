package operate

import (
	"fmt"

	"github.com/outboxrelay/outbox"
)

// Backlog says whose the undelivered events of a table are.
type Backlog struct {
	Table  string         `json:"table"`
	By     string         `json:"by"`     // topic or tenant
	Shares []BacklogShare `json:"shares"` // the largest first
	Total  int            `json:"total"`  // shares that there are, Shares being the largest of them
	// Counted and Bounded are as in LaneReport, and Troubles and Hidden.
	Counted  int       `json:"counted"`
	Bounded  bool      `json:"bounded"`
	Troubles []Trouble `json:"troubles,omitempty"`
	Hidden   bool      `json:"hidden,omitempty"`
}

// BacklogShare is what one tenant or topic has of a backlog.
type BacklogShare struct {
	Value   *string  `json:"value"` // nil: events without a tenant
	Waiting int      `json:"waiting"`
	Oldest  *float64 `json:"oldestSeconds"` // age of the first; none if that tells no time
}

// BacklogQuery asks for a Backlog: by topic or tenant, at most so many shares, of at most so many
// events.
type BacklogQuery struct {
	By            string
	Shares, Count int
}

// newBacklog is an empty answer, or says with an ErrFilter what the table does not have.
func (q BacklogQuery) newBacklog(l outbox.Layout) (Backlog, error) {
	b := Backlog{Table: l.Table, By: q.By, Shares: []BacklogShare{}}
	switch {
	case q.By != "topic" && q.By != "tenant":
		return b, fmt.Errorf("%w: a backlog is counted by tenant or by topic, not by %q", ErrFilter, q.By)
	case q.By == "tenant" && l.Tenant == "" && l.App == "":
		return b, fmt.Errorf("%w in %s: it has no tenants", ErrFilter, l.Table)
	}
	return b, nil
}

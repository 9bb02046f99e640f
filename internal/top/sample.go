// Package top is outbox top: what the operators' page shows, in a terminal, or as samples for
// programs.
//
// Guaranteed: it changes nothing; it asks the database as seldom as the page does, however short
// the interval; text from the database cannot move the cursor or colour the screen; nothing is said
// by colour alone.
//
// Not guaranteed: the form of the screen, which is for people and may change. Programs take the
// samples.
package top

import (
	"context"
	"time"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/admin"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

const (
	groupsEvery  = 15 * time.Second // as often as conditions are looked for
	groupsKept   = 20
	behindLooked = 100
)

// Sample is one look at everything.
type Sample struct {
	admin.Overview
	// Groups are pending letters by the fingerprint of their error, the largest first, 15 s old at
	// most.
	Groups []deadletter.Group `json:"letterGroups"`
}

// Source takes samples at a desk. One at a time may use it.
type Source struct {
	desk    *admin.Desk
	groups  []deadletter.Group
	grouped time.Time
}

// NewSource returns the samples of a desk at which nobody else looks.
func NewSource(desk *admin.Desk) *Source { return &Source{desk: desk, groups: []deadletter.Group{}} }

// Look takes a sample, and says how long to wait at least before the next.
func (s *Source) Look(ctx context.Context) (Sample, time.Duration) {
	now, least := s.desk.Sample(ctx)
	switch {
	case now.Error != "":
	case now.Letters.Pending == 0:
		s.groups, s.grouped = []deadletter.Group{}, time.Time{}
	case time.Since(s.grouped) >= groupsEvery:
		// Letters that this role may not see: a condition says so.
		if found, err := s.desk.Groups(ctx, groupsKept); err == nil {
			s.groups = found
		}
		s.grouped = time.Now()
	}
	return Sample{now, s.groups}, least
}

// behind returns what waits behind a blocked event.
func (s *Source) behind(ctx context.Context, b admin.Blocked) ([]operate.EventRow, error) {
	return s.desk.Behind(ctx, b, behindLooked)
}

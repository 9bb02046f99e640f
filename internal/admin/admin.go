// Package admin is what operators see of an outbox and do with it: the same functions for the
// commands, for the admin API under /v1/admin and for the page at /ui.
//
// Guaranteed: what acts on "everything that matches" acts on the set that its preview has shown,
// and not on what came later. Every action is recorded in outbox_audit with who did it. A token of
// one tenant sees and changes the events and letters of that tenant alone. The database is asked as
// often however many look.
//
// Not guaranteed: that a figure still holds when it is read. An overview is a second old, or some,
// where there are many tables.
package admin

import (
	"context"
	"fmt"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/condition"
)

// Database is what operators look into.
type Database interface {
	condition.Database
	Letters(ctx context.Context, layouts []outbox.Layout) (deadletter.Store, error)
}

// Refused says that what was asked for cannot be meant.
type Refused struct{ error }

func refusef(format string, args ...any) error { return &Refused{fmt.Errorf(format, args...)} }

// Unwrap is for errors.Is.
func (r *Refused) Unwrap() error { return r.error }

package operate

import (
	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/errortext"
)

// Skip says who skips events, and why.
type Skip struct {
	Actor, Reason string
	Run           uuid.UUID // the same for all pages of one action, for the record
}

// Failure is what the letters of the skipped events say.
func (s Skip) Failure() outbox.Failure {
	said := errortext.Fit("skipped by " + s.Actor + ": " + s.Reason)
	return outbox.Failure{Reason: outbox.ReasonDeliveryFailed, Error: said}
}

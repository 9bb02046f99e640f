// Package app builds what the commands run, from their settings. It is the only package that sees
// stores and sinks together.
//
// Guaranteed: a relay that has to wait for its database or a sink says so and shows as not ready.
// One that is told to stop finishes the batch in flight, gives up its lanes and only then closes
// what it opened.
//
// Not guaranteed: that settings make sense. Package config has checked them before.
package app

import (
	"errors"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/relay"
)

// passing tells whether a failure to open something can go away while one waits.
func passing(err error) bool {
	var settings *config.Error
	class, _ := outbox.Classify(err)
	if class == outbox.ClassPermanent || errors.As(err, &settings) || errors.Is(err, relay.ErrNoTable) {
		return false
	}
	for _, s := range stores() {
		if !s.passes(err) {
			return false
		}
	}
	return true
}

// Hint names the remedy for an error of a database, where the error's own text cannot know it; ""
// if there is none.
func Hint(err error) string {
	for _, s := range stores() {
		if hint := s.hint(err); hint != "" {
			return hint
		}
	}
	return ""
}

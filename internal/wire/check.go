package wire

import (
	"errors"
	"log/slog"

	"github.com/outboxrelay/outbox/internal/config"
)

// Check reports what is wrong with the settings of a command that only what it runs knows: for "serve" the names of
// crawlers, for it, "relay" and "tail" the form of the broker's URL. It connects to nothing. The error is a
// *config.Error.
func Check(c config.Config, command string) error {
	var found []error
	switch command {
	case "serve":
		_, err := builtin(c.Serve.Crawlers)
		found = append(found, err)
		fallthrough
	case "relay":
		b, err := openBroker(c)
		if err == nil && (c.Redis != "" || c.Serve.Memory) { // that it is missing is said already
			_, err = b.live(slog.New(slog.DiscardHandler))
		}
		found = append(found, err)
	case "tail":
		if c.Redis != "" {
			_, err := subscriberOptions(c.Redis)
			found = append(found, err)
		}
	}
	var problems config.Error
	for _, err := range found {
		if settings, ok := errors.AsType[*config.Error](err); ok {
			problems.Problems = append(problems.Problems, settings.Problems...)
		}
	}
	if len(problems.Problems) == 0 {
		return nil
	}
	return &problems
}

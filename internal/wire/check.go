package wire

import (
	"errors"
	"log/slog"

	"github.com/outboxrelay/outbox/internal/config"
)

// Check reports what is wrong with the settings of outbox serve and outbox relay that only their parts know: the names of crawlers, the form of the broker's URL. It
// connects to nothing. The error is a *config.Error.
func Check(c config.Config) error {
	var problems config.Error
	_, crawlers := builtin(c.Serve.Crawlers)
	b, err := openBroker(c)
	if err == nil && (c.Redis != "" || c.Serve.Memory) { // that it is missing is said already
		_, err = b.live(slog.New(slog.DiscardHandler))
	}
	for _, err := range []error{crawlers, err} {
		if settings, ok := errors.AsType[*config.Error](err); ok {
			problems.Problems = append(problems.Problems, settings.Problems...)
		}
	}
	if len(problems.Problems) == 0 {
		return nil
	}
	return &problems
}

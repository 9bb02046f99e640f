package app

import "github.com/outboxrelay/outbox/internal/config"

// Check reports what is wrong with the settings of a command that only what it runs knows: for "serve" the names of
// crawlers. It connects to nothing. The error is a *config.Error.
func Check(c config.Config, command string) error {
	if command != "serve" {
		return nil
	}
	_, err := builtin(c.Serve.Crawlers)
	return err
}

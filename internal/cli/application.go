package cli

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/outboxrelay/outbox/internal/config"
)

// Streams are where a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// application is what the commands of one run share.
type application struct {
	Streams
	environ []string
	kinds   config.Kinds
	global  *pflag.FlagSet
	started bool // the command line was understood
}

// usageError is a command line that cannot be meant, found after it was parsed.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func (e usageError) Unwrap() error { return e.error }

// settings reads the settings of a command and checks them against what it needs. further are its flags that are
// settings.
func (a *application) settings(needs config.Need, further ...*pflag.FlagSet) (config.Config, error) {
	c, err := config.Load(a.kinds, a.environ, append([]*pflag.FlagSet{a.global}, further...)...)
	if err != nil {
		return c, err
	}
	err = a.checked(&c, needs)
	return c, err
}

// logger logs to stderr. The level was checked with the settings.
func (a *application) logger(c config.Config) (*slog.Logger, error) {
	level, err := c.Level()
	if err != nil {
		return nil, err
	}
	options := &slog.HandlerOptions{Level: level}
	if isTerminal(a.Err) {
		return slog.New(slog.NewTextHandler(a.Err, options)), nil
	}
	return slog.New(slog.NewJSONHandler(a.Err, options)), nil
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/dev"
)

// development is what the command line of outbox dev asks for.
type development struct {
	file, database string // database, where it is not "", in place of the file
	temp           bool
}

func (a *application) dev() *cobra.Command {
	var d development
	settings := every()
	cmd := command("dev", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		flags := cmd.Flags()
		if flags.Changed("database") {
			d.database = flags.Lookup("database").Value.String()
		}
		switch {
		case d.temp && flags.Changed("file"):
			return usagef("--file and --temp contradict each other")
		case d.database == "" && flags.Changed("database"):
			return usagef("--database is empty: give it a value, or leave it out")
		case d.database != "" && (d.temp || flags.Changed("file")):
			return usagef("--database and a file contradict each other: leave out --file and --temp")
		case d.file == "":
			return usagef("--file is empty: give it a value, or leave it out")
		}
		if !d.temp {
			return a.develop(cmd.Context(), d, settings)
		}
		dir, err := os.MkdirTemp("", "outbox-dev-")
		if err != nil {
			return fmt.Errorf("make a temporary folder: %w", err)
		}
		d.file = filepath.Join(dir, "outbox.db")
		return errors.Join(a.develop(cmd.Context(), d, settings), os.RemoveAll(dir))
	})
	cmd.Flags().StringVar(&d.file, "file", "outbox.db", "SQLite `file`, which is created if it does not exist")
	cmd.Flags().BoolVar(&d.temp, "temp", false, "temporary file, which is removed at the end")
	cmd.Flags().AddFlag(settings.Lookup("http"))
	return cmd
}

// develop runs until ctx ends.
func (a *application) develop(ctx context.Context, d development, flags *pflag.FlagSet) error {
	c, err := config.Load(a.kinds, a.environ, a.global, flags)
	if err == nil {
		err = a.developing(&c, d)
	}
	if err == nil && d.database == "" {
		err = dev.CheckFile(ctx, d.file)
	}
	if err != nil {
		return err
	}
	log, err := a.logger(c)
	if err != nil {
		return err
	}
	try := d.commands(c)
	err = dev.Run(ctx, c, log, try, func(url string) { fmt.Fprint(a.Out, welcome(url, c, try)) })
	if err != nil && (ctx.Err() == nil || !errors.Is(err, context.Canceled)) { // Ctrl-C while it starts is no failure
		return developingError{err, inDev(a.hint("dev", err))}
	}
	switch {
	case d.temp:
		fmt.Fprintln(a.Out, "stopped; the temporary folder is removed")
	case d.database != "":
		fmt.Fprintf(a.Out, "stopped; the database %s is kept\n", app.MaskDatabase(d.database))
	default:
		fmt.Fprintf(a.Out, "stopped; %s is kept, outbox dev goes on with it\n", d.file)
	}
	return nil
}

// developing makes the settings of outbox serve those of dev, and checks them.
func (a *application) developing(c *config.Config, d development) error {
	if c.Database = app.OwnDatabase(d.file); d.database != "" {
		if err := dev.CheckServer(d.database); err != nil {
			return usageError{err}
		}
		c.Database = d.database
	}
	if !a.global.Changed("sink") {
		c.Sink, c.Routes = config.Sinks{config.DefaultSink: app.OwnSink}, nil
	}
	if !c.Given("log-level") {
		c.LogLevel = "warn"
	}
	if !c.Given("backoff-base") {
		c.BackoffBase = 2 * time.Second // somebody is watching
	}
	s := &c.Serve
	if !c.Given("cors-origin") {
		s.Origins = []string{"http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"} // a page in development
	}
	s.Parts, s.Auth, s.Admin = []string{"gateway", "relay", "worker"}, "none", "write"
	s.Crawlers = append(s.Crawlers, "script:checkout")
	if host, port, err := net.SplitHostPort(s.HTTP); err == nil && host == "" {
		s.HTTP = net.JoinHostPort("127.0.0.1", port) // --http :0 does not mean to let others in
	} else if err == nil && config.Exposed(s.HTTP) {
		return usagef("http is %s, which other machines can reach, and dev has no authentication: "+
			"listen on 127.0.0.1, for instance --http 127.0.0.1:%s, or run outbox serve", s.HTTP, port)
	}
	if err := a.checked(c, config.Parts); err != nil {
		return err
	}
	// What the parts would refuse when the tables are made.
	err := app.Check(*c, "serve")
	if refused, ok := errors.AsType[*config.Error](err); ok {
		for i, problem := range refused.Problems {
			refused.Problems[i] = inDev(problem)
		}
	}
	return err
}

// inDev says of a text about other commands where dev takes such a setting from.
func inDev(text string) string {
	return strings.NewReplacer(
		"--database, OUTBOX_DATABASE_URL or DATABASE_URL", "--database",
		sinkSetting, "The URL is that of --sink",
	).Replace(text)
}

// developingError is an error whose hint names the flags of dev.
type developingError struct {
	error
	hint string
}

func (e developingError) Unwrap() error { return e.error }

func (e developingError) Hint() string { return e.hint }

// commands are those that the page and the terminal show. They work as they stand, in any folder.
func (d development) commands(c config.Config) dev.Commands {
	if hasPassword(c.Database) {
		return dev.Commands{Program: invocation(),
			First: "export OUTBOX_DATABASE_URL=…    # the URL of --database: it holds a password and is not shown"}
	}
	url := c.Database
	if path, err := filepath.Abs(d.file); err == nil && d.database == "" {
		url = app.OwnDatabase(path)
	}
	return dev.Commands{Program: invocation(), Flags: " --database " + shellWord(url)}
}

// welcome says what to open and what to try.
func welcome(url string, c config.Config, try dev.Commands) string {
	delivering := "within this process"
	var to []string
	for _, s := range c.AllSinks() {
		if !s.Driver.InProcess {
			to = append(to, s.Masked())
		}
	}
	if len(to) > 0 {
		delivering = "to " + strings.Join(to, ", ")
	}
	first := try.First
	if first != "" {
		first = "\n  " + first
	}
	return fmt.Sprintf(`outbox dev: events of %s, delivered %s

Open %s/ to write events, see where each is, and break the sink.

Or try it by hand. In a second terminal, where it shows what arrives:
  curl -N %s
In a third:%s
  echo '{"total": 12}' | %s write --topic order.placed --key 42%s
  %s dlq list%s

Ctrl-C stops it.
`, app.MaskDatabase(c.Database), delivering, url, shellWord(url+"/v1/stream?topics=order.placed"), first,
		try.Program, try.Flags, try.Program, try.Flags)
}

// hasPassword tells whether a URL may hold a password.
func hasPassword(url string) bool {
	_, rest, _ := strings.Cut(url, "://")
	user, _, has := strings.Cut(rest, "@")
	return has && strings.Contains(user, ":") || strings.Contains(url, "password")
}

// invocation is how this program was called, for commands that are to be copied into any folder. go
// run builds it into one that is gone when it ends.
func invocation() string {
	exe, err := os.Executable()
	if err != nil || !strings.ContainsRune(filepath.ToSlash(os.Args[0]), '/') {
		return shellWord(os.Args[0]) // found by PATH
	}
	if strings.Contains(filepath.ToSlash(exe), "/go-build") {
		folder, err := os.Getwd()
		if _, missing := os.Stat("cmd/outbox/main.go"); err == nil && missing == nil {
			return "go -C " + shellWord(folder) + " run ./cmd/outbox"
		}
	}
	return shellWord(exe)
}

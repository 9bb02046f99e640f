package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"golang.org/x/term"

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
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Try everything: API, streams, relay and worker on one file, nothing to install",
		Long: `dev makes the file ./outbox.db, or goes on with it, and runs all parts of outbox serve on it, on
loopback and without authentication. Events are delivered within this process, to the streams of its API: it
needs no server. A run of the built-in crawler script:checkout goes on: when it ends, another
begins. After ten of them there is one every half hour, 38 MB a day, so that a forgotten dev does not soon fill
the disk; outbox runs create makes one at any time. It prints what to open and three commands to try.

--database URL takes that database in place of the file, --sink URL that sink in place of this process; each
alone or both, and nothing else changes. They are flags only: what OUTBOX_DATABASE_URL or OUTBOX_SINK name may
be in use for something else. All other settings are those of outbox serve, from its variables and from the file of
--config, but that all parts are on, --auth is none, and streams end at once and the least level of the log is
warn where nothing else is set. Pages that this machine serves, such as a front end in development on
http://localhost:5173, may call the API (OUTBOX_CORS_ORIGIN names others instead).

Several processes may work on one file, such as outbox write and outbox dlq. Two relays on one file share its
events, and what one delivers within itself the streams of the other do not see: dev warns of it. Give both
--sink, or one of them --temp or another --file.

Ctrl-C stops it after the step and the batch in flight and leaves one file, outbox.db, which may be copied,
deleted or gone on with.`,
		Example: `  outbox dev
  outbox dev --temp --http 127.0.0.1:0
  outbox dev --database postgres://localhost/shop`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
		},
	}
	cmd.Flags().StringVar(&d.file, "file", "outbox.db", "SQLite `file` to make or go on with")
	cmd.Flags().BoolVar(&d.temp, "temp", false, "use a file in a temporary folder, and remove it at the end")
	cmd.Flags().AddFlag(settings.Lookup("http"))
	cmd.Flags().SortFlags = false
	return cmd
}

// develop runs until ctx ends.
func (a *application) develop(ctx context.Context, d development, flags *pflag.FlagSet) error {
	c, err := a.developing(d, flags)
	if err != nil {
		return err
	}
	if d.database == "" {
		if err := dev.CheckFile(ctx, d.file); err != nil {
			return err
		}
	}
	// On a terminal that can rewrite a line there is a status line, and the log goes before it.
	var line *dev.Line
	logging := *a
	if f, ok := a.Err.(*os.File); ok && isTerminal(f) && !slices.Contains(a.environ, "TERM=dumb") {
		line = dev.NewLine(f, func() int { return columns(f) })
		logging.Err = line
		if c.LogFormat == "auto" {
			c.LogFormat = "text"
		}
	}
	log, err := logging.logger(c)
	if err != nil {
		return err
	}
	err = dev.Run(ctx, c, log, func(ctx context.Context, url string, m prometheus.Gatherer) error {
		fmt.Fprint(a.Out, d.welcome(url, c))
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return keepCrawling(ctx, newAPI(config.Config{Server: url}), log) })
		if line != nil {
			group.Go(func() error { return showStatus(ctx, line, dev.NewGauge(m)) })
		}
		return group.Wait()
	})
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

// developing returns the settings of outbox serve as dev has them.
func (a *application) developing(d development, flags *pflag.FlagSet) (config.Config, error) {
	c, err := config.Load(a.kinds, a.environ, a.global, flags)
	if err != nil {
		return c, err
	}
	if c.Database = app.OwnDatabase(d.file); d.database != "" {
		c.Database = d.database
	}
	if !a.global.Changed("sink") {
		c.Sink, c.Routes = config.Sinks{config.DefaultSink: app.OwnSink}, nil
	}
	if !c.Given("log-level") {
		c.LogLevel = "warn"
	}
	s := &c.Serve
	if !c.Given("cors-origin") {
		s.Origins = []string{"http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"} // a page in development
	}
	s.Parts, s.Auth = []string{"gateway", "relay", "worker"}, "none"
	s.Crawlers = append(s.Crawlers, crawler)
	if host, port, err := net.SplitHostPort(s.HTTP); err == nil && host == "" {
		s.HTTP = net.JoinHostPort("127.0.0.1", port) // --http :0 does not mean to let others in
	} else if err == nil && host != "localhost" && !net.ParseIP(host).IsLoopback() {
		return c,
			usagef("http is %s, which other machines can reach, and dev has no authentication: listen on 127.0.0.1, for "+
				"instance --http 127.0.0.1:%s, or run outbox serve", s.HTTP, port)
	}
	if d.database != "" {
		if err := dev.CheckServer(d.database); err != nil {
			return c, usageError{err}
		}
	}
	if err := a.checked(&c, config.Parts); err != nil {
		return c, err
	}
	// What the parts would refuse when the tables are made.
	err = app.Check(c, "serve")
	if refused, ok := errors.AsType[*config.Error](err); ok {
		for i, problem := range refused.Problems {
			refused.Problems[i] = inDev(problem)
		}
	}
	return c, err
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

// columns is how wide a terminal is now.
func columns(terminal *os.File) int {
	if n, _, err := term.GetSize(int(terminal.Fd())); err == nil && n > 0 {
		return n
	}
	return 80
}

// showStatus draws the line until ctx ends.
func showStatus(ctx context.Context, line *dev.Line, gauge *dev.Gauge) error {
	defer line.Set("")
	for {
		s, err := gauge.Read()
		if err != nil {
			return err
		}
		line.Set(s.String())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// crawler is the one that keeps outbox dev alive.
const crawler = "script:checkout"

// keepCrawling sees to it that a run of crawler goes on, at dev's pace, until ctx ends. One that was under way when the
// process last stopped goes on by itself.
func keepCrawling(ctx context.Context, gateway *api, log *slog.Logger) error {
	var pace dev.Pace
	for refused := false; ; {
		var err error
		if pace.Due(time.Now()) {
			err = crawlOne(ctx, gateway, func() { pace.Begun(time.Now()) })
		}
		// Once: it is the gateway's business, and looks at it every other second.
		if err != nil && ctx.Err() == nil && !refused {
			log.Warn("cannot see to it that a run goes on, trying again", "error", err)
		}
		refused = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(2 * time.Second):
		}
	}
}

// crawlOne makes a run if none of crawler is under way, and calls begun if it did.
func crawlOne(ctx context.Context, gateway *api, begun func()) error {
	var page struct {
		Items []struct {
			Crawler string `json:"crawler"`
			Status  string `json:"status"`
		} `json:"items"`
	}
	if err := gateway.call(ctx, "GET", "/v1/runs?limit=100", nil, nil, &page); err != nil {
		return err
	}
	for _, r := range page.Items {
		if r.Crawler == crawler && (r.Status == "PENDING" || r.Status == "RUNNING") {
			return nil
		}
	}
	steps := 1000 // it has 333, which take a minute
	err := gateway.call(ctx, "POST", "/v1/runs", nil,
		newRun{AppPackage: "com.example.shop", Crawler: crawler, MaxSteps: &steps}, &struct{}{})
	if err == nil {
		begun()
	}
	return err
}

// welcome says what to open and what to try. The commands work as they stand, in the same folder.
func (d development) welcome(url string, c config.Config) string {
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
	outbox, which, first := invocation(), " --database "+shellWord(c.Database), ""
	if hasPassword(c.Database) {
		which, first = "",
			"\n  export OUTBOX_DATABASE_URL=…    # the URL of --database: it holds a password and is not shown"
	}
	return fmt.Sprintf(`outbox dev: events of %s, delivered %s

Open %s/ for what happens, live. A run of %s goes on; when it ends, another begins; after ten, one every half hour.

Try, in this folder. In a second terminal, where it shows what arrives:
  curl -N %s
In a third:%s
  echo '{"total": 12}' | %s write --topic order.placed --key 42%s
  %s dlq list%s

Ctrl-C stops it.
`, app.MaskDatabase(c.Database), delivering, url, crawler, shellWord(url+"/v1/stream?topics=order.placed"), first, outbox, which, outbox, which)
}

// hasPassword tells whether a URL may hold a password.
func hasPassword(url string) bool {
	_, rest, _ := strings.Cut(url, "://")
	user, _, has := strings.Cut(rest, "@")
	return has && strings.Contains(user, ":") || strings.Contains(url, "password")
}

// invocation is how this program was called, for commands that are to be copied. go run builds it into a folder that is
// gone when it ends.
func invocation() string {
	if exe, err := os.Executable(); err == nil && strings.Contains(filepath.ToSlash(exe), "/go-build") {
		if _, err := os.Stat("cmd/outbox/main.go"); err == nil {
			return "go run ./cmd/outbox"
		}
	}
	return shellWord(os.Args[0])
}

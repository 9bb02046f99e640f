// Package dev is what outbox dev is made of beside the parts of outbox serve. That is whether a
// file can be worked on, the page at /.
//
// Guaranteed: a file of another program is not changed; what a person is told to do about an error
// stands in the error; the page loads nothing from anywhere else.
//
// Not guaranteed: anything for production. There outbox serve runs the same parts, with
// authentication.
package dev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/store/sqlite"
)

// Run makes the tables, warns if another relay takes events that the streams here will miss, and
// serves all parts and the page until ctx ends. It calls ready when the API answers at url. The
// settings are checked.
func Run(ctx context.Context, c config.Config, log *slog.Logger, commands Commands, ready func(url string)) error {
	if err := migrate(ctx, c.Database); err != nil {
		return err
	}
	db, err := app.OpenDatabase(ctx, c.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	if slices.ContainsFunc(c.AllSinks(), func(s config.Sink) bool { return s.Driver.InProcess }) {
		warnOfOthers(ctx, c, db, log) // other sinks have what all relays deliver
	}
	p, err := openPage(ctx, c, db)
	if err != nil {
		return err
	}
	defer p.writing.Close()
	p.commands, p.ended = commands, ctx.Done()
	err = app.ServeWith(ctx, c, log, app.Extras{Home: p.handler, Sink: p.before,
		Serving: func(address string) { ready("http://" + address) }})
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is in use, perhaps by another outbox dev: choose another port with --http, for instance "+
			"--http 127.0.0.1:0 for any that is free, and with --temp or --file other.db also other events", c.Serve.HTTP)
	}
	return err
}

// migrate makes what tables are missing. Those of a newer program are left alone: this one would
// not understand them.
func migrate(ctx context.Context, databaseURL string) error {
	m := app.MigrationsOf(databaseURL)
	sets, err := m.Status(ctx, migration.Sets...)
	if err != nil {
		return err
	}
	for _, s := range sets {
		if s.Current > s.Latest {
			return fmt.Errorf("%s was made by a newer outbox (its set %s is at version %d, this program knows %d): use that "+
				"program, or another database", app.MaskDatabase(databaseURL), s.Set, s.Current, s.Latest)
		}
	}
	return m.Up(ctx, migration.Sets...)
}

// warnOfOthers warns if another relay takes a part of the events that are delivered within this
// process. It is called before this process has a relay.
func warnOfOthers(ctx context.Context, c config.Config, db app.Database, log *slog.Logger) {
	other, err := otherRelay(ctx, c, db)
	if err != nil { // no reason to stop: the parts need other rights, and say what they miss
		log.Info("cannot tell whether another relay serves the database", "error", err)
	}
	if other != "" {
		log.Warn(fmt.Sprintf("another relay (%s) serves %s too, unless it was killed a moment ago: each delivers a part of "+
			"the events, within itself, and the streams of one miss what the other delivers. Give both of them --sink "+
			"URL, or give this one events of its own: --temp or --file other.db",
			other, app.MaskDatabase(c.Database)))
	}
}

// otherRelay names a relay that holds a lease, if there is one. That of a killed one lasts for
// --lease-ttl yet, and nothing tells the two apart.
func otherRelay(ctx context.Context, c config.Config, db app.Database) (name string, err error) {
	served, err := c.Tables()
	if err != nil {
		return "", err
	}
	for _, t := range served {
		b, err := db.Browser(ctx, t.Layout)
		if _, missing := errors.AsType[*outbox.SchemaError](err); missing {
			continue // the relay says so, or leaves it out
		}
		if err != nil {
			return "", err
		}
		report, err := b.Lanes(ctx, 1)
		if err != nil {
			return "", err
		}
		for _, r := range report.Relays {
			if r.ExpiresIn > 0 {
				return r.Name, nil
			}
		}
	}
	return "", nil
}

// CheckFile tells whether path can be a file of ours: one that is not there yet, or holds tables of
// ours, in a folder that can be written to. It leaves nothing behind.
func CheckFile(ctx context.Context, path string) error {
	// SQLite keeps its WAL beside the file, and all that it would say is "unable to open database
	// file".
	probe, err := os.CreateTemp(filepath.Dir(path), ".outbox-*")
	if err != nil {
		return fmt.Errorf("write to folder %s: %w: choose a file in another with --file, or use --temp", filepath.Dir(path),
			reason(err))
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return fmt.Errorf("write to folder %s: %w", filepath.Dir(path), err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fmt.Errorf("open %s: %w: choose another file with --file", path, reason(err))
	}
	names, err := sqlitefile.Tables(ctx, path) // none of an empty file, as SQLite leaves one
	switch {
	case errors.Is(err, sqlite.ErrNotSQLite):
		return fmt.Errorf("%s is no SQLite database and was left as it is: choose another file with --file", path)
	case err != nil || len(names) == 0:
		return err
	}
	for _, name := range names {
		if _, ours := migration.SetOf[name]; ours {
			return nil
		}
	}
	return fmt.Errorf("%s is the database of another program (it has a table %s) and was left as it is: choose another "+
		"file with --file; or, if its outbox is to live in it: outbox migrate up --database sqlite:%s",
		path, names[0], path)
}

// CheckServer tells whether url names a database on a server. It connects to nothing, and does not
// show url, which may hold a password.
func CheckServer(url string) error {
	if path, ok := app.FileOf(url); ok {
		return fmt.Errorf("--database names a file: say --file %s", path)
	}
	if err := app.CheckDatabase(url); err != nil {
		return fmt.Errorf("--database %w", err)
	}
	return nil
}

// reason is the system's word without the path, which is said already.
func reason(err error) error {
	var failure *fs.PathError
	if errors.As(err, &failure) {
		return failure.Err
	}
	return err
}

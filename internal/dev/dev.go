// Package dev is what outbox dev is made of beside the parts of outbox serve. That is whether a file can be worked on,
// the page at /.
//
// Guaranteed: a file of another program is not changed; what a person is told to do about an error stands in the error;
// the page loads nothing from anywhere else.
//
// Not guaranteed: anything for production. There outbox serve runs the same parts, with authentication.
package dev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/migration"
)

// Run makes the tables, warns if another relay takes events that the streams here will miss, and serves all parts and
// the page until ctx ends. It calls ready when the API answers at url. The settings are checked.
func Run(ctx context.Context, c config.Config, log *slog.Logger, commands Commands, ready func(url string)) error {
	if err := migrate(ctx, c.Database); err != nil {
		return err
	}
	warnOfOthers(ctx, c, log)
	db, err := app.OpenDatabase(ctx, c.Database)
	if err != nil {
		return err
	}
	defer db.Close()
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

// openPage opens what the page reads and writes. It shows outbox_events.
func openPage(ctx context.Context, c config.Config, db app.Database) (*page, error) {
	table, err := c.Find(outbox.OutboxEvents().Table)
	if err != nil {
		return nil, err
	}
	p := &page{layout: table.Layout, broken: new(atomic.Bool)}
	for _, s := range c.AllSinks() {
		p.sinks = append(p.sinks, s.Masked())
	}
	if table.Destination != "" {
		if p.template, err = outbox.ParseTemplate(table.Destination); err != nil {
			return nil, err
		}
	}
	if p.events, err = db.Browser(ctx, table.Layout); err != nil {
		return nil, err
	}
	if p.letters, err = db.Letters(ctx, []outbox.Layout{table.Layout}); err != nil {
		return nil, err
	}
	p.writing, err = db.Writing(ctx, outbox.WriterConfig{Table: table.Layout.Table})
	return p, err
}

// migrate makes what tables are missing. Those of a newer program are left alone: this one would not understand them.
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

// warnOfOthers warns if events are delivered within this process and another relay takes a part of them. It is called
// before this process has a relay.
func warnOfOthers(ctx context.Context, c config.Config, log *slog.Logger) {
	if !slices.ContainsFunc(c.AllSinks(), func(s config.Sink) bool { return s.Driver.InProcess }) {
		return // the sinks have what all of them deliver
	}
	other, err := otherRelay(ctx, c)
	if err != nil { // no reason to stop: the parts need other rights, and say what they miss
		log.Info("cannot tell whether another relay serves the database", "error", err)
	}
	if other == "" {
		return
	}
	log.Warn(fmt.Sprintf("another relay (%s) serves %s too, unless it was killed a moment ago: each delivers a part of "+
		"the events, within itself, and the streams of one miss what the other delivers. Give both of them --sink "+
		"URL, or give this one events of its own: --temp or --file other.db",
		other, app.MaskDatabase(c.Database)))
}

// otherRelay names a relay that holds a lease, if there is one. That of a killed one lasts for --lease-ttl yet, and
// nothing tells the two apart.
func otherRelay(ctx context.Context, c config.Config) (name string, err error) {
	served, err := c.Tables()
	if err != nil {
		return "", err
	}
	db, err := app.OpenDatabase(ctx, c.Database)
	if err != nil {
		return "", err
	}
	defer db.Close()
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

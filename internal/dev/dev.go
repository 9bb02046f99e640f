// Package dev is what outbox dev is made of beside the parts of outbox serve: whether a file can be worked on, the page at /, the numbers of the status line.
//
// Guaranteed: a file of another program is not changed; what a person is told to do about an error stands in the error; the page loads nothing from anywhere else.
//
// Not guaranteed: anything for production. There outbox serve runs the same parts, with authentication.
package dev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/wire"
)

// Run makes the tables, serves all parts until ctx ends, and calls beside when the API answers at url; beside ends with its ctx. The settings are checked.
func Run(ctx context.Context, c config.Config, log *slog.Logger, beside func(ctx context.Context, url string, m prometheus.Gatherer) error) error {
	if err := migrate(ctx, c.Database); err != nil {
		return err
	}
	type answer struct {
		address string
		metrics prometheus.Gatherer
	}
	serving := make(chan answer, 1)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return wire.ServeWith(ctx, c, log, wire.Extras{Home: page(), Serving: func(address string, m prometheus.Gatherer) { serving <- answer{address, m} }})
	})
	group.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case s := <-serving:
			return beside(ctx, "http://"+s.address, s.metrics)
		}
	})
	err := group.Wait()
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is in use, perhaps by another outbox dev: choose another port with --http, for instance --http 127.0.0.1:0 for any that is free", c.Serve.HTTP)
	}
	return err
}

// migrate makes what tables are missing. Those of a newer program are left alone: this one would not understand them.
func migrate(ctx context.Context, databaseURL string) error {
	m := wire.MigrationsOf(databaseURL)
	sets, err := m.Status(ctx)
	if err != nil {
		return err
	}
	for _, s := range sets {
		if s.Current > s.Latest {
			return fmt.Errorf("%s was made by a newer outbox (its set %s is at version %d, this program knows %d): use that program, or another database", config.MaskDatabase(databaseURL), s.Set, s.Current, s.Latest)
		}
	}
	return m.Up(ctx)
}

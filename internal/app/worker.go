package app

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/server/crawl"
)

// worker crawls runs with the built-in crawlers.
type worker struct {
	process
	part     *part
	waker    *waker
	crawlers []crawl.Crawler
}

// crawling is how many runs a worker crawls at a time. For more there are more workers.
const crawling = 4

// run crawls until ctx ends, then gives its runs up, so that another worker goes on with them at
// once.
func (w *worker) run(ctx context.Context) error {
	// For each run one connection that commits steps and one that renews the lease; one to claim
	// runs, one to wake relays. They are not the gateway's: readers of long histories must not cost
	// a lease.
	db, err := w.open(ctx, w.part, use{name: "outbox worker", conns: 2*crawling + 2})
	if err != nil {
		return unlessStopped(ctx, err)
	}
	defer db.Close()
	var runs Runs
	err = await(ctx, w.log, w.part, "database "+MaskDatabase(w.cfg.Database),
		func(ctx context.Context) (err error) {
			if runs, err = db.Runs(ctx); err != nil {
				return err
			}
			return runs.CheckWorker(ctx)
		})
	if err != nil {
		return unlessStopped(ctx, err)
	}
	w.warnPlaintext(ctx, db)
	notifier, err := db.Notifier()
	if err != nil {
		return err
	}
	one, err := crawl.NewWorker(wakingRuns{runs, func() { w.waker.wake(notifier) }}, w.crawlers, crawl.WorkerConfig{
		Concurrency: crawling, LeaseTTL: w.cfg.LeaseTTL, Logger: w.log, Observer: w.metrics.Runs(),
	})
	if err != nil {
		return err
	}
	w.metrics.WatchCrawling(func() int { return one.Health().Crawling })
	w.log.Info("crawling runs", "crawlers", names(w.crawlers), "database", MaskDatabase(w.cfg.Database))
	behind, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var background errgroup.Group
	background.Go(func() error { return notifier.Run(behind) })
	w.part.serve(behind, &background, func(ctx context.Context) error {
		if ok, why := one.Health().Ready(time.Now(), stall); !ok {
			return errors.New(why)
		}
		return db.Ping(ctx)
	})
	err = one.Run(ctx)
	stop()
	if err = errors.Join(err, background.Wait()); err == nil {
		w.log.Info("stopped crawling runs")
	}
	return err
}

// Check reports what is wrong with the settings of a command that only what it runs knows: for
// "serve" the names of crawlers. It connects to nothing. The error is a *config.Error.
func Check(c config.Config, command string) error {
	if command != "serve" {
		return nil
	}
	_, err := builtin(c.Serve.Crawlers)
	return err
}

// builtin returns the crawlers whose names one of the patterns matches.
func builtin(patterns []string) (chosen []crawl.Crawler, err error) {
	all, err := crawl.Scripts(0)
	if err != nil {
		return nil, err
	}
	all = append([]crawl.Crawler{crawl.Demo(0)}, all...)
	var problems []string
	for _, pattern := range patterns {
		found := false
		for _, c := range all {
			if ok, err := path.Match(pattern, c.Name); err != nil || !ok {
				continue
			}
			found = true
			if !slices.Contains(names(chosen), c.Name) {
				chosen = append(chosen, c)
			}
		}
		if !found {
			problems = append(problems, fmt.Sprintf("crawlers: there is no %q: known are %s, and patterns such as script:*",
				pattern, strings.Join(names(all), ", ")))
		}
	}
	if len(problems) > 0 {
		return nil, &config.Error{Problems: problems}
	}
	return chosen, nil
}

func names(crawlers []crawl.Crawler) (list []string) {
	for _, c := range crawlers {
		list = append(list, c.Name)
	}
	return list
}

package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/admin"
	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/metrics"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/gateway"
	"github.com/outboxrelay/outbox/server/stream"
	"github.com/outboxrelay/outbox/server/subscription"
	"github.com/outboxrelay/outbox/server/token"
	"github.com/outboxrelay/outbox/sink"
	"github.com/outboxrelay/outbox/ui"
)

// drainWindow is over how long the streams end of a gateway that stops, at most.
const drainWindow = 5 * time.Second

// stopMargin is what a gateway that stops may take beyond the window over which its streams end.
// http.Server waits 5 s for a connection on which no request has come, such as a browser's spare
// one.
const stopMargin = 6 * time.Second

// api is the gateway with what it reads from.
type api struct {
	process
	part     *part
	waker    *waker
	crawlers []crawl.Crawler // that a run may ask for here; some worker has them
	listener net.Listener    // of listen
	extras   Extras
}

// listen binds the API's address; run closes it. Who connects before the database is there waits
// for it too.
func (a *api) listen(ctx context.Context) (err error) {
	if a.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", a.cfg.Serve.HTTP); err != nil {
		return fmt.Errorf("listen on %s: %w: choose another address with --http", a.cfg.Serve.HTTP, err)
	}
	return nil
}

// run serves the API until ctx ends, then finishes requests and ends the streams over their window.
// The sink may be away: streams are then read from the database.
func (a *api) run(ctx context.Context) error {
	defer func() { _ = a.listener.Close() }() // closed already if it came to serving
	db, err := a.open(ctx, a.part, use{name: "outbox gateway", conns: apiConns})
	if err != nil {
		return unlessStopped(ctx, err)
	}
	defer db.Close()
	var runs Runs
	var tokens Tokens
	var subscriptions subscription.Store // nil: none
	err = await(ctx, a.log, a.part, "database "+MaskDatabase(a.cfg.Database),
		func(ctx context.Context) (err error) {
			if runs, tokens, err = a.openStores(ctx, db); err != nil {
				return err
			}
			if subscriptions, err = db.Subscriptions(ctx); errors.Is(err, ErrNoSubscriptions) {
				return nil
			}
			return err
		})
	if err != nil {
		return unlessStopped(ctx, err)
	}
	a.warnPlaintext(ctx, db)
	live, heard, err := a.subscriber()
	if err != nil {
		return err
	}
	notifier, err := db.Notifier()
	if err != nil {
		return err
	}
	var store crawl.Store = noRuns{}
	ready := db.Ping
	if runs != nil {
		store, ready = wakingRuns{runs, func() { a.waker.wake(notifier) }}, runs.Readable
	} else {
		a.log.Warn("requests for runs are refused", "error", crawl.ErrNoTables)
	}
	hub, err := a.hub(store, live)
	if err != nil {
		return err
	}
	desk := a.desk(db, notifier)
	g, err := a.gateway(store, hub, tokens, subscriptions, desk)
	if err != nil {
		return err
	}
	a.watch(g, hub, live)
	// What requests and streams need goes on until the last of them has ended.
	behind, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var background errgroup.Group
	background.Go(func() error { return live.Run(behind) })
	background.Go(func() error { return hub.Run(behind) })
	background.Go(func() error { return notifier.Run(behind) })
	background.Go(func() error { return g.Run(behind) })
	if desk != nil {
		background.Go(func() error { return desk.Run(behind) })
	}
	if subscriptions != nil {
		background.Go(func() error {
			return db.Listen(behind, a.log, func(string) { g.Wake() })
		})
	}
	a.part.serve(behind, &background, ready)
	a.log.Info("serving the API", "address", a.listener.Addr().String(), "auth", a.cfg.Serve.Auth, "crawlers",
		names(a.crawlers), "database", MaskDatabase(a.cfg.Database), heard)
	if a.extras.Serving != nil {
		a.extras.Serving(a.listener.Addr().String())
	}
	err = a.serve(ctx, behind, g, desk)
	stop()
	return errors.Join(err, background.Wait())
}

// openStores opens what the API reads and writes. runs is nil if the database has no tables of
// runs. With authentication off a role needs nothing of the tokens.
func (a *api) openStores(ctx context.Context, db ForParts) (runs Runs, _ Tokens, err error) {
	runs, err = db.Runs(ctx)
	if schema, ok := errors.AsType[*outbox.SchemaError](err); ok && len(schema.Missing) == 0 {
		runs, err = nil, nil
	} else if err == nil {
		err = runs.CheckGateway(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	tokens, err := db.Tokens(ctx)
	if err == nil && a.cfg.Serve.Auth != "none" {
		err = tokens.CheckGateway(ctx)
	}
	return runs, tokens, err
}

// apiConns is the most database connections of the API and the streams together.
const apiConns = 8

func (a *api) hub(store crawl.Store, live outbox.Subscriber) (*stream.Hub, error) {
	runChannel, err := a.cfg.RunChannel()
	if err != nil {
		return nil, err
	}
	topicChannel, err := a.cfg.TopicChannel()
	if err != nil {
		return nil, err
	}
	// Half of the pool's connections are never busy with history: news, polls, tokens and requests
	// need one now.
	return stream.New(gateway.Log(store, apiConns/2), live,
		stream.Config{RunChannel: runChannel, TopicChannel: topicChannel, Logger: a.log}), nil
}

func (a *api) gateway(
	store crawl.Store, hub *stream.Hub, tokens token.Store, subscriptions subscription.Store, desk *admin.Desk,
) (*gateway.Gateway, error) {
	s := a.cfg.Serve
	cfg := gateway.Config{
		Runs: crawl.NewService(store, crawl.ServiceConfig{Crawlers: names(a.crawlers)}), MaxCalls: apiConns / 2,
		Hub: hub, Subscriptions: subscriptions, RunsOnly: a.cfg.BareTopics(), AllowedOrigins: s.Origins,
		PublicURL: s.PublicURL, MaxSubscriptions: s.SubscriptionLimit, Logger: a.log,
		Streams: gateway.StreamConfig{
			DrainWindow: drainWindow, MaxConnections: s.StreamLimit, MaxPerTenant: s.StreamLimitTenant(),
		},
	}
	if desk != nil {
		cfg.Routes = append(cfg.Routes, desk.Route)
	}
	if s.Auth != "none" {
		cfg.Auth = &token.Authenticator{Store: tokens}
	}
	return gateway.New(cfg)
}

// desk is what operators have of this process; nil: nothing.
func (a *api) desk(db Database, notifier Notifier) *admin.Desk {
	if a.cfg.Serve.Admin == "off" {
		return nil
	}
	var which condition.Selection
	if !a.cfg.Serve.Has(partRelay) {
		which.Skip = []string{condition.RightMissing} // of relays: this process need not have their rights
	}
	return admin.NewDesk(admin.DeskConfig{Which: which, Config: a.cfg, Database: db, Examination: examination(a.cfg, db),
		Wake: notifier.Wake, ReadOnly: a.cfg.Serve.Admin != "write", Logger: a.log})
}

// serve serves until ctx ends. The requests' own contexts are of behind: they are to finish.
func (a *api) serve(ctx, behind context.Context, g *gateway.Gateway, desk *admin.Desk) error {
	server := &http.Server{
		Handler:     a.home(measured(g.Handler(), g.Routes(), a.metrics.HTTP())),
		BaseContext: func(net.Listener) context.Context { return behind },
		// No limit of the time to write: a stream is written for hours. The gateway limits each
		// request and each write itself.
		ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	var serving errgroup.Group
	ended := make(chan struct{})
	serving.Go(func() error {
		defer close(ended)
		if err := server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the API: %w", err)
		}
		return nil
	})
	select {
	case <-ctx.Done():
	case <-ended:
	}
	last, cancel := context.WithTimeout(behind, drainWindow+stopMargin)
	defer cancel()
	serving.Go(func() error {
		err := server.Shutdown(last) // closes the listener first
		if errors.Is(err, context.DeadlineExceeded) {
			// A client that receives a large event slowly, byte by byte, is no failure of ours. It
			// comes back with its cursor.
			a.log.Warn("closing connections whose clients did not let them end in time", "streams", g.StreamStats().Connections)
			err = server.Close()
		}
		if err != nil {
			return fmt.Errorf("stop serving the API: %w", err)
		}
		return nil
	})
	if desk != nil {
		desk.Drain()
	}
	g.DrainStreams(last)
	err := serving.Wait()
	if err == nil {
		a.log.Info("stopped serving the API")
	}
	return err
}

// home adds what is for people: the operators' page where they may do something, and the page at /
// with the metrics, if there is one.
func (a *api) home(rest http.Handler) http.Handler {
	mux := http.NewServeMux()
	if a.cfg.Serve.Admin != "off" {
		mux.Handle("/ui/", http.StripPrefix("/ui", ui.Handler()))
		mux.Handle("GET /ui", http.RedirectHandler("ui/", http.StatusMovedPermanently))
	}
	if a.extras.Home != nil {
		page := a.extras.Home(a.metrics)
		mux.Handle("GET /{$}", page)
		mux.Handle("/dev/", page)
		mux.Handle("GET /metrics", private(scraped(a.metrics)))
	}
	mux.Handle("/", rest)
	return mux
}

// watch shows the state of the streams, as metrics and in /readyz.
func (a *api) watch(g *gateway.Gateway, hub *stream.Hub, live sink.Subscriber) {
	a.metrics.WatchStreams(func() metrics.Streams {
		s, h, l := g.StreamStats(), hub.Stats(), live.State()
		return metrics.Streams{
			Open: int64(s.Connections), Sent: s.Sent, Slow: s.Slow, Refused: s.Refused,
			Sources: h.Sources, FromLive: h.FromLive,
			FromLog: h.FromLog, Gaps: h.Gaps, Resets: h.Resets,
			LogErrors: h.LogErrors, Live: l.Up, Channels: int64(l.Channels), Reconnects: int64(l.Reconnects),
		}
	})
	a.part.notes(func() string {
		switch l := live.State(); {
		case l.Err == nil:
			return ""
		case l.Up: // it refused a channel
			return "runs are read from the database, topics receive nothing: " + l.Err.Error()
		default:
			return "streams are read from the database: " + l.Err.Error()
		}
	})
}

package cli

import (
	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
)

func (a *application) serve() *cobra.Command {
	settings := config.ServeFlags()
	settings.AddFlagSet(config.Mapping())
	settings.AddFlagSet(config.Relay())
	settings.AddFlagSet(config.RetentionFlags())
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve crawl runs: API, streams, relay and worker in one process",
		Long: `serve runs three parts in one process. Each can be turned off, and any number of processes may run any
of them:

  gateway   the HTTP API (described at /openapi.json) and the streams of events (SSE), on --http
  relay     delivers events to sinks: all that outbox relay does, with the same flags, which it explains
  worker    crawls the runs that name one of --crawlers as their crawler

A gateway subscribes to what relays publish, its own or another's, and reads from the database what does not
arrive; so streams go on while a sink is away. It listens to the sink that crawl_outbox goes to, and for topics
to that of outbox_events. A database that is not there yet is waited for, and by the relay a sink too.

With --sink ` + app.OwnSink + ` no broker runs: the relay hands events to the gateway of this process, and nobody else
hears them. It is for one process that does everything, best with a file as its database: --database
sqlite:outbox.db. An event is then delivered whether or not a stream is open; runs are complete all the same,
since their history is in the database.

Who may use the API: whoever has a token (outbox token create). --auth none lets anybody in as the tenant
"default". It is refused unless --http, and --public-url if there is one, are addresses that only this machine
reaches, and answers nothing that came through a proxy. The API speaks HTTP without TLS: put a proxy before it
that does, and that does not buffer responses, and name its address in --public-url.

A run's events are published where --destination sends those of crawl_outbox (run:{key}), a topic's where it
sends those of outbox_events ({topic}). The gateway listens there, so it needs the relay's --destination if that
is not the default, and its --envelope: of tables with bare payloads it cannot show topics.

Stopping: SIGTERM or Ctrl-C closes the API's address, lets requests finish, ends the streams spread over up
to 5 seconds (clients connect again and go on where they were), gives up the worker's runs and the relay's
lanes after the step and the batch in flight, and exits 0. A second signal exits at once.

With --listen, /healthz, /readyz and /metrics tell how it is doing. /readyz is about all parts that are on;
/readyz/gateway, /readyz/relay and /readyz/worker about one: a balancer before several gateways asks for the
first, which is ready without a sink.

Database roles (outbox migrate roles): outbox_gateway for the gateway, which row-level security holds to the
tenant of each request, outbox_relay, outbox_worker. A process with all parts has a login that is a member of
all three, and is held to a tenant only by the gateway's own statements; for both, run the gateway by itself
with a login of its own.`,
		Example: `  outbox serve --auth none                                    to try it: outbox runs create --app shop --crawler demo --follow
  outbox serve --http 0.0.0.0:8080 --listen 127.0.0.1:9464 --cors-origin https://shop.example
  outbox serve --database sqlite:outbox.db --sink ` + app.OwnSink + `     nothing else running
  outbox serve --parts=gateway                   a gateway alone, beside relays of their own`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.settings(config.Parts, settings)
			if err != nil {
				return err
			}
			log, err := a.logger(c)
			if err != nil {
				return err
			}
			return app.Serve(cmd.Context(), c, log)
		},
	}
	cmd.Flags().AddFlagSet(settings)
	cmd.Flags().SortFlags = false
	return cmd
}

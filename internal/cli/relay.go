package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
)

func (a *application) relay() *cobra.Command {
	settings := config.Mapping()
	settings.AddFlagSet(config.Relay())
	settings.AddFlagSet(config.RetentionFlags())
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Deliver events to sinks until stopped",
		Long: `relay claims committed events, in PostgreSQL or in an SQLite file (--database sqlite:outbox.db),
publishes each to its sink and marks it delivered. A sink is a URL:

    ` + strings.Join(a.kinds.Sinks.Examples(), `
    `) + `

Several sinks have names: --sink default=URL --sink audit=URL. A table goes to the sink that --routes names
(--routes outbox_events=audit), the others to the one called default, or to the only one there is.

Events of one key stay in order: what fails is retried while later events of its key wait and those of other
keys go on. After --max-attempts it is kept as a dead letter, in table job_dlq. While a sink is down nothing is
counted: its tables fill, then drain, at up to 20,000 events a second. Any number of relays may run, before an
SQLite file on its own machine: they share the work evenly, and each event is served by one of them. One that
dies is replaced after --lease-ttl, one that is stopped at once. An event that kills the process is found and
becomes a dead letter.

Where in its sink an event goes: to the destinations it names, else to what --destination makes of its
topic, key, type, tenant and source: run:{key} for crawl_outbox, {topic} for the other tables.

Stopping: SIGTERM or Ctrl-C finishes the batch in flight, gives up the lanes and exits 0. A second
signal exits at once; what was in flight is then published again, and a sink that can refuses the copies
for --dedup-window.

A database or a sink that is not there yet is waited for. Missing or old tables are an error, and so is a
missing file.

With --listen, three paths tell how it is doing: /healthz (the process is alive), /readyz (it renews
its leases, makes progress, and reaches its sinks; if not: status 503 and the reason) and /metrics. They need no
password, so mind whom an address other than 127.0.0.1 lets in.

Tables of your own shape are served through --layouts, a YAML list. Each entry names the columns
that play a part, and optionally destination and max_attempts (types are PostgreSQL's; in SQLite a uuid is
TEXT, and position an INTEGER PRIMARY KEY):

    - table: billing.outbox
      id: event_id               # uuid not null; required like position, topic, payload, attempts, next_retry_at
      position: seq              # bigint not null, drawn by the database
      topic: kind
      payload: body
      key: invoice_id            # what must stay in order
      delivered_at: sent_at      # null until delivered; or status with pending, delivered and dead
      attempts: tries
      next_retry_at: retry_at
      destination: "billing.{topic}"
    - table: outbox              # upgraded by deploy/postgres/upgrade-outbox.sql
      like: outbox_events        # that table's columns; further keys change single ones

Destinations may have a retry policy of their own, in the file of --config. What an entry leaves out is as for
the table:

    retry:
      - destination: "orders.*"  # a name or a pattern; * does not match a slash
        table: outbox_events     # default: all
        max_attempts: 10
        backoff_base: 1s
        backoff_factor: 2
        backoff_cap: 5m`,
		Example: `  outbox relay
  outbox relay --table crawl_outbox --envelope payload
  outbox relay --listen 127.0.0.1:9464 --destination 'outbox_events=shop.{topic}'
  OUTBOX_DATABASE_URL=… OUTBOX_SINK=… outbox relay --config outbox.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.settings(config.Database|config.Publishing|config.Serving|config.Retaining, settings)
			if err != nil {
				return err
			}
			log, err := a.logger(c)
			if err != nil {
				return err
			}
			return app.Relay(cmd.Context(), c, log)
		},
	}
	cmd.Flags().AddFlagSet(settings)
	cmd.Flags().SortFlags = false
	return cmd
}

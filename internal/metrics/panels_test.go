package metrics

import "slices"

// manual is where the documents for operators are.
const manual = "https://github.com/outboxrelay/outbox/blob/main/docs/operations/"

type row struct {
	Title  string
	Height int
	Panels []panel
}

// panel is a question of whoever is on call. Do says what to do about the answer.
type panel struct {
	Title, Kind, Unit, Do  string
	Red                    float64 // from which on it is wrong; 0: nothing is
	RedBelow, Log, Stacked bool
	Queries                []query
}

type query struct{ Expr, Legend string }

func panels() (all []panel) {
	for _, r := range rows() {
		all = append(all, r.Panels...)
	}
	return all
}

// rows are the dashboard, the worst news first. Every relay of a database reports the same backlog,
// hence max by table.
func rows() []row {
	return slices.Concat(healthRows(), workRows(), processRows())
}

func healthRows() []row {
	return []row{
		{"Health", 6, []panel{
			{Title: "Relays that are ready", Kind: "stat", Unit: "percentunit", Red: 1, RedBelow: true,
				Do:      "Below 100 %: /readyz of the relay says why, as does outbox lanes. No data: no relay reports.",
				Queries: []query{{`avg(outbox_relay_ready{job=~"$job"})`, ""}}},
			{Title: "Oldest event", Kind: "stat", Unit: "s", Red: 30,
				Do:      "Above 30 s: outbox lanes names the cause in its first line.",
				Queries: []query{{`max(outbox_oldest_undelivered_seconds{job=~"$job", table=~"$table"})`, ""}}},
			{Title: "Letters that wait for somebody", Kind: "stat", Unit: "short", Red: 1,
				Do:      "Any: outbox dlq stats groups them by error. Replay them once the cause is gone, or discard them.",
				Queries: []query{{`sum(max by (job, table, source) (outbox_dead_letters_pending{job=~"$job"}))`, ""}}},
			{Title: "Conditions", Kind: "table", Unit: "short",
				Do: "Each is an entry of " + manual + "conditions.md; outbox doctor --only ID says what was found and what to do.",
				Queries: []query{{`sort_desc(max by (id, severity, job) ` +
					`(outbox_condition{job=~"$job", severity=~"critical|warning"}) > 0)`, ""}}},
		}},
		{"What waits, and for how long", 8, []panel{
			{Title: "Events that wait", Kind: "timeseries", Unit: "short", Log: true,
				Do:      "It grows while something is delivered: add relays. It grows and nothing is: look at Sinks.",
				Queries: []query{{`max by (job, table) (outbox_backlog_events{job=~"$job", table=~"$table"})`, "{{table}}"}}},
			{Title: "Age of the oldest", Kind: "timeseries", Unit: "s", Log: true, Red: 30,
				Do: "One that grows by a second a second is one blocked key, or everything: outbox events --status FAILED.",
				Queries: []query{{`max by (job, table) (outbox_oldest_undelivered_seconds{job=~"$job", table=~"$table"})`,
					"{{table}}"}}},
			{Title: "Age of the oldest that a sink owes", Kind: "timeseries", Unit: "s", Log: true, Red: 300,
				Do: "A sink of a table with routes is behind: outbox events --sink SINK lists what. A sink that is gone for " +
					"good: outbox sinks move or forget.",
				Queries: []query{
					{`max by (job, table, sink) (outbox_oldest_owed_seconds{job=~"$job", table=~"$table"})`, "{{sink}} of {{table}}"},
					{`max by (job, table, sink) (outbox_unserved_debts{job=~"$job", table=~"$table"})`,
						"{{sink}} of {{table}} has no relay"}}},
		}},
	}
}

func workRows() []row {
	return []row{
		{"Throughput", 8, []panel{
			{Title: "Delivered", Kind: "timeseries", Unit: "ops", Stacked: true,
				Do: "By table; outbox_deliveries/TABLE/SINK is what a sink takes later. A drop to 0 with a backlog: a sink is " +
					"down, or a pause was forgotten.",
				Queries: []query{
					{`sum by (table) (rate(outbox_published_total{job=~"$job", table=~"$table"}[$__rate_interval]))`, "{{table}}"}}},
			{Title: "From insert to delivery", Kind: "timeseries", Unit: "s", Log: true,
				Do: "The 99th percentile counts what waited in an outage too, and falls when that has drained.",
				Queries: []query{
					{`histogram_quantile(0.5, sum by (le) (rate(outbox_delivery_latency_seconds_bucket` +
						`{job=~"$job", table=~"$table"}[$__rate_interval])))`, "median"},
					{`histogram_quantile(0.99, sum by (le) (rate(outbox_delivery_latency_seconds_bucket` +
						`{job=~"$job", table=~"$table"}[$__rate_interval])))`, "99 %"}}},
			{Title: "Sinks", Kind: "timeseries", Unit: "short", Red: 1,
				Do: "1: the sink is down and only probed. Bring it back; no attempt is counted, and what waits follows in order.",
				Queries: []query{{`max by (job, sink) (outbox_sink_down{job=~"$job"})`, "{{sink}} is down"},
					{`sum by (table) (rate(outbox_sink_unavailable_total{job=~"$job", table=~"$table"}[$__rate_interval]))`,
						"{{table}}: batches that found it down"}}},
		}},
		{"Failures", 8, []panel{
			{Title: "Failed and put off, given up", Kind: "timeseries", Unit: "ops",
				Do: "Given up: a letter is made of each. Put off: outbox events --status FAILED has the error and the next try.",
				Queries: []query{
					{`sum by (table) (rate(outbox_retried_total{job=~"$job", table=~"$table"}[$__rate_interval]))`,
						"{{table}}: put off"},
					{`sum by (table) (rate(outbox_dead_total{job=~"$job", table=~"$table"}[$__rate_interval]))`,
						"{{table}}: given up"}}},
			{Title: "Copies refused, outcomes lost", Kind: "timeseries", Unit: "ops",
				Do: "A batch's worth after a crash. All the time: a relay cannot record what it has published, or is paused " +
					"for longer than its lease.",
				Queries: []query{
					{`sum by (table) (rate(outbox_duplicates_refused_total{job=~"$job", table=~"$table"}[$__rate_interval]))`,
						"{{table}}: refused"},
					{`sum by (table) (rate(outbox_lost_total{job=~"$job", table=~"$table"}[$__rate_interval]))`,
						"{{table}}: lost"}}},
		}},
	}
}

func processRows() []row {
	return []row{
		{"Relays and leases", 8, []panel{
			{Title: "Lanes by relay", Kind: "timeseries", Unit: "short", Stacked: true,
				Do: "Of each table the sum is 64. Less for longer than a lease (10 s): a relay died and no other is there.",
				Queries: []query{{`sum by (instance, table) (outbox_lanes_held{job=~"$job", table=~"$table"})`,
					"{{instance}} of {{table}}"}}},
			{Title: "Not ready, or paused", Kind: "timeseries", Unit: "short", Red: 1,
				Do: "Not ready: /readyz of that relay says why. Paused: outbox pauses says by whom; outbox resume ends it.",
				Queries: []query{{`1 - outbox_relay_ready{job=~"$job"}`, "{{instance}} is not ready"},
					{`max by (job, table) (outbox_paused{job=~"$job", table=~"$table"})`, "{{table}} is paused"}}},
		}},
		{"Consumers: streams, requests, runs", 8, []panel{
			{Title: "Streams", Kind: "timeseries", Unit: "short",
				Do: "Refused: a limit of the settings is reached. Cut off: clients read too slowly. Gaps all the time: no relay " +
					"publishes where the gateway listens (--destination). No broker: the database alone carries the streams.",
				Queries: []query{{`sum(outbox_streams_open{job=~"$job"})`, "open"},
					{`sum(rate(outbox_stream_refused_total{job=~"$job"}[$__rate_interval]))`, "refused a second"},
					{`sum(rate(outbox_stream_slow_total{job=~"$job"}[$__rate_interval]))`, "cut off a second"},
					{`sum(rate(outbox_stream_gaps_total{job=~"$job"}[$__rate_interval]))`, "gaps a second"},
					{`sum by (instance) (1 - outbox_stream_broker_up{job=~"$job"})`, "{{instance}} has no broker"}}},
			{Title: "Requests and runs that failed", Kind: "timeseries", Unit: "ops",
				Do: "5xx: the log of the gateway has the cause. FAILED runs: outbox runs list --status FAILED.",
				Queries: []query{
					{`sum by (route) (rate(outbox_http_requests_total{job=~"$job", status!~"[1-4].."}[$__rate_interval]))`,
						"{{route}}: 5xx"},
					{`sum by (status) (rate(outbox_runs_ended_total{job=~"$job", status!="COMPLETED"}[$__rate_interval]))`,
						"runs: {{status}}"}}},
		}},
		{"What PostgreSQL has to do", 8, []panel{
			{Title: "Time of a batch, 99 %", Kind: "timeseries", Unit: "s", Log: true,
				Do: "A slow claim: a long transaction holds vacuum back (OBX-009). A slow settle: the disk. A slow publish: " +
					"the sink.",
				Queries: []query{
					{`histogram_quantile(0.99, sum by (le) (rate(outbox_claim_seconds_bucket` +
						`{job=~"$job", table=~"$table"}[$__rate_interval])))`, "claim"},
					{`histogram_quantile(0.99, sum by (le) (rate(outbox_publish_seconds_bucket` +
						`{job=~"$job", table=~"$table"}[$__rate_interval])))`, "publish"},
					{`histogram_quantile(0.99, sum by (le) (rate(outbox_settle_seconds_bucket` +
						`{job=~"$job", table=~"$table"}[$__rate_interval])))`, "settle"}}},
			{Title: "Retention", Kind: "timeseries", Unit: "short",
				Do: "Failures: the log of the relay has the cause. Nothing leaves for a day: old rows stay, and claims get slower.",
				Queries: []query{
					{`sum by (table, action) (rate(outbox_retention_rows_total{job=~"$job", table=~"$table"}[$__rate_interval]))`,
						"{{table}}: {{action}} rows a second"},
					{`sum by (table) (increase(outbox_retention_failures_total{job=~"$job", table=~"$table"}[$__rate_interval]))`,
						"{{table}}: failures"}}},
		}},
	}
}

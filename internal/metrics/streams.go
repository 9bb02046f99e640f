package metrics

import "github.com/prometheus/client_golang/prometheus"

// Streams is what a gateway knows of its streams. All are counted since the process began, but for
// Open, Sources, Channels and Live, which are now.
type Streams struct {
	Open, Sources, Channels     int64
	Live                        bool
	Sent, FromLive, FromLog     int64
	Gaps, Resets, Slow, Refused int64
	LogErrors, Reconnects       int64
}

// WatchStreams makes metrics of the streams; read is called for each scrape. It may be called once.
func (m *Metrics) WatchStreams(read func() Streams) {
	c := streamCollector{read: read}
	add := func(kind prometheus.ValueType, name, help string, value func(Streams) int64) {
		c.series = append(c.series,
			streamSeries{prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, nil, nil), kind, value})
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	add(gauge, "streams_open", "Streams open.", func(s Streams) int64 { return s.Open })
	add(gauge, "stream_sources", "Runs and topics that are followed for them, each once.",
		func(s Streams) int64 { return s.Sources })
	add(gauge, "stream_channels", "Channels of the broker listened to.", func(s Streams) int64 { return s.Channels })
	add(gauge, "stream_broker_up",
		"1 while events arrive from the broker, 0 while streams are read from the database alone.", func(s Streams) int64 {
			if s.Live {
				return 1
			}
			return 0
		})
	add(counter, "stream_events_total", "Events sent, over all streams.", func(s Streams) int64 { return s.Sent })
	add(counter, "stream_live_total",
		"Events that arrived from the broker in time, each once however many streams it went to.",
		func(s Streams) int64 { return s.FromLive })
	add(counter, "stream_log_total",
		"Events that streams read from the database: history, and what they were too slow for.",
		func(s Streams) int64 { return s.FromLog })
	add(counter, "stream_gaps_total", "Events that did not arrive from the broker in time and were found in the database.",
		func(s Streams) int64 { return s.Gaps })
	add(counter, "stream_resets_total", "Streams of a topic that were told that they may have missed something.",
		func(s Streams) int64 { return s.Resets })
	add(counter, "stream_slow_total", "Streams that were cut off because the client did not receive.",
		func(s Streams) int64 { return s.Slow })
	add(counter, "stream_refused_total", "Streams refused because of a limit.", func(s Streams) int64 { return s.Refused })
	add(counter, "stream_log_errors_total", "Failed reads of the database for streams.",
		func(s Streams) int64 { return s.LogErrors })
	add(counter, "stream_broker_reconnects_total", "Connections to the broker after the first.",
		func(s Streams) int64 { return s.Reconnects })
	m.Registry.MustRegister(c)
}

// streamCollector reads all values at once, so that they belong together.
type streamCollector struct {
	read   func() Streams
	series []streamSeries
}

type streamSeries struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(Streams) int64
}

// Describe implements prometheus.Collector.
func (c streamCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, s := range c.series {
		descs <- s.desc
	}
}

// Collect implements prometheus.Collector.
func (c streamCollector) Collect(values chan<- prometheus.Metric) {
	now := c.read()
	for _, s := range c.series {
		values <- prometheus.MustNewConstMetric(s.desc, s.kind, float64(s.value(now)))
	}
}

package app

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboxrelay/outbox"
	outboxotel "github.com/outboxrelay/outbox/contrib/otel"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/version"
)

// telemetry sends the spans and metrics of a process by OTLP, to where --otlp or the variables of
// OpenTelemetry say. A collector that is away or slow costs spans, and nobody waits for it but the
// end of the process, for flushTime.
type telemetry struct {
	tracing *outboxotel.Tracing // nil: no spans
	ends    []func(context.Context) error
}

const (
	flushTime = 3 * time.Second
	// A span has a link for each of up to a batch of messages, of some 400 bytes: the SDK's 2048
	// spans would be 400 MB, and 512 of them more than the 20 MB that a collector takes in one
	// request.
	spansQueued, spansSent = 256, 64
)

// start begins to send. Variables that say nothing sensible are no error, since others may have set
// them for many programs: it logs what is wrong, and that signal is not sent.
func (t *telemetry) start(ctx context.Context, p process) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return
	}
	otel.SetErrorHandler(&complaints{log: p.log})
	for signal, send := range map[string]func(context.Context, string, *resource.Resource, process) error{
		"traces": t.sendSpans, "metrics": t.sendMetrics,
	} {
		to := collector(p.cfg.OTLP, signal)
		if to == "" {
			continue
		}
		err := sendable(signal, to)
		if err == nil {
			var from *resource.Resource
			if from, err = called(ctx); err == nil {
				err = send(ctx, to, from, p)
			}
		}
		if err != nil {
			p.log.Error("nothing is sent to OpenTelemetry: correct the variables OTEL_*", "signal", signal, "error", err)
			continue
		}
		p.log.Info("sending to OpenTelemetry", "signal", signal, "to", to)
	}
}

// sendable refuses what the exporters would send to somewhere else, or in another form than is
// meant.
func sendable(signal, to string) error {
	upper := strings.ToUpper(signal)
	for _, name := range []string{"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_" + upper + "_PROTOCOL"} {
		if protocol := os.Getenv(name); protocol != "" && protocol != "http/protobuf" {
			return fmt.Errorf("%s is %q: only http/protobuf is sent here: unset it, and name the collector's port for that "+
				"(4318)", name, protocol)
		}
	}
	if !config.IsBase(to) {
		return fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_%s_ENDPOINT is no URL such as "+
			"http://127.0.0.1:4318, without user, password or query", upper)
	}
	return nil
}

// called is what the process is called: outbox, unless a variable says otherwise.
func called(ctx context.Context) (*resource.Resource, error) {
	from, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "outbox"),
		attribute.String("service.version", version.Of().Version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return from, nil
}

// collector is where a signal goes, "" if nowhere.
func collector(base, signal string) string {
	upper := strings.ToUpper(signal)
	if os.Getenv("OTEL_"+upper+"_EXPORTER") == "none" {
		return ""
	}
	base = cmp.Or(base, os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	if base != "" {
		base = strings.TrimRight(base, "/") + "/v1/" + signal
	}
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_"+upper+"_ENDPOINT"), base)
}

func (t *telemetry) sendSpans(ctx context.Context, to string, from *resource.Resource, _ process) error {
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(to))
	if err != nil {
		return err
	}
	limits := sdktrace.NewSpanLimits()
	if os.Getenv("OTEL_SPAN_LINK_COUNT_LIMIT") == "" {
		limits.LinkCountLimit = -1 // a batch has an end, and each of its messages a link
	}
	var queue []sdktrace.BatchSpanProcessorOption
	if os.Getenv("OTEL_BSP_MAX_QUEUE_SIZE") == "" {
		queue = append(queue, sdktrace.WithMaxQueueSize(spansQueued))
	}
	if os.Getenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE") == "" {
		queue = append(queue, sdktrace.WithMaxExportBatchSize(spansSent))
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter, queue...), sdktrace.WithResource(from),
		sdktrace.WithRawSpanLimits(limits))
	t.ends = append(t.ends, provider.Shutdown)
	// The latencies are in the registry, with exemplars.
	t.tracing, err = outboxotel.New(outboxotel.Config{TracerProvider: provider, MeterProvider: noop.NewMeterProvider()})
	return err
}

// sendMetrics sends what /metrics shows: the registry is the one list of instruments.
func (t *telemetry) sendMetrics(ctx context.Context, to string, from *resource.Resource, p process) error {
	exporter, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(to))
	if err != nil {
		return err
	}
	registry := exemplars{bridge.NewMetricProducer(bridge.WithGatherer(p.metrics))}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithResource(from),
		sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter, sdkmetric.WithProducer(registry))))
	t.ends = append(t.ends, provider.Shutdown)
	return nil
}

// exemplars has the ids of exemplars as OTLP wants them. The bridge (v0.72) hands on the text of
// the labels, for which a collector may refuse the whole request.
type exemplars struct{ sdkmetric.Producer }

// Produce implements sdkmetric.Producer.
func (p exemplars) Produce(ctx context.Context) ([]metricdata.ScopeMetrics, error) {
	scopes, err := p.Producer.Produce(ctx)
	for _, scope := range scopes {
		for _, m := range scope.Metrics {
			h, _ := m.Data.(metricdata.Histogram[float64])
			for _, point := range h.DataPoints {
				for i := range point.Exemplars {
					e := &point.Exemplars[i]
					e.TraceID = binary(e.TraceID, len(trace.TraceID{}))
					e.SpanID = binary(e.SpanID, len(trace.SpanID{}))
				}
			}
		}
	}
	return scopes, err
}

// binary is an id of so many bytes that may be hexadecimal text.
func binary(id []byte, size int) []byte {
	if decoded, err := hex.DecodeString(string(id)); err == nil && len(decoded) == size {
		return decoded
	}
	return id
}

// sink puts the spans of a sink before it, if there are any.
func (t *telemetry) sink(s outbox.Sink, system string) outbox.Sink {
	if t.tracing == nil {
		return s
	}
	return t.tracing.Sink(s, system)
}

// end sends what is left, as far as flushTime lets it.
func (t *telemetry) end(ctx context.Context, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	var ending sync.WaitGroup
	failed := make([]error, len(t.ends))
	for i, end := range t.ends {
		ending.Go(func() { failed[i] = end(ctx) })
	}
	ending.Wait()
	if err := errors.Join(failed...); err != nil {
		log.Warn("not all that was measured reached OpenTelemetry", "error", err)
	}
}

// complaints logs what OpenTelemetry complains of, once a minute.
type complaints struct {
	log   *slog.Logger
	mu    sync.Mutex
	last  time.Time
	quiet int // since then
}

const complainEvery = time.Minute

// Handle implements otel.ErrorHandler.
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.quiet++; time.Since(c.last) < complainEvery {
		return
	}
	c.log.Warn("cannot send to OpenTelemetry: what was measured is dropped, events are delivered all the same",
		"error", err, "failures", c.quiet)
	c.last, c.quiet = time.Now(), 0
}

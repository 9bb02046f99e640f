package app

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxrelay/outbox/internal/config"
)

// Nothing is sent where nothing says where to. What says nothing sensible is logged, and stops no
// relay.
func TestTelemetrySettings(t *testing.T) {
	const here = "http://127.0.0.1:1"
	for name, tt := range map[string]struct {
		otlp            string
		variable, value string
		want            string // in the log
		ends            int    // signals that are sent
	}{
		"nothing":         {},
		"setting":         {here, "", "", "", 2},
		"variable":        {"", "OTEL_EXPORTER_OTLP_ENDPOINT", here + "/", "", 2},
		"traces alone":    {"", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", here, "", 1},
		"no metrics":      {here, "OTEL_METRICS_EXPORTER", "none", "", 1},
		"disabled":        {here, "OTEL_SDK_DISABLED", "true", "", 0},
		"no URL":          {"", "OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", "ENDPOINT is no URL", 0},
		"another form":    {here, "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "only http/protobuf", 0},
		"a password":      {"", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:hunter2@c", "without user", 0},
		"no attributes":   {here, "OTEL_RESOURCE_ATTRIBUTES", "a", "OTEL_RESOURCE_ATTRIBUTES", 0},
		"metrics, no URL": {here, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "x", "METRICS_ENDPOINT is no URL", 1},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.variable != "" {
				t.Setenv(tt.variable, tt.value)
			}
			var log bytes.Buffer
			p := newProcess(config.Config{OTLP: tt.otlp}, slog.New(slog.NewTextHandler(&log, nil)), partRelay)
			p.telemetry.start(t.Context(), p)
			wrong := strings.Contains(log.String(), "level=ERROR")
			if wrong != (tt.want != "") || !strings.Contains(log.String(), tt.want) ||
				strings.Contains(log.String(), "hunter2") {
				t.Errorf("the log is %s, want %q", &log, tt.want)
			}
			if got := len(p.telemetry.ends); got != tt.ends {
				t.Errorf("%d signals are sent, want %d", got, tt.ends)
			}
		})
	}
}

func TestComplaintsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := &complaints{log: slog.New(slog.NewTextHandler(&log, nil))}
		for range 120 {
			c.Handle(errors.New("away"))
			time.Sleep(time.Second)
		}
		if lines := strings.Count(log.String(), "\n"); lines != 2 || !strings.Contains(log.String(), "failures=60") {
			t.Errorf("120 failures in two minutes are %d lines:\n%s", lines, &log)
		}
	})
}

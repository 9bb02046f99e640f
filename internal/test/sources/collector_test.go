package sources

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collecttraces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector receives OTLP over HTTP.
type collector struct {
	*httptest.Server
	mu      sync.Mutex
	spans   []span
	metrics map[string]*metrics.Metric // the last of each name
}

// span is one that came, of a service.
type span struct {
	*traces.Span
	service string
}

func newCollector(t *testing.T) *collector {
	c := &collector{metrics: map[string]*metrics.Metric{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, r *http.Request) {
		var got collecttraces.ExportTraceServiceRequest
		if !decode(t, w, r, &got) {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, of := range got.ResourceSpans {
			for _, scope := range of.ScopeSpans {
				for _, s := range scope.Spans {
					c.spans = append(c.spans, span{s, attribute(of.Resource.Attributes, "service.name")})
				}
			}
		}
	})
	mux.HandleFunc("POST /v1/metrics", func(w http.ResponseWriter, r *http.Request) {
		var got collectmetrics.ExportMetricsServiceRequest
		if !decode(t, w, r, &got) {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, of := range got.ResourceMetrics {
			for _, scope := range of.ScopeMetrics {
				for _, m := range scope.Metrics {
					c.metrics[m.Name] = m
				}
			}
		}
	})
	c.Server = httptest.NewServer(mux)
	t.Cleanup(c.Close)
	return c
}

func decode(t *testing.T, w http.ResponseWriter, r *http.Request, to proto.Message) bool {
	var from io.Reader = r.Body
	var err error
	if r.Header.Get("Content-Encoding") == "gzip" {
		from, err = gzip.NewReader(r.Body)
	}
	var body []byte
	if err == nil {
		body, err = io.ReadAll(from)
	}
	if err == nil {
		err = proto.Unmarshal(body, to)
	}
	if err != nil {
		t.Errorf("%s: %v", r.URL, err)
		w.WriteHeader(http.StatusBadRequest)
	}
	return err == nil
}

// of returns the spans of a name.
func (c *collector) of(name string) (found []span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// one returns the only span of a name.
func (c *collector) one(t *testing.T, name string) span {
	t.Helper()
	found := c.of(name)
	if len(found) != 1 {
		t.Fatalf("%d spans are called %s", len(found), name)
	}
	return found[0]
}

// all returns the spans in the order in which they began.
func (c *collector) all() []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(slices.Values(c.spans), func(a, b span) int {
		return int(a.StartTimeUnixNano) - int(b.StartTimeUnixNano)
	})
}

func attribute(of []*common.KeyValue, name string) string {
	for _, a := range of {
		if a.Key == name {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

func id(of []byte) string { return hex.EncodeToString(of) }

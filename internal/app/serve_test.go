package app

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/metrics"
)

func TestMeasured(t *testing.T) {
	m := metrics.New()
	h := measured(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("flush: %v", err)
		}
		switch r.URL.Path {
		case "/v1/runs/7/stream":
			panic(http.ErrAbortHandler)
		case "/v1/runs":
			w.WriteHeader(http.StatusCreated)
		}
	}), []string{"GET /v1/runs", "GET /v1/runs/{id}/stream"}, m.HTTP())
	for _, target := range []string{"/v1/runs/7/stream", "/v1/runs", "/etc/passwd", "/v1/runs/7/8/9"} {
		func() {
			defer func() { _ = recover() }()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, target, nil))
		}()
	}
	counted := map[string]float64{}
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, c := range f.GetMetric() {
			if f.GetName() == "outbox_http_requests_total" {
				counted[c.GetLabel()[0].GetValue()+" "+c.GetLabel()[1].GetValue()] = c.GetCounter().GetValue()
			}
		}
	}
	if len(counted) != 3 || counted["GET /v1/runs/{id}/stream 200"] != 1 || counted["GET /v1/runs 201"] != 1 ||
		counted["other 200"] != 2 {
		t.Errorf("got %v", counted)
	}
}

func TestBuiltin(t *testing.T) {
	chosen, err := builtin([]string{"script:*", "demo", "script:short"})
	if got := names(chosen); err != nil || len(got) < 3 || got[len(got)-1] != "demo" ||
		len(slices.Compact(slices.Sorted(slices.Values(got)))) != len(got) {
		t.Errorf("got %v, error %v", names(chosen), err)
	}
	_, err = builtin([]string{"dmeo", "demo", "["})
	var problems *config.Error
	if !errors.As(err, &problems) || len(problems.Problems) != 2 ||
		!strings.Contains(err.Error(), `"dmeo": known are demo, script:`) {
		t.Errorf("got %v", err)
	}
}

// A part that is well does not hide one that is not, and each tells for itself.
func TestReportOfParts(t *testing.T) {
	h := newHealth(partGateway, partRelay)
	var group errgroup.Group
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{}, 1)
	h.part(partGateway).serve(ctx, &group, func(context.Context) error { asked <- struct{}{}; return nil })
	h.part(partGateway).notes(func() string { return "Redis is away" })
	h.part(partRelay).wait("waiting for Redis")
	<-asked
	r := h.Report()
	if r.Ready || r.Reason != "waiting for Redis" || !r.Parts[partGateway].Ready ||
		r.Parts[partGateway].Note != "Redis is away" || r.Parts[partRelay].Ready {
		t.Errorf("got %+v", r)
	}
	cancel()
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	h.part(partRelay).serve(ctx, &group, nil) // ended: nobody asks
	if r := h.Report(); !r.Ready {
		t.Errorf("got %+v", r)
	}
	h.stop()
	if r := h.Report(); r.Ready || r.Reason != "stopping" || r.Parts[partGateway].Ready {
		t.Errorf("got %+v", r)
	}
}

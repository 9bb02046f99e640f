package gateway

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/server/token"
)

// A run has many spellings and one place in the list.
func TestTopics(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	run, spelt := "run:"+id.String(), "run:"+strings.ToUpper(strings.ReplaceAll(id.String(), "-", ""))
	for _, c := range []struct {
		topics, want, refused string
		runsOnly              bool
	}{
		{topics: spelt + ",a", want: run + ",a"},
		{topics: spelt + "," + run, refused: "twice"},
		{topics: "a,b,a", refused: "twice"},
		{topics: "run:x", refused: "UUID"},
		{topics: "a,,b", refused: "want a list"},
		{topics: spelt, want: run, runsOnly: true},
		{topics: run + ",a", refused: "bare payloads", runsOnly: true},
	} {
		g, _ := without(t, func(cfg *Config) { cfg.RunsOnly = c.runsOnly })
		topics, err := g.streams.parseTopics(url.Values{"topics": {c.topics}})
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v, want something about %q", c.topics, err, c.refused)
			}
			continue
		}
		var names []string
		for _, topic := range topics {
			names = append(names, topic.name)
		}
		if got := strings.Join(names, ","); err != nil || got != c.want || topics[0].run != id {
			t.Errorf("%s is read as %s, %v", c.topics, got, err)
		}
	}
}

// What opens no stream uses no ticket up: here looking one up is a panic, which is a 500.
func TestParametersComeBeforeTheTicket(t *testing.T) {
	t.Parallel()
	g, _ := without(t, func(cfg *Config) { cfg.Auth = &token.Authenticator{} })
	const good = "/v1/stream?topics=a"
	run := "/v1/runs/" + uuid.NewString() + "/stream?"
	ticket := "&ticket=obt_" + strings.Repeat("a", 52)
	for path, want := range map[string]int{
		good: 500, run: 500,
		good + ",a": 400, good + "&fromSeq=1": 400, good + "&lastEventId=1.2": 400, good + "&x=1": 400, good + ",run:x": 400,
		good + "&envelope=x": 400,
		run + "fromSeq=0":    400, run + "x=1": 400, "/v1/runs/x/stream?": 400,
	} {
		w := httptest.NewRecorder()
		if g.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path+ticket, nil)); w.Code != want {
			t.Errorf("%s: %d %s, want %d", path, w.Code, w.Body, want)
		}
	}
}

package dev

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/server/gateway"
	"github.com/outboxrelay/outbox/server/sse"
)

//go:embed page.html
var html []byte

// policy allows the page its own style and script and the API that it is served by, and nothing
// from anywhere else. Inline is as safe here as a hash would be: nothing of a request or a payload
// is ever written into the page's text.
const policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const (
	shown   = 40                     // events on the page
	look    = 300 * time.Millisecond // between two looks at the tables, while somebody watches
	patient = 5 * time.Second        // for the database
)

// page is what / shows and what its buttons do.
type page struct {
	commands Commands
	sinks    []string // their URLs, without passwords
	template outbox.Template
	layout   outbox.Layout
	broken   atomic.Bool
	figures  prometheus.Gatherer
	events   *operate.Browser
	letters  deadletter.Store
	writing  app.Writing
	ended    <-chan struct{}
}

// Commands are what a person calls in another terminal for what the page does.
type Commands struct {
	Program string `json:"program"` // as a shell takes it
	Flags   string `json:"flags"`   // that name the database
	First   string `json:"first"`   // to be run before, or ""
}

// event is an event as the page shows it.
type event struct {
	operate.EventRow
	To     []string   `json:"to"`
	Letter *uuid.UUID `json:"letter,omitempty"` // that is pending
	Reason string     `json:"reason,omitempty"` // of the letter
}

// state is all that the page shows of outbox_events.
type state struct {
	Commands  Commands `json:"commands"`
	Sinks     []string `json:"sinks"`
	Broken    bool     `json:"broken"`
	Down      bool     `json:"down"` // the relay only probes
	Delivered int      `json:"delivered"`
	Waiting   int      `json:"waiting"`
	Dead      int      `json:"dead"`
	Events    []event  `json:"events"`
}

// openPage opens what the page reads and writes. It shows outbox_events.
func openPage(ctx context.Context, c config.Config, db app.Database) (*page, error) {
	table, err := c.Find(outbox.OutboxEvents().Table)
	if err != nil {
		return nil, err
	}
	p := &page{layout: table.Layout}
	for _, s := range c.AllSinks() {
		p.sinks = append(p.sinks, s.Masked())
	}
	if table.Destination != "" {
		if p.template, err = outbox.ParseTemplate(table.Destination); err != nil {
			return nil, err
		}
	}
	if p.events, err = db.Browser(ctx, table.Layout); err != nil {
		return nil, err
	}
	if p.letters, err = db.Letters(ctx, []outbox.Layout{table.Layout}); err != nil {
		return nil, err
	}
	p.writing, err = db.Writing(ctx, outbox.WriterConfig{Table: table.Layout.Table})
	return p, err
}

// handler answers / and what is below /dev/.
func (p *page) handler(figures prometheus.Gatherer) http.Handler {
	p.figures = figures
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", policy)
		h.Set("Cache-Control", "no-cache") // another version of the program may answer next time
		_, _ = w.Write(html)               // fails if the browser has gone
	})
	mux.HandleFunc("GET /dev/stream", p.stream)
	mux.HandleFunc("GET /dev/events/{id}", p.show)
	mux.HandleFunc("POST /dev/events", post(p.write))
	mux.HandleFunc("POST /dev/sink", post(p.turn))
	mux.HandleFunc("POST /dev/replay", post(p.replay))
	protected := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Cache-Control", "no-store")
		if status, why := gateway.Foreign(r); why != "" {
			http.Error(w, why, status)
			return
		}
		protected.ServeHTTP(w, r)
	})
}

// stream sends the state whenever it is another one.
func (p *page) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	tick := time.NewTicker(look)
	defer tick.Stop()
	var last []byte
	for quiet := 0; ; quiet++ {
		now, err := p.state(r.Context())
		name := "state"
		if err != nil {
			name, now = "trouble", problem(err)
		}
		var message []byte
		switch {
		case !bytes.Equal(now, last):
			if message, err = sse.Append(nil, sse.Event{Name: name, Data: now}); err != nil {
				return
			}
			last, quiet = now, 0
		case quiet%40 == 39:
			message = sse.AppendComment(nil, "")
		}
		if len(message) > 0 {
			if _, err := w.Write(message); err != nil || out.Flush() != nil {
				return
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-p.ended:
			return
		case <-tick.C:
		}
	}
}

func problem(err error) []byte {
	text, _ := json.Marshal(map[string]string{"error": err.Error()}) // cannot fail
	return text
}

// state is what the tables and the figures say.
func (p *page) state(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	s := state{Commands: p.commands, Sinks: p.sinks, Broken: p.broken.Load(), Events: []event{}}
	rows, _, err := p.events.List(ctx, operate.Filter{Limit: shown})
	if err != nil {
		return nil, err
	}
	if s.Waiting, _, err = p.events.Undelivered(ctx, operate.Selection{All: true}); err != nil {
		return nil, err
	}
	letters, _, err := p.letters.List(ctx, deadletter.Filter{Table: p.layout.Table, Limit: 500})
	if err != nil {
		return nil, err
	}
	s.Dead = len(letters)
	for _, row := range rows {
		e := event{EventRow: row, To: row.GoesTo(p.layout, p.template)}
		for i, l := range letters {
			if l.OriginalID == row.ID {
				e.Letter, e.Reason = &letters[i].ID, l.Reason
			}
		}
		s.Events = append(s.Events, e)
	}
	families, err := p.figures.Gather()
	if err != nil {
		return nil, err
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "outbox_published_total":
				for _, l := range m.GetLabel() {
					if l.GetValue() == p.layout.Table {
						s.Delivered += int(m.GetCounter().GetValue())
					}
				}
			case "outbox_sink_down":
				s.Down = s.Down || m.GetGauge().GetValue() > 0
			}
		}
	}
	return json.Marshal(s)
}

// show returns all that is known of one event.
func (p *page) show(w http.ResponseWriter, r *http.Request) {
	detail, err := p.events.Show(r.Context(), r.PathValue("id"), "")
	answer(w, detail, err)
}

// write writes an event as an application would.
func (p *page) write(ctx context.Context, e struct {
	Topic, Key string
	Payload    json.RawMessage
}) (any, error) {
	prepared, err := p.writing.Prepare(ctx, outbox.Event{
		Topic: e.Topic, AggregateID: e.Key, Source: "outbox-dev", SchemaVersion: 1, Payload: e.Payload})
	if err == nil {
		_, err = p.writing.Commit(context.WithoutCancel(ctx), []outbox.Event{prepared}, nil)
	}
	return map[string]uuid.UUID{"id": prepared.ID}, err
}

// turn breaks the sinks, or mends them.
func (p *page) turn(_ context.Context, to struct{ Broken bool }) (any, error) {
	p.broken.Store(to.Broken)
	return to, nil
}

// replay puts a letter back.
func (p *page) replay(ctx context.Context, of struct{ Letter uuid.UUID }) (any, error) {
	done, err := deadletter.Replay(ctx, p.letters, deadletter.ReplayOptions{
		Selection: deadletter.Selection{IDs: []uuid.UUID{of.Letter}},
		Operator:  deadletter.Operator{Actor: "the page of outbox dev"}})
	if err == nil && len(done.Reasons) > 0 {
		err = errors.New(done.Reasons[0].Why)
	} else if err == nil && done.Letters == 0 {
		err = errors.New("this letter was not replayed: it is not pending any more")
	}
	return done, err
}

// post answers with what do makes of the request's body.
func post[T any](do func(context.Context, T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body T
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 2*outbox.DefaultMaxPayload)).Decode(&body)
		var done any
		if err == nil {
			done, err = do(r.Context(), body)
		}
		answer(w, done, err)
	}
}

// answer is of what the page asked; what is wrong with it a person reads there.
func answer(w http.ResponseWriter, with any, err error) {
	text, failed := json.Marshal(with)
	w.Header().Set("Content-Type", "application/json")
	if err = errors.Join(err, failed); err != nil {
		w.WriteHeader(http.StatusUnprocessableEntity)
		text = problem(err)
	}
	_, _ = w.Write(text) // fails if the browser has gone
}

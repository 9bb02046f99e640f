package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/version"
	"github.com/outboxrelay/outbox/server/gateway"
	"github.com/outboxrelay/outbox/server/token"
)

// base is before each path.
const base = "/v1/admin"

// streamed is how long an answer may last that comes bit by bit.
const streamed = time.Hour

// Route adds the operations to the API.
func (d *Desk) Route(api huma.API) {
	read := func(id, path, summary, details string) huma.Operation {
		return d.operation(id, http.MethodGet, path, token.AdminRead, summary, details)
	}
	write := func(id, path, summary, details string) huma.Operation {
		return d.operation(id, http.MethodPost, path, token.AdminWrite, summary, details)
	}
	gateway.Register(api, read("adminSession", "/session", "Ask what this token may", ""), d.session)
	gateway.Register(api, read("adminOverview", "/overview", "Get the state of everything",
		"As of the last second, or of some where there are many tables."), d.overview)
	watch := read("adminWatch", "/overview/stream", "Follow the state of everything",
		"Server-Sent Events named overview. The database is asked as often however many follow.")
	watch.Metadata = map[string]any{gateway.Waiting: streamed}
	watch.Responses = streams[Overview](api, "The events.")
	gateway.Register(api, watch, d.follow)
	gateway.Register(api, read("adminHistory", "/history", "Get the last minutes of the tables",
		"What was seen while somebody looked, at most 15 minutes."), d.past)
	gateway.Register(api, read("adminConditions", "/conditions", "Look for what is wrong",
		"As outbox doctor does, without connecting to sinks."), d.conditions)
	gateway.Register(api, read("adminLanes", "/tables/{table}/lanes", "Get the lanes of a table", ""), d.lanes)
	gateway.Register(api, read("adminBacklog", "/tables/{table}/backlog", "Count a backlog by topic or "+
		"tenant", ""), d.backlog)
	gateway.Register(api, read("adminPauses", "/pauses", "List what is paused", ""), sharing(d, "pauses", d.pauses))
	gateway.Register(api, write("adminPause", "/pauses", "Pause a table, a sink's part of it, a topic or a destination",
		"Events wait, in their order and uncounted. Relays obey within a second."), d.pause)
	gateway.Register(api, write("adminResume", "/resume", "Resume what is paused by these names", ""), d.resume)
	gateway.Register(api, read("adminAudit", "/audit", "List what operators did", ""), d.audit)
	gateway.Register(api, read("adminSettings", "/settings", "List the settings in force",
		"Without what is secret."), d.settings)
	d.routeEvents(api, read, write)
	d.routeLetters(api, read, write)
}

func (d *Desk) operation(id, method, path string, scope token.Scope, summary, details string) huma.Operation {
	if details == "" {
		details = summary + "."
	}
	return huma.Operation{
		OperationID: id, Method: method, Path: base + path, Summary: summary, Description: details,
		Tags:     []string{"Admin"},
		Security: []map[string][]string{{"bearer": {string(scope)}}}, MaxBodyBytes: 1 << 20,
		Errors: []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
			http.StatusConflict, http.StatusServiceUnavailable},
	}
}

// tenantOf returns the tenant that a request is bound to, "" for all of them.
func tenantOf(ctx context.Context) string {
	who := gateway.PrincipalOf(ctx)
	if who.Token == "" || who.Tenant == token.AllTenants {
		return "" // authentication is off, or the token is no tenant's
	}
	return who.Tenant
}

// allTenants refuses a request of one tenant.
func allTenants(ctx context.Context) error {
	if t := tenantOf(ctx); t != "" {
		return huma.Error403Forbidden(fmt.Sprintf("this token is of tenant %s: this is for a token of all tenants "+
			"(outbox token create --tenant '*' --scope admin:read)", t))
	}
	return nil
}

// within sets the tenant that a request asks for, or is bound to.
func within(ctx context.Context, asked *string) error {
	own := tenantOf(ctx)
	if own == "" || own == *asked {
		return nil
	}
	if *asked != "" {
		return huma.Error403Forbidden(fmt.Sprintf("this token is of tenant %s alone", own))
	}
	*asked = own
	return nil
}

// changing refuses what changes something where nothing may be changed.
func (d *Desk) changing(ctx context.Context) error {
	if d.ReadOnly {
		return huma.Error403Forbidden("this server is read-only for operators (--admin read)")
	}
	return ctx.Err()
}

// actor is who the record names.
func actor(ctx context.Context) string {
	if id := gateway.PrincipalOf(ctx).Token; id != "" {
		return "token " + id
	}
	return "somebody at the admin API"
}

// answer turns an error into the answer of a request.
func (d *Desk) answer(ctx context.Context, err error) error {
	var refused *Refused
	var settings *config.Error
	var schema *outbox.SchemaError
	var status huma.StatusError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &status):
		return err
	case errors.Is(err, operate.ErrNoEvent), errors.Is(err, deadletter.ErrNoLetter):
		return huma.Error404NotFound(err.Error())
	case errors.Is(err, operate.ErrFilter), errors.Is(err, deadletter.ErrFilter), errors.As(err, &refused),
		errors.Is(err, deadletter.ErrNoReason), errors.As(err, &settings), errors.Is(err, outbox.ErrInvalidEvent):
		return huma.Error400BadRequest(err.Error())
	case errors.Is(err, outbox.ErrRowsHidden):
		return huma.Error403Forbidden("the database role of this server may not: " + err.Error())
	case errors.As(err, &schema):
		return huma.Error404NotFound(err.Error())
	}
	return gateway.Failed(ctx, d.Logger, err)
}

type empty struct{}

// out is an answer.
type out[T any] struct{ Body T }

// Page is a page of a list.
type Page[T any] struct {
	Items      []T    `json:"items" nullable:"false"`
	NextCursor string `json:"nextCursor,omitempty" doc:"cursor for the next page; missing after the last."`
}

func page[T any](items []T, next string) *out[Page[T]] {
	if items == nil {
		items = []T{}
	}
	return &out[Page[T]]{Page[T]{items, next}}
}

// Session is what a token may.
type Session struct {
	Authentication bool          `json:"authentication"`
	Tenant         string        `json:"tenant" doc:"* for all."`
	Scopes         []token.Scope `json:"scopes" nullable:"false"`
	ReadOnly       bool          `json:"readOnly"`
	Environment    *Environment  `json:"environment,omitempty"`
	Version        string        `json:"version"`
}

// Environment is what a page shows of where it is.
type Environment struct {
	Name   string `json:"name"`
	Colour string `json:"colour,omitempty"`
}

func (d *Desk) session(ctx context.Context, _ *empty) (*out[Session], error) {
	who := gateway.PrincipalOf(ctx)
	s := Session{Authentication: who.Token != "", Tenant: token.AllTenants, Scopes: who.Scopes, ReadOnly: d.ReadOnly,
		Version: version.Of().Version}
	if t := tenantOf(ctx); t != "" {
		s.Tenant = t
	}
	if name, colour, _ := strings.Cut(d.Config.Serve.Environment, "="); name != "" {
		s.Environment = &Environment{name, colour}
	}
	return &out[Session]{s}, nil
}

func (d *Desk) overview(ctx context.Context, _ *empty) (*out[Overview], error) {
	if err := allTenants(ctx); err != nil {
		return nil, err
	}
	now, err := d.Overview(ctx)
	return &out[Overview]{now}, d.answer(ctx, err)
}

func (d *Desk) follow(ctx context.Context, _ *empty) (*huma.StreamResponse, error) {
	if err := allTenants(ctx); err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		events := startEvents(hc)
		ctx, cancel := d.live(hc.Context())
		defer cancel()
		_ = d.watch(ctx, func(o Overview) error { return events.send("overview", o) }) // the client has gone
	}}, nil
}

// streams describes an answer of Server-Sent Events whose data are T in JSON.
func streams[T any](api huma.API, what string) map[string]*huma.Response {
	data := api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
	return map[string]*huma.Response{"200": {Description: what,
		Content: map[string]*huma.MediaType{"text/event-stream": {Schema: data}}}}
}

// events writes Server-Sent Events.
type events struct {
	hc    huma.Context
	flush func() error
}

func startEvents(hc huma.Context) events {
	hc.SetHeader("Content-Type", "text/event-stream")
	hc.SetHeader("X-Accel-Buffering", "no")
	hc.SetStatus(http.StatusOK)
	e := events{hc: hc, flush: func() error { return nil }}
	if w, ok := hc.BodyWriter().(http.ResponseWriter); ok {
		e.flush = http.NewResponseController(w).Flush
	}
	return e
}

func (e events) send(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	if _, err := fmt.Fprintf(e.hc.BodyWriter(), "event: %s\ndata: %s\n\n", name, data); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	return e.flush()
}

// History is the last minutes of the tables.
type History struct {
	StepSeconds float64  `json:"stepSeconds"`
	Samples     []Sample `json:"samples" nullable:"false"`
}

func (d *Desk) past(ctx context.Context, _ *empty) (*out[History], error) {
	if err := allTenants(ctx); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	h := History{StepSeconds: 1, Samples: append([]Sample{}, d.history...)}
	if n := len(h.Samples); n > 1 {
		h.StepSeconds = h.Samples[n-1].At.Sub(h.Samples[0].At).Seconds() / float64(n-1)
	}
	return &out[History]{h}, nil
}

func (d *Desk) conditions(ctx context.Context, _ *empty) (*out[condition.Report], error) {
	if err := allTenants(ctx); err != nil {
		return nil, err
	}
	x := d.Examination
	return &out[condition.Report]{x.Examine(ctx, d.Which)}, nil
}

// TablePath names a table.
type TablePath struct {
	Table string `path:"table" maxLength:"200"`
}

func (d *Desk) open(ctx context.Context, table, sink string) (View, error) {
	if table == "" {
		table = outbox.OutboxEvents().Table
	}
	return Open(ctx, d.Config, d.Database, Of{table, sink})
}

// counted is how many undelivered events are counted, as outbox lanes does.
const counted = 100_000

func (d *Desk) lanes(ctx context.Context, in *TablePath) (*out[operate.LaneReport], error) {
	if err := allTenants(ctx); err != nil {
		return nil, err
	}
	v, err := d.open(ctx, in.Table, "")
	if err != nil {
		return nil, d.answer(ctx, err)
	}
	report, err := v.Lanes(ctx, counted)
	return &out[operate.LaneReport]{report}, d.answer(ctx, err)
}

func (d *Desk) backlog(ctx context.Context, in *struct {
	TablePath
	By string `query:"by" enum:"topic,tenant" default:"topic"`
}) (*out[operate.Backlog], error) {
	if err := allTenants(ctx); err != nil {
		return nil, err
	}
	v, err := d.open(ctx, in.Table, "")
	if err != nil {
		return nil, d.answer(ctx, err)
	}
	found, err := v.Backlog(ctx, operate.BacklogQuery{By: in.By, Shares: 100, Count: counted})
	return &out[operate.Backlog]{found}, d.answer(ctx, err)
}

func (d *Desk) pauses(ctx context.Context, _ *Aged) (*out[Page[operate.Pause]], error) {
	if err := allTenants(ctx); err != nil {
		return nil, err
	}
	all, err := AllPauses(ctx, d.Database)
	return page(all, ""), d.answer(ctx, err)
}

// PauseRequest names what is paused or resumed.
type PauseRequest struct {
	Table       string `json:"table,omitempty" maxLength:"200"`
	To          string `json:"to,omitempty" maxLength:"200" doc:"A sink of a table with routes."`
	Topic       string `json:"topic,omitempty" maxLength:"500" doc:"Or a pattern with *."`
	Destination string `json:"destination,omitempty" maxLength:"500"`
	Reason      string `json:"reason,omitempty" maxLength:"1000" doc:"Required for a pause."`
}

// named checks a request, and returns the pause that it names.
func (d *Desk) named(ctx context.Context, r PauseRequest) (operate.Pause, *operate.Pauses, error) {
	p := operate.Pause{Table: r.Table, To: r.To, Topic: r.Topic, Destination: r.Destination,
		Reason: strings.TrimSpace(r.Reason), Actor: actor(ctx), At: time.Now().UTC()}
	if err := errors.Join(allTenants(ctx), d.changing(ctx)); err != nil {
		return p, nil, err
	}
	if err := p.Check(""); err != nil {
		return p, nil, refusef("%w", err)
	}
	if p.Table != "" {
		t, err := d.Config.Find(p.Table)
		if err != nil {
			return p, nil, err
		}
		p.Table = t.Layout.Table
	}
	pauses, err := d.Database.Pauses(ctx)
	return p, pauses, err
}

func (d *Desk) pause(ctx context.Context, in *struct{ Body PauseRequest }) (*out[operate.Pause], error) {
	p, pauses, err := d.named(ctx, in.Body)
	if err == nil && p.Reason == "" {
		err = refusef("say why these events wait, for whoever wonders: a reason is required")
	}
	if err == nil && p.To != "" {
		err = PausableSink(ctx, d.Config, d.Database, Of{p.Table, p.To})
	}
	if err == nil {
		err = pauses.Pause(ctx, p)
	}
	d.want()
	return &out[operate.Pause]{p}, d.answer(ctx, err)
}

// Resumed is the answer to a request to resume.
type Resumed struct {
	Resumed bool `json:"resumed"`
}

func (d *Desk) resume(ctx context.Context, in *struct{ Body PauseRequest }) (*out[Resumed], error) {
	p, pauses, err := d.named(ctx, in.Body)
	found := false
	if err == nil {
		found, err = pauses.Resume(ctx, p)
	}
	if err == nil && !found {
		err = huma.Error404NotFound("nothing is paused by these names")
	}
	return &out[Resumed]{Resumed{found}}, d.answer(ctx, err)
}

func (d *Desk) audit(ctx context.Context, in *struct {
	Action string    `query:"action" maxLength:"50"`
	Actor  string    `query:"actor" maxLength:"200"`
	Since  time.Time `query:"since"`
	Until  time.Time `query:"until"`
	Limit  int       `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Cursor string    `query:"cursor" maxLength:"100"`
}) (*out[Page[deadletter.Action]], error) {
	if err := allTenants(ctx); err != nil {
		return nil, err
	}
	store, err := d.letters(ctx)
	if err != nil {
		return nil, d.answer(ctx, err)
	}
	found, next, err := deadletter.Actions(ctx, store, deadletter.ActionFilter{Action: in.Action, Actor: in.Actor,
		Since: in.Since, Until: in.Until, Limit: in.Limit, After: in.Cursor})
	return page(found, next), d.answer(ctx, err)
}

// Setting is a setting in force.
type Setting struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
	From  string `json:"from"`
}

// Settings are all of them.
type Settings struct {
	Settings []Setting `json:"settings" nullable:"false"`
}

func (d *Desk) settings(ctx context.Context, _ *empty) (*out[Settings], error) {
	if err := allTenants(ctx); err != nil {
		return nil, err
	}
	s := Settings{[]Setting{}}
	for _, one := range d.Config.Effective() {
		s.Settings = append(s.Settings, Setting{one.Name, one.Value, one.From})
	}
	return &out[Settings]{s}, nil
}

// letters opens the dead letters, and keeps them open for a while: opening them asks the catalog of
// every table.
func (d *Desk) letters(ctx context.Context) (deadletter.Store, error) {
	d.mu.Lock()
	store, opened := d.store, d.opened
	d.mu.Unlock()
	if time.Since(opened) < openFor {
		return store, nil
	}
	store, err := Letters(ctx, d.Config, d.Database)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.store, d.opened = store, time.Now()
	return store, nil
}

package gateway

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/token"
)

// Run is a run as the API shows it.
type Run struct {
	crawl.Run

	StreamURL string `json:"streamUrl" doc:"Where its events can be followed as server-sent events."`
}

// TransformSchema fulfils huma.SchemaTransformer.
func (Run) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Properties["deviceConfig"] = anyObject("")
	return s
}

func anyObject(doc string) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true, Description: doc}
}

func (a *api) view(r crawl.Run) Run { return Run{r, a.runURL(r.ID) + "/stream"} }

func (a *api) runURL(id uuid.UUID) string { return a.cfg.PublicURL + "/v1/runs/" + id.String() }

// RunPath is the path parameter of a run, exported because huma looks into exported embedded fields
// only. One that is no UUID is malformed (400); one that is, but of no run of the tenant, is
// unknown (404).
type RunPath struct {
	ID uuid.UUID `path:"id" format:"uuid" doc:"The run's id."`
}

type runReply struct{ Body Run }

// CreateRun is the body of POST /v1/runs.
type CreateRun struct {
	AppPackage   string          `json:"appPackage" minLength:"1" maxLength:"255" doc:"What to crawl." example:"com.example.shop"`
	DeviceConfig json.RawMessage `json:"deviceConfig,omitempty"`
	MaxSteps     *int            `json:"maxSteps,omitempty" minimum:"1" maximum:"100000" default:"100" doc:"Nodes that a worker visits before it completes the run."`
	Goal         string          `json:"goal,omitempty" maxLength:"10000"`
	Crawler      string          `json:"crawler,omitempty" maxLength:"150" default:"external"`
}

// TransformSchema fulfils huma.SchemaTransformer.
func (CreateRun) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Properties["deviceConfig"] = anyObject(fmt.Sprintf("At most %d bytes.", crawl.MaxDeviceConfig))
	return s
}

type createRequest struct {
	Key  string `header:"Idempotency-Key" maxLength:"255" pattern:"^[!-~]+$" doc:"Makes the request harmless to repeat: visible ASCII, of the client's choice, at best a UUID."`
	Body body[CreateRun]
}

// Resolve refuses a key that is there and empty, which huma takes for none: a client that sends it
// believes that it is safe.
func (in *createRequest) Resolve(hc huma.Context) []error {
	r, _ := humago.Unwrap(hc)
	if keys := r.Header.Values("Idempotency-Key"); len(keys) > 1 || len(keys) == 1 && keys[0] == "" {
		return []error{&huma.ErrorDetail{Message: "must be there once, with 1 to 255 characters, or not at all",
			Location: "header.Idempotency-Key"}}
	}
	return nil
}

type createReply struct {
	Location string `header:"Location" doc:"Of the run."`
	Replayed string `header:"Idempotency-Replayed" doc:"true: the run was made by an earlier request with this key."`
	Body     struct {
		ID        uuid.UUID    `json:"runId" format:"uuid"`
		Status    crawl.Status `json:"status" enum:"PENDING,RUNNING,COMPLETED,FAILED,CANCELLED"`
		CreatedAt time.Time    `json:"createdAt"`
		StreamURL string       `json:"streamUrl" doc:"Where its events can be followed as server-sent events."`
	} `nameHint:"CreatedRun"`
}

func (a *api) createRun(ctx context.Context, in *createRequest) (*createReply, error) {
	b := in.Body.Value
	n := crawl.NewRun{AppPackage: b.AppPackage, DeviceConfig: b.DeviceConfig, Goal: b.Goal, Crawler: b.Crawler,
		IdempotencyKey: in.Key}
	if b.MaxSteps != nil {
		if n.MaxSteps = *b.MaxSteps; n.MaxSteps == 0 { // to the service 0 is "not given", which it was not
			return nil, a.refusal(ctx, "body",
				&crawl.FieldError{Field: "maxSteps", Problem: "is 0, must be between 1 and 100000"})
		}
	}
	r, created, err := a.cfg.Runs.Create(ctx, principalOf(ctx).Tenant, n)
	if err != nil {
		return nil, a.refusal(ctx, "body", err)
	}
	out := &createReply{Location: a.runURL(r.ID)}
	if !created {
		out.Replayed = "true"
	}
	out.Body.ID, out.Body.Status, out.Body.CreatedAt, out.Body.StreamURL = r.ID, r.Status, r.CreatedAt,
		a.runURL(r.ID)+"/stream"
	return out, nil
}

func (a *api) getRun(ctx context.Context, in *RunPath) (*runReply, error) {
	if _, err := a.reserve(ctx, 1, runSize); err != nil {
		return nil, a.refusal(ctx, "path", err)
	}
	r, err := a.cfg.Runs.Get(ctx, principalOf(ctx).Tenant, in.ID)
	if err != nil {
		return nil, a.refusal(ctx, "path", err)
	}
	return &runReply{a.view(r)}, nil
}

type listRequest struct {
	Status     crawl.Status `query:"status" enum:"PENDING,RUNNING,COMPLETED,FAILED,CANCELLED" doc:"Only runs with this status."`
	AppPackage string       `query:"appPackage" maxLength:"255" doc:"Only runs of this package."`
	Limit      int          `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"Runs a page."`
	Cursor     string       `query:"cursor" maxLength:"100" doc:"nextCursor of the page before."`
}

type listReply struct {
	Body struct {
		Items      []Run  `json:"items" nullable:"false"`
		NextCursor string `json:"nextCursor,omitempty" doc:"For the next page; missing at the end."`
	} `nameHint:"RunPage"`
}

func (a *api) listRuns(ctx context.Context, in *listRequest) (*listReply, error) {
	before, err := parseCursor(in.Cursor)
	if err != nil {
		return nil, a.refusal(ctx, "query", err)
	}
	room, err := a.reserve(ctx, in.Limit, runSize)
	if err != nil {
		return nil, a.refusal(ctx, "query", err)
	}
	f := crawl.RunFilter{Status: in.Status, AppPackage: in.AppPackage, Before: before, Limit: in.Limit}
	runs, next, err := a.cfg.Runs.List(ctx, principalOf(ctx).Tenant, f)
	if err != nil {
		return nil, a.refusal(ctx, "query", err)
	}
	out := &listReply{}
	out.Body.Items = make([]Run, len(runs))
	bytes := 0
	for i, r := range runs {
		out.Body.Items[i] = a.view(r)
		bytes += r.Size()
	}
	room.shrink(int64(bytes))
	out.Body.NextCursor = formatCursor(next)
	return out, nil
}

func (a *api) routeRuns() {
	create := a.operation("createRun", http.MethodPost, "/v1/runs", token.Write, http.StatusCreated, "Create a run",
		`Makes a PENDING run. With an Idempotency-Key that was used before, the answer is the run of that time,
as it is now, with the header Idempotency-Replayed; if
the request was another one, 409. Where too many runs of the tenant wait already,
429: try again when some have started. Crawlers known here: `+
			strings.Join(a.cfg.Runs.Crawlers(), ", ")+`.`,
		http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	Register(a.API, create, a.createRun)
	Register(a.API, a.operation("getRun", http.MethodGet, "/v1/runs/{id}", token.Read, http.StatusOK, "Show a run",
		"What it is for, how it stands, where its stream is.",
		http.StatusNotFound), a.getRun)
	Register(a.API, a.operation("listRuns", http.MethodGet, "/v1/runs", token.Read, http.StatusOK, "List runs",
		"The newest first, fewer than asked for where they are large. Runs that are created while one turns the pages "+
			"do not move the others.", http.StatusNotFound), a.listRuns)
}

type changeRequest struct {
	RunPath
	Body *body[nothing] `required:"false"`
}

// FailRun is the body of POST /v1/runs/{id}/fail.
type FailRun struct {
	Error string `json:"error" minLength:"1" maxLength:"10000" doc:"Why."`
}

type failRequest struct {
	RunPath
	Body body[FailRun]
}

// routeChanges registers what moves a run along.
func (a *api) routeChanges() {
	operation := func(name string, scope token.Scope, summary, details string) huma.Operation {
		return a.operation(name+"Run", http.MethodPost, "/v1/runs/{id}/"+name, scope, http.StatusOK, summary, details,
			http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	change := func(name string, scope token.Scope, summary, details string,
		do func(context.Context, string, uuid.UUID) (crawl.Run, error)) {
		Register(a.API, operation(name, scope, summary, details),
			func(ctx context.Context, in *changeRequest) (*runReply, error) { return a.changed(ctx, in.ID, do) })
	}
	change("start", token.Write, "Start a run",
		"Makes a PENDING run RUNNING and appends RUN_STARTED. A RUNNING run is returned as it is; one that has "+
			"ended: 409.",
		a.cfg.Runs.Start)
	change("complete", token.Write, "Complete a run",
		"Makes a RUNNING run COMPLETED and appends RUN_COMPLETED. A COMPLETED run is returned as it is; in any other "+
			"status, or if a worker crawls the run: 409.", a.cfg.Runs.Complete)
	change("cancel", token.Operate, "Cancel a run",
		"Makes a PENDING or RUNNING run CANCELLED and appends RUN_CANCELLED. A worker that crawls it stops within 5 "+
			"seconds. A CANCELLED run is returned as it is; one that COMPLETED or FAILED: 400.", a.cancelRun)
	fail := operation("fail", token.Write, "Fail a run",
		"Makes a RUNNING run FAILED and appends RUN_FAILED. A FAILED run is returned as it is, with the error of the "+
			"first time; in any other status: 409.")
	Register(a.API, fail, func(ctx context.Context, in *failRequest) (*runReply, error) {
		return a.changed(ctx, in.ID, func(ctx context.Context, tenant string, id uuid.UUID) (crawl.Run, error) {
			return a.cfg.Runs.Fail(ctx, tenant, id, in.Body.Value.Error)
		})
	})
}

func (a *api) changed(
	ctx context.Context, id uuid.UUID, do func(context.Context, string, uuid.UUID) (crawl.Run, error),
) (*runReply, error) {
	r, err := do(ctx, principalOf(ctx).Tenant, id)
	if err != nil {
		return nil, a.refusal(ctx, "body", workers(err))
	}
	return &runReply{a.view(r)}, nil
}

// cancelRun answers 400 where the others answer 409: the API that the seeds belong to does.
func (a *api) cancelRun(ctx context.Context, tenant string, id uuid.UUID) (crawl.Run, error) {
	r, err := a.cfg.Runs.Cancel(ctx, tenant, id)
	if state, ok := errors.AsType[*crawl.StateError](err); ok {
		return r, newProblem(http.StatusBadRequest, state.Error())
	}
	return r, err
}

// workers makes the refusal to do a worker's work a conflict with the run: the request has no field
// that could be corrected.
func workers(err error) error {
	if field, ok := errors.AsType[*crawl.FieldError](err); ok && field.Field == "crawler" {
		return newProblem(http.StatusConflict, field.Error())
	}
	return err
}

// A cursor of a list of runs is opaque to clients. It is base64url of a version, the microseconds
// of the last run's time, which are all that PostgreSQL keeps, and its id. It is not signed: it
// says where to go on, not what one may see.
const (
	cursorVersion = 1
	cursorSize    = 1 + 8 + 16
)

func formatCursor(c crawl.Cursor) string {
	if c == (crawl.Cursor{}) {
		return ""
	}
	b := binary.BigEndian.AppendUint64([]byte{cursorVersion}, uint64(c.CreatedAt.UnixMicro()))
	return base64.RawURLEncoding.EncodeToString(append(b, c.ID[:]...))
}

var errCursor = &crawl.FieldError{Field: "cursor", Problem: "is none that this API has given"}

func parseCursor(s string) (crawl.Cursor, error) {
	if s == "" {
		return crawl.Cursor{}, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != cursorSize || b[0] != cursorVersion {
		return crawl.Cursor{}, errCursor
	}
	c := crawl.Cursor{CreatedAt: time.UnixMicro(int64(binary.BigEndian.Uint64(b[1:]))).UTC(), ID: uuid.UUID(b[9:])}
	// Beyond what PostgreSQL's timestamps hold it would be an error of the database.
	if y := c.CreatedAt.Year(); y < 1 || y > 9999 {
		return crawl.Cursor{}, errCursor
	}
	return c, nil
}

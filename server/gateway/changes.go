package gateway

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/token"
)

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
func (g *Gateway) routeChanges() {
	change := func(name string, scope token.Scope, summary, details string,
		do func(context.Context, string, uuid.UUID) (crawl.Run, error)) {
		errs := []int{http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge,
			http.StatusUnsupportedMediaType}
		op := g.operation(name+"Run", http.MethodPost, "/v1/runs/{id}/"+name, scope, http.StatusOK, summary, details, errs...)
		huma.Register(g.api, op,
			func(ctx context.Context, in *changeRequest) (*runReply, error) { return g.changed(ctx, in.ID, do) })
	}
	change("start", token.Write, "Start a run",
		"Makes a PENDING run RUNNING and appends RUN_STARTED. A RUNNING run is returned as it is; one that has ended: 409.",
		g.cfg.Runs.Start)
	change("complete", token.Write, "Complete a run",
		"Makes a RUNNING run COMPLETED and appends RUN_COMPLETED. A COMPLETED run is returned as it is; in any other "+
			"status, or if a worker crawls the run: 409.", g.cfg.Runs.Complete)
	change("cancel", token.Operate, "Cancel a run",
		"Makes a PENDING or RUNNING run CANCELLED and appends RUN_CANCELLED. A worker that crawls it stops within 5 "+
			"seconds. A CANCELLED run is returned as it is; one that COMPLETED or FAILED: 400.", g.cancelRun)
	fail := g.operation("failRun", http.MethodPost, "/v1/runs/{id}/fail", token.Write, http.StatusOK, "Fail a run",
		"Makes a RUNNING run FAILED and appends RUN_FAILED. A FAILED run is returned as it is, with the error of the first "+
			"time; in any other status: 409.",
		http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	huma.Register(g.api, fail, func(ctx context.Context, in *failRequest) (*runReply, error) {
		return g.changed(ctx, in.ID, func(ctx context.Context, tenant string, id uuid.UUID) (crawl.Run, error) {
			return g.cfg.Runs.Fail(ctx, tenant, id, in.Body.Value.Error)
		})
	})
}

func (g *Gateway) changed(
	ctx context.Context, id uuid.UUID, do func(context.Context, string, uuid.UUID) (crawl.Run, error),
) (*runReply, error) {
	r, err := do(ctx, principalOf(ctx).Tenant, id)
	if err != nil {
		return nil, g.refusal(ctx, "body", workers(err))
	}
	return &runReply{g.view(r)}, nil
}

// cancelRun answers 400 where the others answer 409: the API that the seeds belong to does.
func (g *Gateway) cancelRun(ctx context.Context, tenant string, id uuid.UUID) (crawl.Run, error) {
	r, err := g.cfg.Runs.Cancel(ctx, tenant, id)
	if state, ok := errors.AsType[*crawl.StateError](err); ok {
		return r, newProblem(http.StatusBadRequest, state.Error())
	}
	return r, err
}

// workers makes the refusal to do a worker's work a conflict with the run: the request has no field that could be
// corrected.
func workers(err error) error {
	if field, ok := errors.AsType[*crawl.FieldError](err); ok && field.Field == "crawler" {
		return newProblem(http.StatusConflict, field.Error())
	}
	return err
}

package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/outboxrelay/outbox/internal/version"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/token"
)

const description = `Runs of a crawler and their events.

Errors are application/problem+json (RFC 9457); *errors* names each field that was refused.
Field names are taken literally, and unknown ones are refused.
A request that got no answer may be sent again: create with the same Idempotency-Key,
append with the same event ids, the others as they are.

Each request carries a token (Authorization: Bearer obx_…) of one tenant; a run of another tenant does not exist (404).
The scope that an operation needs is in
its security requirement: read, write, operate, consume, admin:read or admin:write; none includes another.
A token of tenant * has admin scopes alone, over all tenants.`

// api is what the operations share: all of the API but its streams.
type api struct {
	huma.API
	gate
	answers *answers
}

// newAPI returns the API without its operations. huma serves no pages of its own: its description
// is made at the first request, by whichever comes first, without a lock, and its documentation
// loads scripts from elsewhere.
func newAPI(g gate, mux *http.ServeMux) *api {
	cfg := huma.DefaultConfig("Outbox: crawl runs and streams", version.Of().Version)
	cfg.OpenAPIPath, cfg.DocsPath, cfg.SchemasPath = "", "", ""
	cfg.CreateHooks = nil // $schema links
	cfg.RejectUnknownQueryParameters = true
	format := huma.Format{Marshal: marshal, Unmarshal: unmarshal}
	// The latter: application/problem+json.
	cfg.Formats = map[string]huma.Format{"application/json": format, "json": format}
	cfg.Transformers = []huma.Transformer{refine}
	cfg.Info.Description = description
	cfg.Info.License = &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}
	cfg.Info.Contact = &huma.Contact{Name: "Outbox", URL: "https://github.com/outboxrelay/outbox"}
	cfg.Tags = []*huma.Tag{{Name: "Runs", Description: "Crawl runs and their events."},
		{Name: "Events", Description: "The log of a run, in pages."},
		{Name: "Subscriptions", Description: "Events of a log table, to be acknowledged."},
		{Name: "Admin", Description: "What operators see and do."},
		{Name: "Streams", Description: "Events as they commit, as Server-Sent Events."}}
	cfg.Servers = []*huma.Server{{URL: cmp.Or(g.cfg.PublicURL, "/")}}
	cfg.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		bearerScheme: {Type: "http", Scheme: "bearer", BearerFormat: "obx_<id>_<secret>",
			Description: "A token made by outbox token create."},
		ticketScheme: {Type: "apiKey", In: "query", Name: "ticket",
			Description: "For streams only: a ticket from POST /v1/stream-tickets."},
	}
	// The adapter adds the prefix of a path in Servers to no route: a proxy is expected to take it
	// away.
	a := &api{API: humago.New(mux, cfg), gate: g, answers: newAnswers(g.cfg.MaxAnswers)}
	a.UseMiddleware(g.guard)
	return a
}

// marshal writes a whole answer or nothing: the encoder writes once, when it has all of it.
func marshal(w io.Writer, v any) error {
	e := json.NewEncoder(whoever{w})
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

// whoever takes it for no error that the client has gone: there is nobody to tell.
type whoever struct{ io.Writer }

func (w whoever) Write(b []byte) (int, error) {
	_, _ = w.Writer.Write(b)
	return len(b), nil
}

// refine makes the errors that huma finds by itself look like ours. What is invalid is 400 and not
// 422 (the API of the seeds says 400), and no value is sent back, which can be megabytes.
func refine(hc huma.Context, _ string, v any) (any, error) {
	if own, ok := v.(*problem); ok {
		redactProblem(&own.ErrorModel)
		return v, nil
	}
	m, ok := v.(*huma.ErrorModel)
	c, ours := hc.(*apiContext)
	if !ok || !ours {
		return v, nil
	}
	switch m.Status {
	case http.StatusUnprocessableEntity, http.StatusInternalServerError: // or a body that ended early
		m.Status = http.StatusBadRequest
	case http.StatusRequestEntityTooLarge:
		m.Detail = fmt.Sprintf("the body is too large: at most %d bytes", hc.Operation().MaxBodyBytes-1)
	}
	m.Title = http.StatusText(m.Status)
	c.status = m.Status
	var texts []string
	for _, e := range m.Errors {
		e.Value = nil
		switch what, _, _ := strings.Cut(e.Message, ": "); {
		case strings.HasPrefix(e.Message, "invalid value: invalid UUID"):
			e.Message = "is not a UUID"
		case what == "invalid value" || what == "invalid character":
			e.Message = "cannot be read"
		}
		texts = append(texts, strings.TrimSpace(e.Location+" "+e.Message))
	}
	if len(texts) > 0 {
		m.Detail = strings.Join(texts, "; ")
	}
	redactProblem(m)
	return m, nil
}

// reserve makes room for the answer to a request, of up to n things of at most each bytes, before
// anything is read.
func (a *api) reserve(ctx context.Context, n int, each size) (*reservation, error) {
	var r *reservation
	var err error
	failed := outsideShare(ctx, func() {
		r, err = a.answers.reserve(ctx, principalOf(ctx).Tenant, min(int64(n)*int64(each), crawl.PageBytes))
	})
	if err != nil {
		return nil, err
	}
	if failed != nil {
		r.release()
		return nil, failed
	}
	ctx.Value(answerKey{}).(*answer).room = r
	return r, nil
}

// operation describes one that needs a scope and answers with status, or with one of the errors
// besides those that all have.
func (a *api) operation(
	id, method, path string, scope token.Scope, status int, summary, details string, errs ...int,
) huma.Operation {
	tag := "Runs"
	if strings.Contains(path, "/subscriptions") {
		tag = "Subscriptions"
	} else if strings.Contains(path, "/events") {
		tag = "Events"
	} else if strings.Contains(path, "stream") {
		tag = "Streams"
	}
	return huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary, Description: details, Tags: []string{tag},
		DefaultStatus: status,
		Security:      []map[string][]string{{bearerScheme: {string(scope)}}},
		Errors: append(errs, http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden,
			http.StatusServiceUnavailable),
		// To huma a body of exactly so many bytes is too large already. Its time to read one takes
		// the place of limited's, so it is the same.
		MaxBodyBytes: a.cfg.MaxRunBody + 1, BodyReadTimeout: readTimeout(a.cfg.Timeout),
		SkipValidateBody: true,
	}
}

// sent adds the names of the schemas of what is sent to us: there an unknown field is refused.
func sent(names map[string]bool, r huma.Registry, s *huma.Schema) {
	if s == nil {
		return
	}
	if name := strings.TrimPrefix(s.Ref, "#/components/schemas/"); s.Ref != "" && !names[name] {
		names[name] = true
		sent(names, r, r.SchemaFromRef(s.Ref))
	}
	sent(names, r, s.Items)
	for _, of := range s.Properties {
		sent(names, r, of)
	}
}

// operations are those of doc, each with its pattern for an http.ServeMux.
func operations(doc *huma.OpenAPI) iter.Seq2[string, *huma.Operation] {
	return func(yield func(string, *huma.Operation) bool) {
		for path, item := range doc.Paths {
			for method, op := range map[string]*huma.Operation{
				http.MethodGet: item.Get, http.MethodPost: item.Post,
				http.MethodPut: item.Put, http.MethodDelete: item.Delete,
			} {
				if op != nil && !yield(method+" "+path, op) {
					return
				}
			}
		}
	}
}

// routeDescription serves the description of the API to anybody.
func (a *api) routeDescription(mux *http.ServeMux) error {
	doc, requests := a.OpenAPI(), map[string]bool{}
	for _, op := range operations(doc) {
		delete(op.Responses, "422") // see refine
		if op.RequestBody != nil {
			for _, body := range op.RequestBody.Content {
				sent(requests, doc.Components.Schemas, body.Schema)
			}
		}
	}
	for name, schema := range doc.Components.Schemas.Map() {
		if !requests[name] {
			schema.AdditionalProperties = nil // an answer may get further fields without breaking those who check it
		}
		if name == "ErrorDetail" {
			delete(schema.Properties, "value") // see refine
		}
		if list := schema.Properties["errors"]; list != nil {
			list.Nullable = false // it is left out
		}
	}
	asJSON, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return fmt.Errorf("describe the API: %w", err)
	}
	asYAML, err := doc.YAML()
	if err != nil {
		return fmt.Errorf("describe the API: %w", err)
	}
	serve := func(contentType string, b []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", contentType)
			if _, err := w.Write(b); err != nil {
				a.gone(r, err)
			}
		}
	}
	mux.HandleFunc("GET /openapi.json", serve("application/json", asJSON))
	mux.HandleFunc("GET /openapi.yaml", serve("application/yaml", asYAML))
	return nil
}

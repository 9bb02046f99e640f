package gateway

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/token"
)

// anybody is who makes each request when authentication is off.
var anybody = token.Principal{Tenant: crawl.DefaultTenant, Scopes: token.Scopes}

// principal returns who opens a stream: by the Authorization header, else by a ticket, because an EventSource cannot
// send a header.
func (g *Gateway) principal(r *http.Request) (token.Principal, error) {
	if ticket := r.URL.Query().Get("ticket"); g.cfg.Auth != nil && ticket != "" && r.Header.Get("Authorization") == "" {
		return g.cfg.Auth.RedeemTicket(r.Context(), ticket)
	}
	return g.bearer(r.Context(), r)
}

// bearer returns who makes a request, by the Authorization header alone: a URL ends up in logs and histories.
func (g *Gateway) bearer(ctx context.Context, r *http.Request) (token.Principal, error) {
	if g.cfg.Auth == nil {
		return anybody, nil
	}
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return token.Principal{}, errNoToken
	}
	return g.cfg.Auth.Authenticate(ctx, strings.TrimSpace(text))
}

type principalKey struct{}

func principalOf(ctx context.Context) token.Principal {
	p, _ := ctx.Value(principalKey{}).(token.Principal) // guard has set it; without it, no tenant has any run
	return p
}

// guard lets a request of the API through whose principal has the operation's scope, and limits its time.
func (g *Gateway) guard(hc huma.Context, next func(huma.Context)) {
	ctx, cancel := context.WithTimeout(hc.Context(), g.cfg.Timeout)
	defer cancel()
	r, w := humago.Unwrap(hc)
	who, err := g.bearer(ctx, r)
	note(w, who, err)
	if err != nil {
		g.fail(w, r, err)
		return
	}
	for _, scope := range hc.Operation().Security[0][bearerScheme] {
		if !g.may(w, r, who, token.Scope(scope)) {
			return
		}
	}
	// A body that a page may send without asking first (text/plain, a form) is no JSON, whatever it says: that is what
	// the type is checked for.
	if sent := r.Header.Get("Content-Type"); sent != "" && hc.Operation().RequestBody != nil && r.ContentLength != 0 {
		if media, _, err := mime.ParseMediaType(sent); err != nil || media != "application/json" {
			g.problem(w, r, http.StatusUnsupportedMediaType,
				"the body must be JSON: send it with Content-Type: application/json")
			return
		}
	}
	a := &answer{}
	defer func() {
		if a.room != nil {
			a.room.release()
		}
	}()
	ctx = context.WithValue(context.WithValue(ctx, principalKey{}, who), answerKey{}, a)
	next(&apiContext{humaContext: huma.WithContext(hc, ctx)})
}

// may tells whether who has the scope, or answers that it is missing.
func (g *Gateway) may(w http.ResponseWriter, r *http.Request, who token.Principal, scope token.Scope) bool {
	if who.May(scope) {
		return true
	}
	if seen, ok := w.(*watched); ok {
		seen.refused = "lacks the scope " + string(scope)
	}
	g.write(w, r, lacks(string(scope)))
	return false
}

// note keeps for the log who makes a request, or who was refused and why. The answer does not say it: a revoked token
// is to look like one that never was.
func note(w http.ResponseWriter, who token.Principal, err error) {
	seen, ok := w.(*watched)
	if !ok {
		return
	}
	seen.token = who.Token
	if refusal, ok := errors.AsType[*token.Refusal](err); ok {
		seen.token, seen.refused = refusal.Token, refusal.Why
	} else if errors.Is(err, token.ErrUnauthorized) {
		seen.refused = "sent no token"
	}
}

type humaContext huma.Context

// apiContext lets the status of an error that huma has found be another than huma's: see refine.
type apiContext struct {
	humaContext
	status int // 0: huma's
}

// Unwrap fulfils what humago looks for.
func (c *apiContext) Unwrap() huma.Context { return c.humaContext }

// SetStatus fulfils huma.Context.
func (c *apiContext) SetStatus(code int) {
	if c.status != 0 {
		code = c.status
	}
	c.humaContext.SetStatus(code)
}

// reserve makes room for the answer to a request, of up to n things of at most each bytes, before anything is read.
func (g *Gateway) reserve(ctx context.Context, n int, each size) (*reservation, error) {
	r, err := g.answers.reserve(ctx, principalOf(ctx).Tenant, min(int64(n)*int64(each), crawl.PageBytes))
	if err != nil {
		return nil, err
	}
	ctx.Value(answerKey{}).(*answer).room = r
	return r, nil
}

type ticketRequest struct {
	Body *body[nothing] `required:"false"`
}

type ticketReply struct {
	Body struct {
		Ticket    string    `json:"ticket" doc:"For the query parameter ticket of a stream."`
		ExpiresAt time.Time `json:"expiresAt"`
	} `nameHint:"StreamTicket"`
}

func (g *Gateway) createTicket(ctx context.Context, _ *ticketRequest) (*ticketReply, error) {
	out := &ticketReply{}
	if g.cfg.Auth == nil {
		// Nobody will ask for it, so it is kept nowhere; a page that always gets a ticket works here too.
		out.Body.Ticket, _ = token.NewTicket()
		out.Body.ExpiresAt = time.Now().Add(token.TicketTTL).UTC()
		return out, nil
	}
	var err error
	if out.Body.Ticket, out.Body.ExpiresAt, err = g.cfg.Auth.NewTicket(ctx, principalOf(ctx)); err != nil {
		return nil, g.refusal(ctx, "body", err)
	}
	return out, nil
}

func (g *Gateway) routeTickets() {
	huma.Register(g.api, g.operation("createStreamTicket", http.MethodPost, "/v1/stream-tickets", token.Read,
		http.StatusCreated, "Make a ticket for a stream",
		`An EventSource of a browser cannot send a header. Give it a ticket in the URL instead: it opens one stream, once, within 30 seconds, with the rights of the token that made
it. A URL ends up in logs and histories; a ticket is worth nothing there. To reconnect, make another.`,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType), g.createTicket)
}

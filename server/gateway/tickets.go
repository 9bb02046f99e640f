package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/outboxrelay/outbox/server/token"
)

type ticketRequest struct {
	Body *body[nothing] `required:"false"`
}

type ticketReply struct {
	Body struct {
		Ticket    string    `json:"ticket" doc:"For the query parameter ticket of a stream."`
		ExpiresAt time.Time `json:"expiresAt"`
	} `nameHint:"StreamTicket"`
}

func (a *api) createTicket(ctx context.Context, _ *ticketRequest) (*ticketReply, error) {
	out := &ticketReply{}
	if a.cfg.Auth == nil {
		// Nobody will ask for it, so it is kept nowhere; a page that always gets a ticket works
		// here too.
		out.Body.Ticket, _ = token.NewTicket()
		out.Body.ExpiresAt = time.Now().Add(token.TicketTTL).UTC()
		return out, nil
	}
	var err error
	if out.Body.Ticket, out.Body.ExpiresAt, err = a.cfg.Auth.NewTicket(ctx, principalOf(ctx)); err != nil {
		return nil, a.refusal(ctx, "body", err)
	}
	return out, nil
}

func (a *api) routeTickets() {
	Register(a.API, a.operation("createStreamTicket", http.MethodPost, "/v1/stream-tickets", token.Read,
		http.StatusCreated, "Make a ticket for a stream",
		`An EventSource of a browser cannot send a header. Give it a ticket in the URL instead: it opens one stream,
once, within 30 seconds, with the rights of the token that made
it. A URL ends up in logs and histories; a ticket is worth nothing there. To reconnect, make another.`,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType), a.createTicket)
}

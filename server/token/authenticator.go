package token

import (
	"context"
	"crypto/subtle"
	"fmt"
	"slices"
	"time"
)

// Authenticator finds out who makes a request. It asks the store each time, so that a revoked token
// is refused at once: one look-up by primary key. It is safe for concurrent use.
type Authenticator struct {
	Store Store
}

// Authenticate returns whose token text is. ErrUnauthorized: nobody's. Any other error is the
// store's, and says nothing about the token.
func (a *Authenticator) Authenticate(ctx context.Context, text string) (Principal, error) {
	id, sum, err := Parse(text)
	if err != nil {
		return Principal{}, err
	}
	t, want, err := a.Store.ValidToken(ctx, id)
	if err != nil {
		return Principal{}, fmt.Errorf("look for token %s: %w", id, err)
	}
	// Hashes of random secrets could be compared in any way: who can choose the secret cannot
	// choose its hash byte by byte. It costs nothing.
	if subtle.ConstantTimeCompare(sum[:], want[:]) != 1 {
		return Principal{}, &Refusal{Token: id, Why: WrongSecret}
	}
	return Principal{Token: t.ID, Tenant: t.Tenant, Scopes: t.Scopes}, nil
}

// NewTicket makes a ticket with the rights of p, which came from Authenticate. It may be redeemed
// once, until it expires.
func (a *Authenticator) NewTicket(ctx context.Context, p Principal) (text string, expires time.Time, err error) {
	text, sum := NewTicket()
	if expires, err = a.Store.CreateTicket(ctx, p, sum, TicketTTL); err != nil {
		return "", expires, fmt.Errorf("make ticket: %w", err)
	}
	return text, expires, nil
}

// RedeemTicket returns who made the ticket, and makes it worthless. Errors as for Authenticate.
func (a *Authenticator) RedeemTicket(ctx context.Context, text string) (Principal, error) {
	sum, err := ParseTicket(text)
	if err != nil {
		return Principal{}, err
	}
	p, err := a.Store.RedeemTicket(ctx, sum)
	if err != nil {
		return Principal{}, fmt.Errorf("redeem ticket: %w", err)
	}
	return p, nil
}

// May tells whether p has the scope.
func (p Principal) May(s Scope) bool { return slices.Contains(p.Scopes, s) }

// Package token is who may use the HTTP API: bearer tokens, and tickets for what cannot send a
// header.
//
// Guaranteed: a secret is shown once, when it is made. What is stored is its SHA-256, which for 256
// random bits is as good as any slow hash. A token is good for one tenant and some scopes until it
// expires or is revoked. A ticket is good for one use within 30 seconds.
//
// Not guaranteed: that a stream ends at once with the token that opened it. A gateway asks which
// tokens are valid still, every few seconds.
//
// It contains no SQL and no HTTP: packages pgstore and sqlitestore keep the tokens, package gateway
// asks for them.
package token

import (
	"context"
	"errors"
	"time"
)

// Scope is something that a token allows.
type Scope string

// The scopes. Each is needed by itself: write does not include read.
const (
	Read    Scope = "read"    // look at runs, events and streams
	Write   Scope = "write"   // create runs, append events, start, complete, fail
	Operate Scope = "operate" // cancel runs, make and remove subscriptions
	Consume Scope = "consume" // get and acknowledge the events of subscriptions
	// What operators see and do, of the token's tenant, or of all if that is AllTenants.
	AdminRead  Scope = "admin:read"
	AdminWrite Scope = "admin:write"
)

// AllTenants is the tenant of a token that is no tenant's: it is for admin scopes alone.
const AllTenants = "*"

// Scopes are all of them.
var Scopes = []Scope{Read, Write, Operate, Consume, AdminRead, AdminWrite}

// TicketTTL is how long a ticket may be used.
const TicketTTL = 30 * time.Second

// ErrUnauthorized says that a token or ticket is malformed, unknown, expired, revoked or used.
// Which of them is told to nobody.
var ErrUnauthorized = errors.New("the token or ticket is not valid")

// Refusal is an ErrUnauthorized with what is known about it. It is for logs, not for answers.
type Refusal struct {
	Token string // the id of a well-formed token, whoever sent it
	Why   string // one of the constants
}

// Why a token or ticket is refused.
const (
	Malformed   = "malformed"
	Unknown     = "unknown"
	WrongSecret = "wrong secret"
	Expired     = "expired"
	Revoked     = "revoked"
	BadTicket   = "ticket unknown, used or expired, or its token is not valid"
)

func (r *Refusal) Error() string { return "the token or ticket is not valid: " + r.Why }

// Unwrap makes it an ErrUnauthorized.
func (r *Refusal) Unwrap() error { return ErrUnauthorized }

// Token is what is stored of a token.
type Token struct {
	ID        string     `json:"id"` // 12 characters of a-z and 2-7
	Name      string     `json:"name,omitempty"`
	Tenant    string     `json:"tenant"`
	Scopes    []Scope    `json:"scopes"`
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"` // nil: never
	RevokedAt *time.Time `json:"revokedAt,omitempty"`
}

// Principal is whoever makes a request.
type Principal struct {
	Token  string // its id; "": authentication is off
	Tenant string
	Scopes []Scope
}

// Store keeps tokens and tickets, by the database's clock. Packages pgstore and sqlitestore have
// one each.
type Store interface {
	// CreateToken inserts t with the SHA-256 of its secret, and records that actor did. ExpiresAt
	// is ttl from now; ttl 0: never. It returns ErrAlike if another tenant's name differs in case
	// only.
	CreateToken(ctx context.Context, actor string, t Token, sum [32]byte, ttl time.Duration) (Token, error)
	// ListTokens returns all tokens of a tenant, or of all tenants for "", newest first.
	ListTokens(ctx context.Context, tenant string) ([]Token, error)
	// RevokeToken makes a token invalid from now on, and records that actor did. An unknown or
	// revoked one: ErrUnknown.
	RevokeToken(ctx context.Context, actor, id string) (Token, error)
	// ValidToken returns a token that is neither expired nor revoked, and the SHA-256 of its
	// secret. Else a *Refusal.
	ValidToken(ctx context.Context, id string) (t Token, sum [32]byte, err error)
	// ValidTokens returns those of the ids whose tokens are neither expired nor revoked.
	ValidTokens(ctx context.Context, ids []string) ([]string, error)
	// CreateTicket inserts a ticket for p, by the SHA-256 of its secret, and removes some that have
	// expired. It returns when this one will.
	CreateTicket(ctx context.Context, p Principal, sum [32]byte, ttl time.Duration) (expires time.Time, err error)
	// RedeemTicket removes a ticket and returns whose it is, if it has not expired and its token is
	// still valid. Else a *Refusal.
	RedeemTicket(ctx context.Context, sum [32]byte) (Principal, error)
}

// ErrUnknown says that there is no such token, or that it is revoked already.
var ErrUnknown = errors.New("there is no such token")

// ErrAlike is the error of a token for a tenant whose name differs from another one in case only.
var ErrAlike = errors.New("a tenant whose name differs in case only")

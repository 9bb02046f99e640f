package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/store/pgschema"
	"github.com/outboxrelay/outbox/server/token"
)

// Tokens keeps the API's tokens and tickets in outbox_tokens and outbox_tickets. It is safe for concurrent use.
//
// A gateway's role can look tokens up and cannot make any: whoever breaks into a gateway does not leave with a token of
// his own.
type Tokens struct {
	pool *pgxpool.Pool
	sql  struct{ create, list, revoke, valid, validAll, ticket, redeem string }
}

var _ token.Store = (*Tokens)(nil)

// OpenTokens returns the tokens of a database after checking that it has the tables: if not, an *outbox.SchemaError.
func OpenTokens(ctx context.Context, pool *pgxpool.Pool) (*Tokens, error) {
	for table, column := range map[string]string{"outbox_tokens": "sha256", "outbox_tickets": "token_id"} {
		if err := pgschema.CheckTable(ctx, pool, table, []string{column}); err != nil {
			return nil, err
		}
	}
	s := &Tokens{pool: pool}
	var err error
	for name, dst := range map[string]*string{
		"token_create": &s.sql.create, "token_list": &s.sql.list, "token_revoke": &s.sql.revoke, "token_valid": &s.sql.valid,
		"token_valid_all": &s.sql.validAll,
		"token_ticket":    &s.sql.ticket, "token_redeem": &s.sql.redeem,
	} {
		if *dst, err = plain(name); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// CreateToken fulfils token.Store.
func (s *Tokens) CreateToken(
	ctx context.Context, actor string, t token.Token, sum [32]byte, ttl time.Duration,
) (token.Token, error) {
	var seconds *float64
	if ttl > 0 {
		n := ttl.Seconds()
		seconds = &n
	}
	created, err := s.one(ctx, s.sql.create, t.ID, t.Name, t.Tenant, t.Scopes, sum[:], seconds, actor)
	if err != nil {
		return created, fmt.Errorf("create token %s: %w", t.ID, err)
	}
	return created, nil
}

// ListTokens fulfils token.Store.
func (s *Tokens) ListTokens(ctx context.Context, tenant string) ([]token.Token, error) {
	rows, err := s.pool.Query(ctx, s.sql.list, pgtype.Text{String: tenant, Valid: tenant != ""})
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	tokens, err := pgx.CollectRows(rows, pgx.RowToStructByPos[token.Token])
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	return tokens, nil
}

// RevokeToken fulfils token.Store.
func (s *Tokens) RevokeToken(ctx context.Context, actor, id string) (token.Token, error) {
	t, err := s.one(ctx, s.sql.revoke, id, actor)
	if errors.Is(err, pgx.ErrNoRows) {
		err = token.ErrUnknown
	}
	if err != nil {
		return t, fmt.Errorf("revoke token %q: %w", id, err)
	}
	return t, nil
}

func (s *Tokens) one(ctx context.Context, sql string, args ...any) (token.Token, error) {
	rows, err := s.pool.Query(ctx, sql, args...)
	if err != nil {
		return token.Token{}, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[token.Token])
}

// ValidToken fulfils token.Store.
func (s *Tokens) ValidToken(ctx context.Context, id string) (t token.Token, sum [32]byte, err error) {
	var hash []byte
	var expired bool
	err = s.pool.QueryRow(ctx, s.sql.valid, id).Scan(&t.ID, &t.Name, &t.Tenant, &t.Scopes, &t.CreatedAt, &t.ExpiresAt,
		&t.RevokedAt, &hash, &expired)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		err = &token.Refusal{Token: id, Why: token.Unknown}
	case err != nil:
		err = fmt.Errorf("read token: %w", err)
	case t.RevokedAt != nil:
		err = &token.Refusal{Token: id, Why: token.Revoked}
	case expired:
		err = &token.Refusal{Token: id, Why: token.Expired}
	default:
		copy(sum[:], hash) // 32 bytes, by the table's check
		return t, sum, nil
	}
	return token.Token{}, sum, err
}

// ValidTokens fulfils token.Store.
func (s *Tokens) ValidTokens(ctx context.Context, ids []string) ([]string, error) {
	rows, err := s.pool.Query(ctx, s.sql.validAll, ids)
	if err != nil {
		return nil, fmt.Errorf("ask which tokens are valid: %w", err)
	}
	valid, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("ask which tokens are valid: %w", err)
	}
	return valid, nil
}

// CreateTicket fulfils token.Store. The tenant is the token's, and ttl at most a minute, by the table's check.
func (s *Tokens) CreateTicket(
	ctx context.Context, p token.Principal, sum [32]byte, ttl time.Duration,
) (expires time.Time, err error) {
	if err = s.pool.QueryRow(ctx, s.sql.ticket, sum[:], p.Token, p.Scopes, ttl.Seconds()).Scan(&expires); err != nil {
		return expires, fmt.Errorf("create ticket: %w", err)
	}
	return expires, nil
}

// RedeemTicket fulfils token.Store.
func (s *Tokens) RedeemTicket(ctx context.Context, sum [32]byte) (p token.Principal, err error) {
	err = s.pool.QueryRow(ctx, s.sql.redeem, sum[:]).Scan(&p.Token, &p.Tenant, &p.Scopes)
	if errors.Is(err, pgx.ErrNoRows) {
		return p, &token.Refusal{Why: token.BadTicket}
	}
	if err != nil {
		return p, fmt.Errorf("delete ticket: %w", err)
	}
	return p, nil
}

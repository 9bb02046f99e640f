package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/server/token"
)

// Tokens keeps the API's tokens and tickets in outbox_tokens and outbox_tickets. It is safe for
// concurrent use.
type Tokens struct{ db Database }

var _ token.Store = (*Tokens)(nil)

// OpenTokens returns the tokens of a database after checking that it has the tables: if not, an
// *outbox.SchemaError.
func OpenTokens(ctx context.Context, db Database) (*Tokens, error) {
	for table, column := range map[string]string{"outbox_tokens": "sha256", "outbox_tickets": "token_id"} {
		if err := db.Check(ctx, table, []string{column}); err != nil {
			return nil, err
		}
	}
	return &Tokens{db}, nil
}

// tokens is what the files token_*.sql are given.
type tokens struct {
	token.Token
	IDs          []string
	Sum          []byte
	Scopes       []string
	Now          time.Time
	Until        time.Time
	Microseconds int64 // until then, where the database's clock says when; 0: never
}

func until(now time.Time, ttl time.Duration) tokens {
	return tokens{Now: now, Until: now.Add(ttl), Microseconds: ttl.Microseconds()}
}

func names(scopes []token.Scope) []string {
	list := make([]string, len(scopes))
	for i, s := range scopes {
		list[i] = string(s)
	}
	return list
}

// CreateToken implements token.Store.
func (s *Tokens) CreateToken(
	ctx context.Context, actor string, t token.Token, sum [32]byte, ttl time.Duration,
) (created token.Token, err error) {
	q := until(time.Now(), ttl)
	q.Token, q.Scopes, q.Sum = t, names(t.Scopes), sum[:]
	found := false
	err = s.db.Change(ctx, "", func(tx Tx) error {
		var alike string
		err := tx.Run(ctx, Ask{"token_alike", q, func(row Row) error { return row.Scan(&alike) }})
		if err != nil {
			return err
		}
		if alike != "" {
			return fmt.Errorf("tenant %q: %w has tokens: %q; write its name exactly, or choose another name",
				t.Tenant, token.ErrAlike, alike)
		}
		if err := tx.Run(ctx, Ask{"token_create", q, scanToken(&found, &created)}); err != nil {
			return err
		}
		return s.record(ctx, tx, actor, "token create", created, map[string]any{"tenant": t.Tenant, "name": t.Name,
			"scopes": t.Scopes, "expires_at": created.ExpiresAt})
	})
	if err != nil {
		return created, fmt.Errorf("create token %s: %w", t.ID, err)
	}
	return created, nil
}

// ListTokens implements token.Store.
func (s *Tokens) ListTokens(ctx context.Context, tenant string) (list []token.Token, err error) {
	q := tokens{Token: token.Token{Tenant: tenant}}
	err = s.db.Read(ctx, "", Ask{"token_list", q, func(row Row) error {
		var t token.Token
		found := false
		err := scanToken(&found, &t)(row)
		list = append(list, t)
		return err
	}})
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	return list, nil
}

// RevokeToken implements token.Store.
func (s *Tokens) RevokeToken(ctx context.Context, actor, id string) (t token.Token, err error) {
	q := until(time.Now(), 0)
	q.ID = id
	err = s.db.Change(ctx, "", func(tx Tx) error {
		found := false
		if err := tx.Run(ctx, Ask{"token_revoke", q, scanToken(&found, &t)}); err != nil {
			return err
		}
		if !found {
			return token.ErrUnknown
		}
		return s.record(ctx, tx, actor, "token revoke", t, map[string]any{"tenant": t.Tenant, "name": t.Name})
	})
	if err != nil {
		return t, fmt.Errorf("revoke token %q: %w", id, err)
	}
	return t, nil
}

// action is what token_audit.sql is given.
type action struct {
	ID             uuid.UUID
	Now            time.Time
	Actor, Action  string
	Filter, Detail string // JSON
}

// record commits, with what actor did to a token written down in outbox_audit.
func (s *Tokens) record(
	ctx context.Context, tx Tx, actor, what string, t token.Token, about map[string]any,
) (err error) {
	a := action{Now: time.Now(), Actor: actor, Action: what}
	if a.ID, err = outbox.NewID(); err != nil {
		return err
	}
	for dst, v := range map[*string]map[string]any{&a.Filter: {"token": t.ID}, &a.Detail: about} {
		text, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("encode the record: %w", err)
		}
		*dst = string(text)
	}
	return tx.Commit(ctx, Ask{Name: "token_audit", Data: a})
}

// ValidToken implements token.Store.
func (s *Tokens) ValidToken(ctx context.Context, id string) (t token.Token, sum [32]byte, err error) {
	q := until(time.Now(), 0)
	q.ID = id
	var hash []byte
	found, expired := false, false
	err = s.db.Read(ctx, "", Ask{"token_valid", q, scanToken(&found, &t, &hash, &expired)})
	switch {
	case err != nil:
		err = fmt.Errorf("read token: %w", err)
	case !found:
		err = &token.Refusal{Token: id, Why: token.Unknown}
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

// ValidTokens implements token.Store.
func (s *Tokens) ValidTokens(ctx context.Context, ids []string) (valid []string, err error) {
	q := until(time.Now(), 0)
	q.IDs = ids
	err = s.db.Read(ctx, "", Ask{"token_valid_all", q, func(row Row) error {
		var id string
		err := row.Scan(&id)
		valid = append(valid, id)
		return err
	}})
	if err != nil {
		return nil, fmt.Errorf("ask which tokens are valid: %w", err)
	}
	return valid, nil
}

// CreateTicket implements token.Store. The tenant is the token's, and ttl at most a minute, by the
// table's check. With each that is made up to ten that have expired go, so that the table never
// holds more than are being made.
func (s *Tokens) CreateTicket(
	ctx context.Context, p token.Principal, sum [32]byte, ttl time.Duration,
) (expires time.Time, err error) {
	q := until(time.Now(), ttl)
	q.ID, q.Sum, q.Scopes = p.Token, sum[:], names(p.Scopes)
	var at *time.Time
	err = s.db.Write(ctx, "", Ask{Name: "token_sweep", Data: q},
		Ask{"token_ticket", q, func(row Row) error { return row.Scan(&moment{&at}) }})
	if err != nil {
		return expires, fmt.Errorf("create ticket: %w", err)
	}
	return required(at), nil
}

// RedeemTicket implements token.Store. What a ticket allows is what its token allows too: whoever
// can insert tickets could else name any tenant and scope.
func (s *Tokens) RedeemTicket(ctx context.Context, sum [32]byte) (p token.Principal, err error) {
	q := until(time.Now(), 0)
	q.Sum = sum[:]
	var scopes string
	found := false
	err = s.db.Write(ctx, "", Ask{"token_redeem", q, scanned(&found, &p.Token, &p.Tenant, &scopes)})
	if err == nil && found {
		p.Scopes, err = readScopes(scopes)
	}
	switch {
	case err != nil:
		return token.Principal{}, fmt.Errorf("delete ticket: %w", err)
	case len(p.Scopes) == 0:
		return token.Principal{}, &token.Refusal{Why: token.BadTicket}
	}
	return p, nil
}

// scanToken reads the columns of a token, and what comes after them.
func scanToken(found *bool, t *token.Token, more ...any) func(Row) error {
	return func(row Row) (err error) {
		var scopes string
		var created *time.Time
		*found = true
		if err := row.Scan(append([]any{&t.ID, &t.Name, &t.Tenant, &scopes, &moment{&created}, &moment{&t.ExpiresAt},
			&moment{&t.RevokedAt}}, more...)...); err != nil {
			return err
		}
		t.CreatedAt = required(created)
		t.Scopes, err = readScopes(scopes)
		return err
	}
}

func readScopes(list string) (scopes []token.Scope, err error) {
	if err := json.Unmarshal([]byte(list), &scopes); err != nil {
		return nil, errors.Join(errors.New("read scopes"), err)
	}
	return scopes, nil
}

package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
	"github.com/outboxrelay/outbox/server/token"
	"github.com/outboxrelay/outbox/store/sqlite"
)

// Tokens keeps the API's tokens and tickets in outbox_tokens and outbox_tickets. It is safe for concurrent use.
type Tokens struct {
	db  *sqlite.DB
	sql struct{ create, list, revoke, audit, valid, validAll, validNow, ticket, sweep, redeem *sql.Stmt }
}

var _ token.Store = (*Tokens)(nil)

// OpenTokens returns the tokens of a file after checking that it has the tables: if not, an *outbox.SchemaError. It
// waits for a transaction that writes.
func OpenTokens(ctx context.Context, db *sqlite.DB) (*Tokens, error) {
	for table, column := range map[string]string{"outbox_tokens": "sha256", "outbox_tickets": "token_id"} {
		if err := checkTable(ctx, db, table, []string{column}); err != nil {
			return nil, err
		}
	}
	s := &Tokens{db: db}
	err := compile(ctx, db.Reads(), nil,
		map[string]**sql.Stmt{"token_list": &s.sql.list, "token_valid": &s.sql.valid, "token_valid_all": &s.sql.validAll})
	if err != nil {
		return nil, err
	}
	err = compile(ctx, db.Writes(), nil, map[string]**sql.Stmt{
		"token_create": &s.sql.create, "token_revoke": &s.sql.revoke, "token_audit": &s.sql.audit,
		"token_valid":  &s.sql.validNow,
		"token_ticket": &s.sql.ticket, "token_sweep": &s.sql.sweep, "token_redeem": &s.sql.redeem,
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// CheckGateway is for stores with roles: whoever has opened the file may do everything.
func (s *Tokens) CheckGateway(context.Context) error { return nil }

// CreateToken fulfils token.Store.
func (s *Tokens) CreateToken(
	ctx context.Context, actor string, t token.Token, sum [32]byte, ttl time.Duration,
) (created token.Token, err error) {
	err = sqlitefile.InTx(ctx, s.db, func(tx *sql.Tx) error {
		now := time.Now()
		var expires any
		if ttl > 0 {
			expires = sqlitetime.Stamp(now.Add(ttl))
		}
		created, err = scanToken(tx.StmtContext(ctx, s.sql.create).QueryRowContext(ctx, t.ID, t.Name, t.Tenant,
			scopesText(t.Scopes), sum[:], sqlitetime.Stamp(now), expires))
		if err != nil {
			return err
		}
		detail := map[string]any{"tenant": t.Tenant, "name": t.Name, "scopes": t.Scopes, "expires_at": created.ExpiresAt}
		return s.record(ctx, tx, actor, "token create", t.ID, detail)
	})
	if err != nil {
		return created, fmt.Errorf("create token %s: %w", t.ID, sqlitefile.Explain(err))
	}
	return created, nil
}

// ListTokens fulfils token.Store.
func (s *Tokens) ListTokens(ctx context.Context, tenant string) (tokens []token.Token, err error) {
	err = query(ctx, s.sql.list, func(rows *sql.Rows) error {
		t, err := scanToken(rows)
		tokens = append(tokens, t)
		return err
	}, tenant)
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	return tokens, nil
}

// RevokeToken fulfils token.Store.
func (s *Tokens) RevokeToken(ctx context.Context, actor, id string) (t token.Token, err error) {
	err = sqlitefile.InTx(ctx, s.db, func(tx *sql.Tx) error {
		t, err = scanToken(tx.StmtContext(ctx, s.sql.revoke).QueryRowContext(ctx, id, sqlitetime.Stamp(time.Now())))
		if err != nil {
			return err
		}
		return s.record(ctx, tx, actor, "token revoke", t.ID, map[string]any{"tenant": t.Tenant, "name": t.Name})
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = token.ErrUnknown
	}
	if err != nil {
		return t, fmt.Errorf("revoke token %q: %w", id, sqlitefile.Explain(err))
	}
	return t, nil
}

// record writes down in outbox_audit what actor did to a token, in the transaction in which it is done.
func (s *Tokens) record(ctx context.Context, tx *sql.Tx, actor, action, id string, about map[string]any) error {
	which, err := json.Marshal(map[string]string{"token": id})
	if err != nil {
		return fmt.Errorf("encode the record: %w", err)
	}
	detail, err := json.Marshal(about)
	if err != nil {
		return fmt.Errorf("encode the record: %w", err)
	}
	entry, err := outbox.NewID()
	if err != nil {
		return err
	}
	if _, err := tx.StmtContext(ctx, s.sql.audit).ExecContext(ctx, entry.String(), sqlitetime.Stamp(time.Now()), actor,
		action, string(which), string(detail)); err != nil {
		return fmt.Errorf("record it in outbox_audit: %w", err)
	}
	return nil
}

// ValidTokens fulfils token.Store.
func (s *Tokens) ValidTokens(ctx context.Context, ids []string) (valid []string, err error) {
	err = query(ctx, s.sql.validAll, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		valid = append(valid, id)
		return err
	}, jsonList(ids), sqlitetime.Stamp(time.Now()))
	if err != nil {
		return nil, fmt.Errorf("ask which tokens are valid: %w", err)
	}
	return valid, nil
}

// ValidToken fulfils token.Store.
func (s *Tokens) ValidToken(ctx context.Context, id string) (token.Token, [32]byte, error) {
	t, sum, err := valid(ctx, s.sql.valid, id)
	if err != nil && !errors.Is(err, token.ErrUnauthorized) {
		err = fmt.Errorf("read token: %w", sqlitefile.Explain(err))
	}
	return t, sum, err
}

func valid(ctx context.Context, stmt *sql.Stmt, id string) (t token.Token, sum [32]byte, err error) {
	var hash []byte
	var expired bool
	t, err = scanToken(stmt.QueryRowContext(ctx, id, sqlitetime.Stamp(time.Now())), &hash, &expired)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		err = &token.Refusal{Token: id, Why: token.Unknown}
	case err != nil:
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

// CreateTicket fulfils token.Store. The tenant is the token's.
func (s *Tokens) CreateTicket(
	ctx context.Context, p token.Principal, sum [32]byte, ttl time.Duration,
) (expires time.Time, err error) {
	err = sqlitefile.InTx(ctx, s.db, func(tx *sql.Tx) error {
		now := time.Now()
		if _, err := tx.StmtContext(ctx, s.sql.sweep).ExecContext(ctx, sqlitetime.Stamp(now)); err != nil {
			return err
		}
		expires = now.Add(ttl).UTC()
		_, err := tx.StmtContext(ctx, s.sql.ticket).ExecContext(ctx, sum[:], p.Token, scopesText(p.Scopes),
			sqlitetime.Stamp(now), sqlitetime.Stamp(expires))
		return err
	})
	if err != nil {
		return expires, fmt.Errorf("create ticket: %w", sqlitefile.Explain(err))
	}
	return expires, nil
}

// RedeemTicket fulfils token.Store. What a ticket allows is what its token allows too: whoever can make tickets could
// else name any scope.
func (s *Tokens) RedeemTicket(ctx context.Context, sum [32]byte) (p token.Principal, err error) {
	err = sqlitefile.InTx(ctx, s.db, func(tx *sql.Tx) error {
		var id, scopes string
		err := tx.StmtContext(ctx, s.sql.redeem).QueryRowContext(ctx, sum[:], sqlitetime.Stamp(time.Now())).Scan(&id, &scopes)
		if errors.Is(err, sql.ErrNoRows) {
			return &token.Refusal{Why: token.BadTicket}
		}
		if err != nil {
			return err
		}
		t, _, err := valid(ctx, tx.StmtContext(ctx, s.sql.validNow), id)
		if err != nil {
			return err
		}
		asked, err := readScopes(scopes)
		if err != nil {
			return err
		}
		allowed := slices.DeleteFunc(asked, func(s token.Scope) bool { return !slices.Contains(t.Scopes, s) })
		if len(allowed) == 0 {
			return &token.Refusal{Why: token.BadTicket}
		}
		p = token.Principal{Token: t.ID, Tenant: t.Tenant, Scopes: allowed}
		return nil
	})
	switch {
	case errors.Is(err, token.ErrUnauthorized):
		return token.Principal{}, err
	case err != nil:
		return token.Principal{}, fmt.Errorf("delete ticket: %w", sqlitefile.Explain(err))
	}
	return p, nil
}

// scanToken reads the columns of a token, and what comes after them.
func scanToken(row interface{ Scan(...any) error }, more ...any) (t token.Token, err error) {
	var scopes, created string
	var expires, revoked sql.NullString
	if err := row.Scan(append([]any{&t.ID, &t.Name, &t.Tenant, &scopes, &created, &expires, &revoked},
		more...)...); err != nil {
		return t, err
	}
	var problems [4]error
	t.Scopes, problems[0] = readScopes(scopes)
	t.CreatedAt, problems[1] = sqlitetime.Parse(created)
	t.ExpiresAt, problems[2] = sqlitetime.ParseNull(expires)
	t.RevokedAt, problems[3] = sqlitetime.ParseNull(revoked)
	return t, errors.Join(problems[:]...)
}

func scopesText(scopes []token.Scope) string {
	texts := make([]string, len(scopes))
	for i, s := range scopes {
		texts[i] = string(s)
	}
	return jsonList(texts)
}

func readScopes(s string) (scopes []token.Scope, err error) {
	if err := json.Unmarshal([]byte(s), &scopes); err != nil {
		return nil, fmt.Errorf("read scopes: %w", err)
	}
	return scopes, nil
}

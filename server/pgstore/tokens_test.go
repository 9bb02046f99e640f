package pgstore

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/server/token"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

func openTokens(t *testing.T) (*Tokens, *pgxpool.Pool) {
	t.Helper()
	pool := migrated(t)
	return need(OpenTokens(t.Context(), pool))(t), pool
}

// newToken makes one and returns its text.
func newToken(t *testing.T, s *Tokens, tenant string, ttl time.Duration, scopes ...token.Scope) (token.Token, string) {
	t.Helper()
	made, text, sum, err := token.New(tenant, "test", scopes)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := s.CreateToken(t.Context(), "test", made, sum, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return stored, text
}

func TestOpenTokensNamesTheMigration(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	exec(t, pool, "DROP TABLE outbox_tickets")
	_, err := OpenTokens(t.Context(), pool)
	var schema *outbox.SchemaError
	if !errors.As(err, &schema) || schema.Table != "outbox_tickets" ||
		!strings.Contains(err.Error(), "outbox migrate up --set core") {
		t.Errorf("got %v", err)
	}
}

// A gateway serves with what roles.sql gives it, and cannot make tokens or change them.
func TestTokensAsGateway(t *testing.T) {
	t.Parallel()
	owner, pool := openTokens(t)
	if err := migrations.ApplyRoles(t.Context(), pool.Config().ConnString()); err != nil {
		t.Fatal(err)
	}
	_, text := newToken(t, owner, "shop", 0, token.Read)
	gateway, err := pgxpool.New(t.Context(), pool.Config().ConnString()+"&role=outbox_gateway")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gateway.Close)
	s := need(OpenTokens(t.Context(), gateway))(t)
	auth := &token.Authenticator{Store: s}
	p, err := auth.Authenticate(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	ticket, _, err := auth.NewTicket(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := auth.RedeemTicket(t.Context(), ticket); err != nil {
		t.Fatal(err)
	}
	made, _, sum, err := token.New("shop", "", token.Scopes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateToken(t.Context(), "test", made, sum, 0); err == nil || !strings.Contains(err.Error(), "42501") {
		t.Errorf("the gateway made a token: %v", err)
	}
	if _, err := s.RevokeToken(t.Context(), "test", p.Token); err == nil || !strings.Contains(err.Error(), "42501") {
		t.Errorf("the gateway changed a token: %v", err)
	}

	// Nor a ticket that allows more than its token, or that lasts.
	sum = [32]byte{1}
	const insert = "INSERT INTO outbox_tickets (sha256, token_id, scopes, expires_at) VALUES ($1, $2, $3, now() + " +
		"$4::interval)"
	if _, err := gateway.Exec(t.Context(), insert, sum[:], p.Token, []string{"read", "operate"}, "20 s"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.RedeemTicket(t.Context(), sum); err != nil || got.Tenant != "shop" ||
		!slices.Equal(got.Scopes, []token.Scope{token.Read}) {
		t.Errorf("redeemed %+v, %v", got, err)
	}
	if _, err := gateway.Exec(t.Context(), insert, sum[:], p.Token, []string{"operate"}, "20 s"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.RedeemTicket(t.Context(), sum); !errors.Is(err, token.ErrUnauthorized) {
		t.Errorf("of scopes that its token has not: redeemed %+v, %v", got, err)
	}
	for state, forged := range map[string]string{
		"23514": "INSERT INTO outbox_tickets (sha256, token_id, scopes, expires_at) VALUES (sha256('x'), $1, '{read}', " +
			"'infinity')",
		"42501": "INSERT INTO outbox_tickets (sha256, token_id, scopes, created_at, expires_at) VALUES (sha256('x'), $1, " +
			"'{read}', 'infinity', 'infinity')",
	} {
		if _, err := gateway.Exec(t.Context(), forged, p.Token); err == nil || !strings.Contains(err.Error(), state) {
			t.Errorf("%s: %v", forged, err)
		}
	}
}

package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/server/token"
)

func tokenTests() []test {
	return []test{
		{name: "keeps tokens until they expire or are revoked", run: keepsTokens},
		{name: "says why a token is refused", run: saysWhyRefused},
		{name: "tells which tokens are valid still", run: tellsWhichAreValid},
		{name: "records who made and revoked tokens", run: recordsTokens},
		{name: "redeems a ticket once", run: redeemsTicketOnce},
		{name: "redeems no ticket whose token is over", run: redeemsNoTicketOfOverToken},
		{name: "gives a ticket no more than its token has", run: givesTicketNoMore},
		{name: "sweeps tickets that nobody used", run: sweepsTickets},
		{name: "refuses a tenant whose name differs from another one in case only", run: refusesAlikeTenant},
		{name: "passes the database's error on", run: passesErrorOn},
	}
}

// newToken makes a token and returns what its user sends.
func newToken(
	t *testing.T, s token.Store, tenant string, ttl time.Duration, scopes ...token.Scope,
) (token.Token, string) {
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

func newTicket(t *testing.T, s token.Store, of token.Token) string {
	t.Helper()
	text, expires, err := (&token.Authenticator{Store: s}).NewTicket(t.Context(),
		token.Principal{Token: of.ID, Tenant: of.Tenant, Scopes: of.Scopes})
	if left := time.Until(expires); err != nil || left < 20*time.Second || left > 40*time.Second {
		t.Fatalf("expires in %s, %v", left, err)
	}
	return text
}

func refusesAlikeTenant(t *testing.T, h *suite) {
	s := h.Tokens(t)
	newToken(t, s, "shop", 0, token.Read)
	newToken(t, s, "shop", 0, token.Read)
	newToken(t, s, "shop ", 0, token.Read)
	for _, tenant := range []string{"Shop", "SHOP "} {
		made, _, sum, err := token.New(tenant, "test", []token.Scope{token.Read})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.CreateToken(t.Context(), "test", made, sum, 0); !errors.Is(err, token.ErrAlike) {
			t.Errorf("a token of tenant %q: got error %v, want ErrAlike", tenant, err)
		}
	}
}

func keepsTokens(t *testing.T, h *suite) {
	s := h.Tokens(t)
	auth := &token.Authenticator{Store: s}
	made, text := newToken(t, s, "shop", time.Hour, token.Write, token.Read)
	if left := time.Until(*made.ExpiresAt); left < 59*time.Minute || left > 61*time.Minute || made.RevokedAt != nil ||
		time.Since(made.CreatedAt).Abs() > time.Hour {
		t.Errorf("made %+v", made)
	}
	p, err := auth.Authenticate(t.Context(), text)
	if err != nil || p.Token != made.ID || p.Tenant != "shop" || !p.May(token.Read) || !p.May(token.Write) ||
		p.May(token.Operate) {
		t.Fatalf("authenticated %+v, %v", p, err)
	}
	other, otherText := newToken(t, s, "other", 0, token.Operate)
	if other.ExpiresAt != nil {
		t.Errorf("made %+v", other)
	}
	secret := text[strings.LastIndex(text, "_"):]
	for name, wrong := range map[string]string{
		"malformed":        text + "x",
		"unknown":          "obx_aaaaaaaaaaaa" + secret,
		"another's secret": "obx_" + other.ID + secret,
		"a ticket":         "obt" + secret,
	} {
		if p, err := auth.Authenticate(t.Context(), wrong); !errors.Is(err, token.ErrUnauthorized) || p.Tenant != "" {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}

	h.Exec(t, "UPDATE outbox_tokens SET expires_at = ?1 WHERE id = ?2", time.Now().Add(-time.Second), made.ID)
	if _, err := auth.Authenticate(t.Context(), text); !errors.Is(err, token.ErrUnauthorized) {
		t.Errorf("expired: %v", err)
	}
	if _, err := auth.Authenticate(t.Context(), otherText); err != nil {
		t.Errorf("before it is revoked: %v", err)
	}
	revoked, err := s.RevokeToken(t.Context(), "test", other.ID)
	if err != nil || revoked.RevokedAt == nil {
		t.Errorf("revoked %+v, %v", revoked, err)
	}
	if _, err := auth.Authenticate(t.Context(), otherText); !errors.Is(err, token.ErrUnauthorized) {
		t.Errorf("revoked: %v", err)
	}
	for _, id := range []string{other.ID, "aaaaaaaaaaaa", "no id"} {
		if _, err := s.RevokeToken(t.Context(), "test", id); !errors.Is(err, token.ErrUnknown) {
			t.Errorf("revoke %s: %v", id, err)
		}
	}
	all, allErr := s.ListTokens(t.Context(), "")
	mine, err := s.ListTokens(t.Context(), "shop")
	if allErr != nil || len(all) != 2 || all[0].ID != other.ID || all[0].RevokedAt == nil ||
		err != nil || len(mine) != 1 || mine[0].ID != made.ID ||
		!slices.Equal(mine[0].Scopes, []token.Scope{token.Read, token.Write}) || mine[0].Name != "test" {
		t.Errorf("listed %+v, %v, and %+v, %v", all, allErr, mine, err)
	}
}

// The reason is for the log of a gateway.
func saysWhyRefused(t *testing.T, h *suite) {
	s := h.Tokens(t)
	auth := &token.Authenticator{Store: s}
	made, text := newToken(t, s, "shop", time.Hour, token.Read)
	wants := func(text, id, why string) {
		t.Helper()
		_, err := auth.Authenticate(t.Context(), text)
		refusal, ok := errors.AsType[*token.Refusal](err)
		if !ok || refusal.Token != id || refusal.Why != why || !errors.Is(err, token.ErrUnauthorized) {
			t.Errorf("got %v, want %q of %q", err, why, id)
		}
	}
	_, another := newToken(t, s, "shop", time.Hour, token.Read)
	wants("x"+text, "", token.Malformed)
	wants("obx_"+made.ID+another[strings.LastIndex(another, "_"):], made.ID, token.WrongSecret)
	wants("obx_aaaaaaaaaaaa"+text[strings.LastIndex(text, "_"):], "aaaaaaaaaaaa", token.Unknown)
	h.Exec(t, "UPDATE outbox_tokens SET expires_at = ?1 WHERE id = ?2", time.Now().Add(-time.Second), made.ID)
	wants(text, made.ID, token.Expired)
	if _, err := s.RevokeToken(t.Context(), "test", made.ID); err != nil {
		t.Fatal(err)
	}
	wants(text, made.ID, token.Revoked)
	ticket, _ := token.NewTicket()
	if _, err := auth.RedeemTicket(t.Context(), ticket); !errors.Is(err, token.ErrUnauthorized) ||
		!strings.Contains(err.Error(), token.BadTicket) {
		t.Errorf("ticket: %v", err)
	}
}

// A gateway asks for all tokens that have streams open.
func tellsWhichAreValid(t *testing.T, h *suite) {
	s := h.Tokens(t)
	var ids []string
	for range 4 {
		made, _ := newToken(t, s, "shop", time.Hour, token.Read)
		ids = append(ids, made.ID)
	}
	never, _ := newToken(t, s, "other", 0, token.Read)
	h.Exec(t, "UPDATE outbox_tokens SET expires_at = ?1 WHERE id = ?2", time.Now().Add(-time.Second), ids[0])
	if _, err := s.RevokeToken(t.Context(), "test", ids[1]); err != nil {
		t.Fatal(err)
	}
	h.Exec(t, "DELETE FROM outbox_tokens WHERE id = ?1", ids[2])
	got, err := s.ValidTokens(t.Context(), append(ids, never.ID, "no id"))
	slices.Sort(got)
	want := []string{ids[3], never.ID}
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if got, err := s.ValidTokens(t.Context(), nil); err != nil || len(got) != 0 {
		t.Errorf("of none: %v, %v", got, err)
	}
}

func recordsTokens(t *testing.T, h *suite) {
	s := h.Tokens(t)
	made, text := newToken(t, s, "shop", time.Hour, token.Read)
	for range 2 { // the second changes nothing
		_, _ = s.RevokeToken(t.Context(), "me@here", made.ID)
	}
	for action, actor := range map[string]string{"token create": "test", "token revoke": "me@here"} {
		got := h.Value(t,
			"SELECT count(*) FROM outbox_audit WHERE action = ?1 AND actor = ?2 AND letters = 0 AND filter->>'token' = ?3 AND "+
				"detail->>'tenant' = 'shop'", action, actor, made.ID)
		if got != "1" {
			t.Errorf("%s entries of %s, want 1", got, action)
		}
	}
	if n := h.Value(t, "SELECT count(*) FROM outbox_audit WHERE coalesce(detail, filter) IS NULL OR actor LIKE ?1",
		"%"+text+"%"); n != "0" {
		t.Errorf("%s entries that should not be", n)
	}
}

func redeemsTicketOnce(t *testing.T, h *suite) {
	s := h.Tokens(t)
	auth := &token.Authenticator{Store: s}
	made, _ := newToken(t, s, "shop", time.Hour, token.Read)
	ticket := newTicket(t, s, made)
	var redeemed atomic.Int32
	together(20, func(int) {
		got, err := auth.RedeemTicket(t.Context(), ticket)
		if err == nil && got.Token == made.ID && got.Tenant == "shop" && slices.Equal(got.Scopes, made.Scopes) {
			redeemed.Add(1)
		} else if !errors.Is(err, token.ErrUnauthorized) {
			t.Errorf("redeemed %+v, %v", got, err)
		}
	})
	if n := redeemed.Load(); n != 1 {
		t.Errorf("redeemed %d times", n)
	}
}

// What a ticket cannot outlive.
func redeemsNoTicketOfOverToken(t *testing.T, h *suite) {
	s := h.Tokens(t)
	past := time.Now().Add(-time.Second)
	for name, end := range map[string]func(id string){
		"its time": func(id string) {
			h.Exec(t, "UPDATE outbox_tickets SET expires_at = ?1 WHERE token_id = ?2", past,
				id)
		},
		"its token":     func(id string) { h.Exec(t, "UPDATE outbox_tokens SET expires_at = ?1 WHERE id = ?2", past, id) },
		"its token row": func(id string) { h.Exec(t, "DELETE FROM outbox_tokens WHERE id = ?1", id) },
		"a revocation": func(id string) {
			if _, err := s.RevokeToken(t.Context(), "test", id); err != nil {
				t.Fatal(err)
			}
		},
	} {
		made, _ := newToken(t, s, "shop", time.Hour, token.Read)
		ticket := newTicket(t, s, made)
		end(made.ID)
		if got, err := (&token.Authenticator{Store: s}).RedeemTicket(t.Context(), ticket); !errors.Is(err,
			token.ErrUnauthorized) {
			t.Errorf("%s: redeemed %+v, %v", name, got, err)
		}
	}
}

// Whoever can make tickets could else have any scope.
func givesTicketNoMore(t *testing.T, h *suite) {
	s := h.Tokens(t)
	made, _ := newToken(t, s, "shop", 0, token.Read)
	for _, c := range []struct {
		asked, want []token.Scope
	}{
		{[]token.Scope{token.Operate, token.Read}, []token.Scope{token.Read}},
		{[]token.Scope{token.Operate}, nil},
	} {
		_, sum := token.NewTicket()
		if _, err := s.CreateTicket(t.Context(), token.Principal{Token: made.ID, Tenant: "other", Scopes: c.asked}, sum,
			time.Minute/2); err != nil {
			t.Fatal(err)
		}
		got, err := s.RedeemTicket(t.Context(), sum)
		if (err == nil) != (c.want != nil) || err != nil && !errors.Is(err, token.ErrUnauthorized) ||
			!slices.Equal(got.Scopes, c.want) || err == nil && got.Tenant != "shop" {
			t.Errorf("asked for %v: redeemed %+v, %v", c.asked, got, err)
		}
	}
}

func sweepsTickets(t *testing.T, h *suite) {
	s := h.Tokens(t)
	made, _ := newToken(t, s, "shop", 0, token.Read)
	for range 25 {
		newTicket(t, s, made)
	}
	h.Exec(t, "UPDATE outbox_tickets SET expires_at = ?1", time.Now().Add(-time.Second))
	for _, want := range []string{"16", "7"} { // ten go, one comes
		newTicket(t, s, made)
		if n := h.Value(t, "SELECT count(*) FROM outbox_tickets"); n != want {
			t.Errorf("%s tickets, want %s", n, want)
		}
	}
}

// A database that does not answer says nothing about the token.
func passesErrorOn(t *testing.T, h *suite) {
	s := h.Tokens(t)
	_, text := newToken(t, s, "shop", 0, token.Read)
	ticket, _ := token.NewTicket()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	auth := &token.Authenticator{Store: s}
	if _, err := auth.Authenticate(over, text); err == nil || errors.Is(err, token.ErrUnauthorized) {
		t.Errorf("Authenticate: %v", err)
	}
	if _, err := auth.RedeemTicket(over, ticket); err == nil || errors.Is(err, token.ErrUnauthorized) {
		t.Errorf("RedeemTicket: %v", err)
	}
}

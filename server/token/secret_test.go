package token

import (
	"crypto/sha256"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestNew(t *testing.T) {
	t.Parallel()
	shape := regexp.MustCompile(`^obx_[a-z2-7]{12}_[a-z2-7]{52}$`)
	seen := map[string]bool{}
	for range 1000 {
		tok, text, sum, err := New("shop", "web", []Scope{Write, Read, Write})
		if err != nil {
			t.Fatal(err)
		}
		if !shape.MatchString(text) || seen[text] || seen[tok.ID] {
			t.Fatalf("text %q, id %q", text, tok.ID)
		}
		seen[text], seen[tok.ID] = true, true
		id, parsed, err := Parse(text)
		if err != nil || id != tok.ID || parsed != sum || sum != sha256.Sum256([]byte(text[len("obx_")+13:])) {
			t.Fatalf("parsed %q: %q %v", text, id, err)
		}
		if !slices.Equal(tok.Scopes, []Scope{Read, Write}) || tok.Tenant != "shop" || tok.Name != "web" {
			t.Fatalf("made %+v", tok)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	all := []Scope{Read}
	for _, c := range []struct {
		tenant, name string
		scopes       []Scope
		want         string
	}{
		{"", "", all, "tenant"},
		{strings.Repeat("x", 65), "", all, "tenant"},
		{"a\nb", "", all, "tenant"},
		{"a\xff", "", all, "tenant"},
		{"a", strings.Repeat("x", 101), all, "name"},
		{"a", "b\x00", all, "name"},
		{AllTenants, "b", []Scope{AdminRead, Read}, "admin:read and admin:write alone"},
		{"a", "b", nil, "no scope (known: read, write, operate, consume, admin:read, admin:write)"},
		{"a", "b", []Scope{Read, "admin"}, `unknown scope "admin" (known: read, write, operate, consume, admin:read, admin:write)`},
	} {
		if _, text, _, err := New(c.tenant, c.name, c.scopes); err == nil || !strings.Contains(err.Error(), c.want) ||
			text != "" {
			t.Errorf("New(%q, %q, %v): %q, %v", c.tenant, c.name, c.scopes, text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	_, text, _, err := New("t", "", []Scope{Read})
	if err != nil {
		f.Fatal(err)
	}
	ticket, _ := NewTicket()
	for _, s := range []string{text, ticket, "", "obx_", "obx__", text + "a", text[1:], strings.ToUpper(text),
		strings.Replace(text, "_", "-", 2), "Bearer " + text, text + "\n"} {
		f.Add(s)
	}
	token := regexp.MustCompile(`\Aobx_[a-z2-7]{12}_[a-z2-7]{52}\z`)
	pass := regexp.MustCompile(`\Aobt_[a-z2-7]{52}\z`)
	f.Fuzz(func(t *testing.T, s string) {
		id, sum, err := Parse(s)
		if ok := err == nil; ok != token.MatchString(s) || !ok &&
			(!errors.Is(err, ErrUnauthorized) || id != "" || sum != [32]byte{}) {
			t.Errorf("Parse(%q): %q, %v", s, id, err)
		}
		sum, err = ParseTicket(s)
		if ok := err == nil; ok != pass.MatchString(s) || !ok && (!errors.Is(err, ErrUnauthorized) || sum != [32]byte{}) {
			t.Errorf("ParseTicket(%q): %v", s, err)
		}
	})
}

package token

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A token is obx_<id>_<secret>, a ticket obt_<secret>. The prefixes let secret scanners and people
// see what they have found.
const (
	tokenPrefix  = "obx_"
	ticketPrefix = "obt_"

	idLength     = 12 // 60 bits: enough to tell tokens apart, and no secret
	secretBytes  = 32
	secretLength = 52 // in base32 without padding

	maxTenant = 64 // VARCHAR(64) of tenant_id (ADR-004)
	maxName   = 100
)

// Base32 in lower case: a double click marks the whole token, and it survives being read aloud.
var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// New makes a token of a tenant. text is what its user sends; it cannot be made again from what is
// stored, which is t and sum.
func New(tenant, name string, scopes []Scope) (t Token, text string, sum [32]byte, err error) {
	switch {
	case tenant == "" || utf8.RuneCountInString(tenant) > maxTenant || !printable(tenant):
		return t, "", sum, fmt.Errorf("make token: the tenant must be 1 to %d printable characters, is "+
			"%q", maxTenant, tenant)
	case utf8.RuneCountInString(name) > maxName || !printable(name):
		return t, "", sum, fmt.Errorf("make token: the name must be at most %d printable characters, is "+
			"%q", maxName, name)
	case len(scopes) == 0:
		return t, "", sum, fmt.Errorf("make token: it has no scope (known: %s)", known())
	}
	t = Token{Name: name, Tenant: tenant}
	for _, s := range Scopes { // in this order, each once
		if slices.Contains(scopes, s) {
			t.Scopes = append(t.Scopes, s)
		}
	}
	for _, s := range scopes {
		if !slices.Contains(Scopes, s) {
			return Token{}, "", sum, fmt.Errorf("make token: unknown scope %q (known: %s)", s, known())
		}
	}
	if tenant == AllTenants && slices.ContainsFunc(t.Scopes,
		func(s Scope) bool { return s != AdminRead && s != AdminWrite }) {
		return Token{}, "", sum, fmt.Errorf("make token: tenant %s is for the scopes %s and %s alone; "+
			"for the others name the tenant that the token speaks for", AllTenants, AdminRead, AdminWrite)
	}
	t.ID = random(8)[:idLength]
	secret := random(secretBytes)
	return t, tokenPrefix + t.ID + "_" + secret, sha256.Sum256([]byte(secret)), nil
}

// Parse takes the text of a token apart: its id, and the SHA-256 of its secret. Anything that New
// cannot have made is ErrUnauthorized.
func Parse(text string) (id string, sum [32]byte, err error) {
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok || len(rest) != idLength+1+secretLength || rest[idLength] != '_' || !encoded(rest[:idLength]) ||
		!encoded(rest[idLength+1:]) {
		return "", sum, &Refusal{Why: Malformed}
	}
	return rest[:idLength], sha256.Sum256([]byte(rest[idLength+1:])), nil
}

// NewTicket makes the text of a ticket, and what is stored of it.
func NewTicket() (text string, sum [32]byte) {
	secret := random(secretBytes)
	return ticketPrefix + secret, sha256.Sum256([]byte(secret))
}

// ParseTicket is Parse for tickets.
func ParseTicket(text string) (sum [32]byte, err error) {
	secret, ok := strings.CutPrefix(text, ticketPrefix)
	if !ok || len(secret) != secretLength || !encoded(secret) {
		return sum, &Refusal{Why: Malformed}
	}
	return sha256.Sum256([]byte(secret)), nil
}

// random returns n random bytes as text.
func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails: without entropy the program ends
	return encoding.EncodeToString(b)
}

func encoded(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '2' || r > '7') })
}

// printable keeps out what a log or a terminal would obey. PostgreSQL takes no NUL and no invalid
// UTF-8 anyway.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

func known() string {
	names := make([]string, len(Scopes))
	for i, s := range Scopes {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}

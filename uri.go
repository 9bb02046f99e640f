package outbox

import (
	"net/url"
	"strings"
)

// uriReference returns s if it is a URI-reference (RFC 3986), which the source of a CloudEvent must be. Else it returns
// s with everything percent-encoded that is no letter, digit, or one of - . _ ~ /.
func uriReference(s string) string {
	if isURIReference(s) {
		return s
	}
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if isUnreserved(c) || c == '/' && !strings.HasPrefix(s, "//") { // two slashes would begin a host
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

func isURIReference(s string) bool {
	plain := true
	for i := range len(s) {
		plain = plain && isUnreserved(s[i])
	}
	if plain {
		return true // nearly all are
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '%':
			if i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) {
				return false
			}
		case !isUnreserved(c) && strings.IndexByte(":/?#[]@!$&'()*+,;=", c) < 0:
			return false
		}
	}
	u, err := url.Parse(s)
	// Of two slashes and nothing after them decoders make nothing.
	if err != nil || strings.Count(s, "#") > 1 || u.String() == "" {
		return false
	}
	// Brackets are for an address in the host, and nowhere else.
	return strings.Count(s, "[")+strings.Count(s, "]") == strings.Count(u.Host, "[")+strings.Count(u.Host, "]")
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

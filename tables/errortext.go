package tables

import "strings"

// MaxErrorBytes bounds an error's text in a table; the rest of a longer one is cut.
const MaxErrorBytes = 2000

// ErrorText makes any error text fit a text column: no NUL, valid UTF-8, of bounded length.
func ErrorText(s string) string {
	s = strings.ReplaceAll(s, "\x00", "")
	if len(s) > MaxErrorBytes {
		s = s[:MaxErrorBytes]
	}
	return strings.ToValidUTF8(s, "?")
}

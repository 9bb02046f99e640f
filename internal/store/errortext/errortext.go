// Package errortext makes errors fit the columns that keep their texts.
//
// Guaranteed: every database takes what [Fit] returns, whatever a sink or a driver said.
//
// Not guaranteed: that nothing is lost of it. A long text is cut.
package errortext

import "strings"

// MaxBytes bounds an error's text in a table; the rest of a longer one is cut.
const MaxBytes = 2000

// Fit makes any error text fit a text column: no NUL, valid UTF-8, of bounded length.
func Fit(s string) string {
	s = strings.ReplaceAll(s, "\x00", "")
	if len(s) > MaxBytes {
		s = s[:MaxBytes]
	}
	return strings.ToValidUTF8(s, "?")
}

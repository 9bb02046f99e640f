package outbox

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// jsonb accepts less than JSON. The first three are the limits of PostgreSQL's numeric, which holds
// jsonb's numbers.
const (
	maxIntegerDigits  = 131072
	maxFractionDigits = 16383
	maxExponent       = 1<<30 - 2

	// The server's parser recurses: with the default max_stack_depth of 2 MB PostgreSQL 15 gave up
	// at 13,086 nested objects. A limit well below leaves room for servers with less.
	maxDepth = 1000

	// jsonb spells numbers out when it is read: 1e131071 becomes 131,072 digits. An array of 9,000
	// of them, 80 kB, was inserted without complaint and could never be read again (54000, out of
	// memory): every claim would have failed on that row. This is the bound for callers without a
	// limit of their own; for others the digits count as if they had been sent.
	maxExpansion = 1 << 20
)

// checkJSON reports why PostgreSQL would refuse b as jsonb: SQLSTATE 22P02 (not JSON, or a lone
// surrogate), 22021 (invalid UTF-8), 22P05 (\u0000), 22003 (a number outside numeric), 54001
// (nesting). Likewise what it would take and not give back (54000), or give back as more than
// maxBytes because of how it spells numbers.
func checkJSON(field string, b []byte, maxBytes int) error {
	refuse := func(at int, problem string) error {
		return &FieldError{Field: field, Problem: fmt.Sprintf("%s (at byte %d)", problem, at)}
	}
	if !utf8.Valid(b) {
		return &FieldError{Field: field, Problem: "is not valid UTF-8"}
	}
	if !json.Valid(b) {
		return &FieldError{Field: field, Problem: "is not valid JSON"}
	}
	depth, expansion := 0, 0
	for i := 0; i < len(b); {
		switch c := b[i]; {
		case c == '"':
			end, problem := scanString(b, i)
			if problem != "" {
				return refuse(end, problem)
			}
			i = end
		case c == '-' || c >= '0' && c <= '9':
			end, more := scanNumber(b, i)
			if more < 0 {
				return refuse(i, "has a number outside the range of PostgreSQL's numeric")
			}
			expansion += more
			if room := min(maxExpansion, maxBytes-len(b)); more > 0 && expansion > room {
				problem := fmt.Sprintf("has %d bytes, and numbers that jsonb spells out to over %d digits more: "+
					"too many (at byte %d)", len(b), max(0, room), i)
				return &FieldError{Field: field, Problem: problem, Err: ErrPayloadTooLarge}
			}
			i = end
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return refuse(i, fmt.Sprintf("is nested deeper than %d", maxDepth))
			}
			i++
		case c == '}' || c == ']':
			depth--
			i++
		default:
			i++
		}
	}
	return nil
}

// scanNumber returns where the number at i ends, and by how many digits jsonb makes it longer;
// below 0: it has none such.
func scanNumber(b []byte, i int) (end, more int) {
	end = i + 1
	for end < len(b) && isNumberByte(b[end]) {
		end++
	}
	digits, ok := numericDigits(b[i:end])
	if !ok {
		return end, -1
	}
	return end, max(0, digits-(end-i))
}

// scanString returns the position after the string that starts at b[i], or where and what its
// problem is. b is valid JSON.
func scanString(b []byte, i int) (end int, problem string) {
	for i++; b[i] != '"'; i++ {
		if b[i] != '\\' {
			continue
		}
		if i++; b[i] != 'u' {
			continue
		}
		u := hex4(b[i+1:])
		i += 4
		switch {
		case u == 0:
			return i, `contains \u0000, which jsonb refuses`
		case u >= 0xDC00 && u <= 0xDFFF:
			return i, "contains a lone surrogate, which jsonb refuses"
		case u >= 0xD800 && u <= 0xDBFF:
			if b[i+1] != '\\' || b[i+2] != 'u' {
				return i, "contains a lone surrogate, which jsonb refuses"
			}
			if low := hex4(b[i+3:]); low < 0xDC00 || low > 0xDFFF {
				return i, "contains a lone surrogate, which jsonb refuses"
			}
			i += 6
		}
	}
	return i + 1, ""
}

func hex4(b []byte) uint64 {
	u, err := strconv.ParseUint(string(b[:4]), 16, 32)
	if err != nil {
		return 0 // cannot be: json.Valid has seen four hexadecimal digits
	}
	return u
}

func isNumberByte(c byte) bool {
	return c >= '0' && c <= '9' || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-'
}

// numericDigits returns how many digits jsonb writes for a JSON number. ok tells whether numeric
// can hold it at all: at most 131,072 digits before the decimal point and 16,383 after it, once the
// exponent has been applied.
func numericDigits(num []byte) (digits int, ok bool) {
	var integer, fraction, leadingZeros int // digits as written; zeros before the first significant one
	significant, inFraction, exponent := false, false, 0
scan:
	for i, c := range num {
		switch {
		case c == 'e' || c == 'E':
			e, err := strconv.Atoi(string(num[i+1:]))
			if err != nil || e > maxExponent || e < -maxExponent {
				return 0, false
			}
			exponent = e
			break scan
		case c == '.':
			inFraction = true
			continue
		case c == '-':
			continue
		case inFraction:
			fraction++
		default:
			integer++
		}
		if c != '0' {
			significant = true
		} else if !significant {
			leadingZeros++
		}
	}
	after, before := max(0, fraction-exponent), 0
	if significant { // a zero has no digits to move, whatever its exponent
		before = max(0, integer-leadingZeros+exponent)
	}
	return before + after, before <= maxIntegerDigits && after <= maxFractionDigits
}

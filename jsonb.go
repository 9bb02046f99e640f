package outbox

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// jsonb accepts less than JSON. These are the limits of PostgreSQL's numeric, which holds jsonb's numbers, and a nesting
// depth that its recursive parser takes with the default max_stack_depth (it gave up between 6,000 and 7,000 on
// PostgreSQL 15; a limit well below leaves room for servers with a smaller stack).
const (
	maxIntegerDigits  = 131072
	maxFractionDigits = 16383
	maxExponent       = 1<<30 - 2
	maxDepth          = 1000
)

// checkJSON reports why PostgreSQL would refuse b as jsonb: SQLSTATE 22P02 (not JSON, invalid UTF-8 or a lone surrogate),
// 22P05 (\u0000), 22003 (a number outside numeric), 54001 (nesting).
func checkJSON(field string, b []byte) error {
	refuse := func(at int, problem string) error {
		return &FieldError{Field: field, Problem: fmt.Sprintf("%s (at byte %d)", problem, at)}
	}
	if !utf8.Valid(b) {
		return &FieldError{Field: field, Problem: "is not valid UTF-8"}
	}
	if !json.Valid(b) {
		return &FieldError{Field: field, Problem: "is not valid JSON"}
	}
	depth := 0
	for i := 0; i < len(b); {
		switch c := b[i]; {
		case c == '"':
			end, problem := scanString(b, i)
			if problem != "" {
				return refuse(end, problem)
			}
			i = end
		case c == '-' || c >= '0' && c <= '9':
			end := i + 1
			for end < len(b) && isNumberByte(b[end]) {
				end++
			}
			if !fitsNumeric(b[i:end]) {
				return refuse(i, "has a number outside the range of PostgreSQL's numeric")
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

// scanString returns the position after the string that starts at b[i], or where and what its problem is. b is valid JSON.
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

// fitsNumeric tells whether numeric can hold the JSON number: at most 131,072 digits before the decimal point and 16,383
// after it, once the exponent has been applied.
func fitsNumeric(num []byte) bool {
	if num[0] == '-' {
		num = num[1:]
	}
	var integer, fraction, leadingZeros int // digits; zeros before the first significant digit
	significant, inFraction, exponent := false, false, 0
	for i, c := range num {
		if c == 'e' || c == 'E' {
			e, err := strconv.Atoi(string(num[i+1:]))
			if err != nil || e > maxExponent || e < -maxExponent {
				return false
			}
			exponent = e
			break
		}
		if c == '.' {
			inFraction = true
			continue
		}
		if inFraction {
			fraction++
		} else {
			integer++
		}
		if c != '0' {
			significant = true
		} else if !significant {
			leadingZeros++
		}
	}
	if fraction-exponent > maxFractionDigits {
		return false
	}
	return !significant || integer-leadingZeros+exponent <= maxIntegerDigits
}

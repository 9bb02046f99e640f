package sqlitecold

import (
	"crypto/sha256"
	sqldriver "database/sql/driver"
	"encoding/hex"
	"regexp"
	"strings"

	driver "modernc.org/sqlite"
)

// fingerprinting gives SQLite the function outbox_fingerprint(text), on every connection that is
// opened from here on; SQLite has neither regular expressions nor a hash. In SQL rather than over
// rows read into Go, so that filters, groups and pages stay statements. When the program starts and
// not when a file is opened: the driver reads its functions without a lock whenever it opens a
// connection. It asks that all be registered before the first. An application's own handle may have
// opened one, or be about to in another goroutine. A driver.Driver of our own would do without, and
// take away the functions that an application has registered for its SQL in DB.Begin.
var fingerprinting = driver.RegisterDeterministicScalarFunction("outbox_fingerprint", 1,
	func(_ *driver.FunctionContext, args []sqldriver.Value) (sqldriver.Value, error) {
		text, _ := args[0].(string)
		return fingerprint(text), nil
	})

// What is blanked, in this order, as internal/store/pgcold/sql/words.sql says it: quoted text,
// UUIDs, hexadecimal of eight digits or more, and numbers, with a unit of time if there is one. A
// quote inside a word is an apostrophe.
var (
	quotedText  = regexp.MustCompile("\"[^\"]*\"|(^|[^\\pL\\pN_])'[^']*'|`[^`]*`")
	anyUUID     = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	hexadecimal = regexp.MustCompile(`0x[0-9a-f]+|\b[0-9a-f]{8,}\b`)
	aNumber     = regexp.MustCompile(`([0-9]+([.][0-9]+)*(ns|us|µs|ms|s|m|h))*[0-9]+([.][0-9]+)*((ns|us|µs|ms|s|m|h)\b)?`)
)

// fingerprint is the same for errors that differ only in what changes from one time to the next,
// and the same as in PostgreSQL.
func fingerprint(text string) string {
	text = quotedText.ReplaceAllString(strings.ToLower(text), "${1}?")
	text = anyUUID.ReplaceAllString(text, "?")
	text = hexadecimal.ReplaceAllStringFunc(text, func(found string) string {
		if strings.HasPrefix(found, "0x") || strings.ContainsAny(found, "0123456789") {
			return "?"
		}
		return found // a word
	})
	sum := sha256.Sum256([]byte(aNumber.ReplaceAllString(text, "?")))
	return hex.EncodeToString(sum[:6])
}

package config

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// SQLiteFile returns the file that a database URL names if it is one of SQLite: sqlite:outbox.db,
// sqlite:/var/lib/outbox.db, or with // behind the colon.
func SQLiteFile(databaseURL string) (path string, ok bool) {
	path, ok = strings.CutPrefix(databaseURL, "sqlite:")
	return strings.TrimPrefix(path, "//"), ok
}

// MaskDatabase names the database behind a URL for people: the file, or database, host and port, and nothing else of
// it.
func MaskDatabase(databaseURL string) string {
	if path, ok := SQLiteFile(databaseURL); ok {
		return path
	}
	c, err := pgx.ParseConfig(databaseURL)
	if err != nil || ambiguous(databaseURL) {
		return "(no valid URL)"
	}
	return fmt.Sprintf("%s at %s:%d", c.Database, c.Host, c.Port)
}

// MaskRedis names the server behind a Redis URL without user, password and options: a password can stand in a query
// parameter too.
func MaskRedis(redisURL string) string {
	scheme, rest, isURL := strings.Cut(redisURL, "://")
	if !isURL || ambiguous(redisURL) {
		return "(no valid URL)"
	}
	rest = rest[strings.LastIndexByte(rest, '@')+1:]
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
	}
	return scheme + "://" + rest
}

// ambiguous tells whether a URL seems to have a character in its user or password that must be percent-encoded there.
// Such a URL often parses, with a piece of the password as its host or database name, which errors and logs then show:
// "redis://u:12/34@host".
func ambiguous(text string) bool {
	_, rest, isURL := strings.Cut(text, "://")
	at := strings.LastIndex(rest, "@")
	return isURL && at >= 0 && strings.ContainsAny(rest[:at], "@/?#")
}

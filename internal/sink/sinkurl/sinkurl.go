// Package sinkurl is what drivers of sinks share: how a URL is read, what of it may be shown, and
// whether an error of connecting is worth waiting for.
//
// Guaranteed: what Mask returns has no user, password, option or fragment in it, and no error has a
// piece of a URL.
//
// Not guaranteed: that a URL is right; a driver parses its own.
package sinkurl

import (
	"errors"
	"strings"
)

// None is how a URL is shown that cannot be read.
const None = "(no valid URL)"

// Mask returns a URL without user, password, options and fragment: a password can stand in an
// option too. It does for drivers whose URLs hold no secret in host and path.
func Mask(url string) string {
	before, rest, isURL := strings.Cut(url, "://")
	if !isURL {
		before, rest, isURL = strings.Cut(url, ":")
		if !isURL || strings.Contains(rest, "@") {
			return None
		}
		before += ":"
	} else if CheckUser(url) != nil {
		return None
	} else {
		before, rest = before+"://", rest[strings.LastIndexByte(rest, '@')+1:]
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
	}
	return before + rest
}

var errUser = errors.New("the URL (not shown, it may hold a password) has one of @ / ? # where its user or password " +
	"would be: write it as %40 %2F %3F %23")

// CheckUser finds a character in the user or password of a URL that must be percent-encoded there.
// Such a URL often parses, with a piece of the password as its host or path, which errors and logs
// then show: "redis://u:12/34@host".
func CheckUser(url string) error {
	_, rest, isURL := strings.Cut(url, "://")
	at := strings.LastIndex(rest, "@")
	if isURL && at >= 0 && strings.ContainsAny(rest[:at], "@/?#") {
		return errUser
	}
	return nil
}

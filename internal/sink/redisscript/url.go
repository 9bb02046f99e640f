package redisscript

import (
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
)

// Lasting takes the class outbox.ClassUnavailable off an error that waiting does not cure: a Redis that knows neither
// user nor password, or one that nobody vouches for.
func Lasting(err error) error {
	var certificate *tls.CertificateVerificationError
	if redis.IsAuthError(err) || errors.As(err, &certificate) {
		return outbox.Permanent(err)
	}
	return err
}

// CheckURL says what is wrong with a URL of one of the schemes that ParseURL takes, without connecting and without
// showing a password.
func CheckURL(url string) error {
	if err := sinkurl.CheckUser(url); err != nil {
		return err
	}
	if badPort(url) {
		return sinkurl.ErrPort
	}
	_, _, err := ParseURL(url)
	return err
}

// badPort tells whether a host of the URL has a port that cannot be. go-redis finds that out when it connects, and is
// waited for.
func badPort(url string) bool {
	for _, host := range sinkurl.SplitHosts(url).Hosts {
		if _, port, err := net.SplitHostPort(host); err == nil && port != "" {
			if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
				return true
			}
		}
	}
	return false
}

// Plaintext returns the hosts that are reached without TLS and may be on other machines.
func Plaintext(url string) []string {
	parts := sinkurl.SplitHosts(url)
	if parts.Scheme != "redis" || sinkurl.CheckUser(url) != nil {
		return nil
	}
	return sinkurl.Elsewhere(parts.Hosts)
}

// Hint names the remedy for an error of a sink on Redis; "" for one that is not its own.
func Hint(err error) string {
	switch {
	case redis.IsAuthError(err), redis.IsPermissionError(err):
		return "correct user or password in the URL, or the user's rights (ACL)"
	case strings.Contains(err.Error(), "connect to Redis"):
		return "is Redis running there?"
	}
	return ""
}

package config

import (
	"net"
	"strings"
)

// PlainRedis returns the hosts of a Redis URL that are reached without TLS and may be on other machines: a name that
// is not localhost may be anybody's.
func PlainRedis(redisURL string) (hosts []string) {
	scheme, rest, _ := strings.Cut(MaskRedis(redisURL), "://")
	if scheme != "redis" {
		return nil
	}
	rest, _, _ = strings.Cut(rest, "/")
	for host := range strings.SplitSeq(rest, ",") {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if host = strings.Trim(host, "[]"); host != "" && !loopback(host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// Exposed tells whether other machines may reach an address to listen on.
func Exposed(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && !loopback(host)
}

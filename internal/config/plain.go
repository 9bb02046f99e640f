package config

import "net"

// Exposed tells whether other machines may reach an address to listen on.
func Exposed(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && !loopback(host)
}

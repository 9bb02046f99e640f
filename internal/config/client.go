package config

import (
	"net/url"
	"strings"
)

// checkClient does not repeat the address where it holds a password.
func (c *Config) checkClient(problems *Error) {
	u, err := url.Parse(c.Server)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		problems.add("server is no address such as http://127.0.0.1:8080 or https://outbox.example: %s", set("server"))
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		problems.add("server is an address and no more: without user, ? and #; who you are says the token: %s", set("server"))
	}
	if strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		problems.add("token has characters that no token has (it is not shown): %s", set("token"))
	}
}

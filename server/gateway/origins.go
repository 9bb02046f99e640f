package gateway

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// origins are those of Config.AllowedOrigins.
type origins []string

// anyPort is what an entry ends with that means every port of its host.
const anyPort = ":*"

// isOrigin tells whether an entry is what a browser sends as Origin, or that with * for its port.
func isOrigin(entry string) bool {
	entry = strings.TrimSuffix(entry, anyPort)
	u, err := url.Parse(entry)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" &&
		u.Scheme+"://"+u.Host == entry && !strings.Contains(entry, "*")
}

// allow tells whether pages of an origin may call the API.
func (o origins) allow(origin string) bool {
	return slices.ContainsFunc(o, func(entry string) bool {
		host, ports := strings.CutSuffix(entry, anyPort)
		if !ports {
			return entry == "*" || entry == origin
		}
		rest, ok := strings.CutPrefix(origin, host)
		port := strings.TrimPrefix(rest, ":")
		return ok && (rest == "" || rest != port && port != "" && strings.Trim(port, "0123456789") == "")
	})
}

// guard passes on what the allowed origins and no page at all ask for, and has denied answer the
// rest that would change something.
func (o origins) guard(next, denied http.Handler) http.Handler {
	if slices.Contains(o, "*") {
		return next
	}
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(denied)
	protected := protection.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if origin := r.Header.Get("Origin"); origin != "" && o.allow(origin) {
			next.ServeHTTP(w, r)
			return
		}
		protected.ServeHTTP(w, r)
	})
}

// Foreign says why a server that asks nobody who he is does not answer a request, "" if it does.
func Foreign(r *http.Request) (status int, why string) {
	switch {
	case !Named(r.Host):
		return http.StatusMisdirectedRequest,
			"without authentication this server answers to localhost and IP addresses only"
	case proxied(r):
		return http.StatusForbidden,
			"without authentication this server answers nobody behind a proxy: serve with --auth token"
	}
	return 0, ""
}

// Named tells whether a Host header is one that only we or the user can have chosen.
func Named(host string) bool {
	u, err := url.Parse("http://" + host)
	if err != nil {
		return false
	}
	name := u.Hostname()
	_, notIP := netip.ParseAddr(name)
	return notIP == nil || name == "localhost"
}

// proxied tells whether a proxy says that it passes on somebody else's request. One that does not
// say so cannot be told from a client.
func proxied(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"} {
		if len(r.Header.Values(name)) > 0 {
			return true
		}
	}
	return false
}

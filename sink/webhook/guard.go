package webhook

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"time"

	"code.dny.dev/ssrf"
)

// Bounds of connections and answers.
const (
	dialTimeout = 10 * time.Second
	// Many servers close a connection that was idle for 5 s (Node.js) to 75 s (nginx). A request
	// that meets the closing is lost, so a connection is given up before.
	idleTimeout    = 4 * time.Second
	maxIdle        = 4096
	maxHeaderBytes = 64 << 10
)

// newTransport makes requests to allowed addresses only. net/http repeats a request by itself if
// the server closes a kept connection before it answers (see request). Receivers recognise a
// duplicate by its webhook-id.
func newTransport(cfg Config) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second, Resolver: cfg.Resolver}
	t := &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: idleTimeout,
		MaxIdleConns: maxIdle, MaxIdleConnsPerHost: maxConcurrency,
		MaxResponseHeaderBytes: maxHeaderBytes, DisableCompression: true,
	}
	if cfg.TLS != nil {
		t.TLSClientConfig = cfg.TLS.Clone()
	} else {
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if cfg.Proxy != nil {
		t.Proxy = http.ProxyURL(cfg.Proxy)
	} else {
		dialer.Control = newGuard(cfg).Safe
	}
	return t
}

// azureHost is inner on Azure and public by IANA's registry: the agent of the machine's host
// answers there without credentials
// (learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16).
var azureHost = netip.MustParsePrefix("168.63.129.16/32")

// newGuard refuses special-purpose addresses. It is asked after a name was resolved, for each
// address before it is dialled, so a name that resolves to another address than before does not get
// by.
func newGuard(cfg Config) *ssrf.Guardian {
	allow := cfg.Allow // it is asked before what is denied
	if cfg.AllowPrivate {
		allow = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}
	var v4, v6 []netip.Prefix
	for _, prefix := range allow {
		if prefix.Addr().Is4() {
			v4 = append(v4, prefix)
		} else {
			v6 = append(v6, prefix)
		}
	}
	return ssrf.New(ssrf.WithPorts(cfg.Ports...), ssrf.WithDeniedV4Prefixes(azureHost),
		ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...))
}

// blocked tells whether the guard refused an address.
func blocked(err error) bool {
	return errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedPort) ||
		errors.Is(err, ssrf.ErrProhibitedNetwork) || errors.Is(err, ssrf.ErrInvalidHostPort)
}

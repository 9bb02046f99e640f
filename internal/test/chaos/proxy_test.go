package chaos

import (
	"fmt"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// proxy stands between a client and a server and does to their connections what networks do.
type proxy struct{ *toxiproxy.Proxy }

func newProxy(t *testing.T, upstream string) *proxy {
	t.Helper()
	return proxyAt(t, "127.0.0.1", upstream)
}

// proxyAt listens at another address of this machine.
func proxyAt(t *testing.T, host, upstream string) *proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &proxy{toxiproxy.NewProxy(server, t.Name(), host+":0", upstream)}
	must(t, p.Start())
	t.Cleanup(p.Stop)
	return p
}

// add puts a toxic on the requests ("upstream") or the replies ("downstream") of all connections,
// present and to come. attribute is its one setting, with its value.
func (p *proxy) add(t *testing.T, toxic, stream, attribute string, value int) {
	t.Helper()
	_, err := p.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"type": %q, "stream": %q, "attributes": {%q: %d}}`,
		toxic, stream, attribute, value)))
	must(t, err)
}

// heal takes all toxics off.
func (p *proxy) heal(t *testing.T) {
	t.Helper()
	p.Toxics.ResetToxics(t.Context())
}

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
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &proxy{toxiproxy.NewProxy(server, t.Name(), "127.0.0.1:0", upstream)}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

// add puts a toxic on the requests ("upstream") or the replies ("downstream") of all connections, present and to come.
// attribute is its one setting, with its value.
func (p *proxy) add(t *testing.T, toxic, stream, attribute string, value int) {
	t.Helper()
	_, err := p.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"type": %q, "stream": %q, "attributes": {%q: %d}}`,
		toxic, stream, attribute, value)))
	if err != nil {
		t.Fatal(err)
	}
}

// heal takes all toxics off.
func (p *proxy) heal(t *testing.T) {
	t.Helper()
	p.Toxics.ResetToxics(t.Context())
}

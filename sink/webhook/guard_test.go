package webhook

import (
	"context"
	"encoding/binary"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// special are the kinds of addresses that no webhook may reach, and two that it may.
var special = map[string]bool{
	"127.0.0.1": false, "127.255.255.254": false, "0.0.0.0": false, "10.0.0.1": false, "172.16.0.1": false,
	"192.168.1.1": false, "169.254.169.254": false, "100.64.0.1": false, "192.0.0.8": false, "192.0.2.1": false,
	"198.18.0.1": false, "240.0.0.1": false, "255.255.255.255": false, "224.0.0.1": false,
	"::1": false, "::": false, "::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "::127.0.0.1": false,
	"fe80::1": false, "fc00::1": false, "fd00:ec2::254": false, "64:ff9b::7f00:1": false, "64:ff9b:1::1": false,
	"2002:7f00:1::": false, "2001:0:7f00:1::": false, "2001:db8::1": false, "100::1": false, "ff02::1": false,
	"168.63.129.16": false, "::ffff:168.63.129.16": false, "168.63.129.15": true, // the host of a machine on Azure
	"8.8.8.8": true, "2606:4700::1111": true,
}

// F70: the guard by itself, over every kind.
func TestGuardKnowsEveryKind(t *testing.T) {
	t.Parallel()
	cfg, err := Config{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	guard := newGuard(cfg)
	for text, allowed := range special {
		address := netip.AddrPortFrom(netip.MustParseAddr(text), 443)
		network := "tcp4"
		if address.Addr().Is6() {
			network = "tcp6"
		}
		if err := guard.Safe(network, address.String(), nil); (err == nil) != allowed {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, port := range []uint16{22, 80, 6379, 8080} {
		if guard.Safe("tcp4", netip.AddrPortFrom(netip.MustParseAddr("8.8.8.8"), port).String(), nil) == nil {
			t.Errorf("port %d is allowed", port)
		}
	}
}

// F70: through the sink, as a literal and by a name. Nothing is dialled: a server that listens on
// every address of this machine accepts no connection.
func TestBlockedAddresses(t *testing.T) {
	t.Parallel()
	trap, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	var dialled atomic.Int64
	go func() {
		for {
			conn, err := trap.Accept()
			if err != nil {
				return
			}
			dialled.Add(1)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = trap.Close() })
	port := trap.Addr().(*net.TCPAddr).AddrPort().Port()
	resolver := dnsServer(t, func(name string, _ int) []string {
		return []string{strings.NewReplacer("x", ":", "-", ".").Replace(strings.TrimSuffix(name, ".blocked.example."))}
	})
	cfg := Config{Ports: []uint16{port}, Resolver: resolver.client()}
	book := newBook()
	s := open(t, book, cfg)
	for text, allowed := range special {
		if allowed {
			continue
		}
		name := strings.NewReplacer(":", "x", ".", "-").Replace(text) + ".blocked.example"
		for _, host := range []string{text, name} {
			u := url.URL{Scheme: "https", Host: net.JoinHostPort(host, u16(port))}
			book.put(Endpoint{Name: host, URL: u.String(), Secrets: []Secret{key}})
			wantClass(t, one(t, s, event(t, host, 1)), outbox.ClassPermanent, "blocked by policy", "prohibited IP address")
		}
	}
	if dialled.Load() != 0 {
		t.Errorf("%d connections were made", dialled.Load())
	}
	// The trap works: with a switch it is reached.
	book.put(Endpoint{Name: "trap", URL: "https://" + net.JoinHostPort("127.0.0.1", u16(port)), Secrets: []Secret{key}})
	wantClass(t, one(t, open(t, book, Config{AllowPrivate: true}), event(t, "trap", 1)), outbox.ClassRetryAfter)
	eventually(t, "the trap is reached", func() bool { return dialled.Load() > 0 })
}

func u16(port uint16) string {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{}), port).String()[len("0.0.0.0:"):]
}

// F70, rebinding: a name that resolves to an allowed address at first and to another one later.
// Each connection is checked by the address that it would be made to.
func TestRebinding(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	var dialled atomic.Int64
	count := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { dialled.Add(1) })
	server := &http.Server{Handler: count, ReadHeaderTimeout: tier.Patience()}
	go func() { _ = server.Serve(inner) }()
	t.Cleanup(func() { _ = server.Close() })
	port := inner.Addr().(*net.TCPAddr).AddrPort().Port()
	outer, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", u16(port)))
	if err != nil {
		t.Fatal(err)
	}
	fine := receiver{}
	allowed := &http.Server{Handler: &fine, ReadHeaderTimeout: tier.Patience()}
	allowed.SetKeepAlivesEnabled(false) // each request makes a connection
	go func() { _ = allowed.Serve(outer) }()
	t.Cleanup(func() { _ = allowed.Close() })

	// The answers flip: allowed, inner, allowed with an inner one before it, inner in other
	// clothes.
	answers := [][]string{{"127.0.0.1"}, {"127.0.0.2"}, {"127.0.0.2", "127.0.0.1"}, {"::ffff:127.0.0.2"}, {"127.0.0.2"}}
	resolver := dnsServer(t, func(_ string, n int) []string { return answers[min(n, len(answers)-1)] })
	cfg := Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, AllowHTTP: true, Ports: []uint16{port},
		Resolver: resolver.client()}
	s := open(t, newBook(Endpoint{Name: "acme", URL: "http://rebind.example:" + u16(port), Secrets: []Secret{key}}), cfg)
	for n, delivered := range []bool{true, false, true, false, false} {
		err := one(t, s, event(t, "acme", 1))
		if delivered && err != nil {
			t.Errorf("answer %d: %v, want delivered", n, err)
		} else if !delivered {
			wantClass(t, err, outbox.ClassPermanent, "blocked by policy")
		}
	}
	if dialled.Load() != 0 || fine.count() != 2 {
		t.Errorf("%d requests reached the inner server and %d the allowed one, want 0 and 2", dialled.Load(), fine.count())
	}
	if resolver.asked.Load() < 5 {
		t.Errorf("the name was resolved %d times: the answers did not flip", resolver.asked.Load())
	}
}

// F69: a redirect to an inner address is not followed.
func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	inner := receive(t, nil)
	for _, code := range []int{301, 302, 303, 307, 308} {
		s := open(t, newBook(receive(t, status(code, "Location", inner.URL)).endpoint("acme")), local)
		wantClass(t, one(t, s, event(t, "acme", 1)), outbox.ClassRetryAfter, "redirects are not followed")
	}
	if inner.count() != 0 {
		t.Errorf("%d redirects were followed", inner.count())
	}
}

// A proxy of the environment would make the requests without the guard.
func TestProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	proxy := receive(t, nil)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	s := open(t, newBook(Endpoint{Name: "acme", URL: "http://192.0.2.1", Secrets: []Secret{key}}), Config{AllowHTTP: true})
	wantClass(t, one(t, s, event(t, "acme", 1)), outbox.ClassPermanent, "blocked by policy")
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	s = open(t, newBook(Endpoint{Name: "acme", URL: "http://192.0.2.1", Secrets: []Secret{key}}),
		Config{AllowHTTP: true, Proxy: address})
	if wantDelivered(t, s.Publish(t.Context(), []outbox.Delivery{event(t, "acme", 1)})); proxy.count() != 1 {
		t.Errorf("the configured proxy had %d requests, want 1", proxy.count())
	}
}

// dns is a DNS server that answers as a test says.
type dns struct {
	net.PacketConn
	asked, six atomic.Int64 // questions for addresses of IPv4 and IPv6: one of each a look-up
}

// dnsServer answers the nth question for a name, from 0, with these addresses. No address is a name
// that does not exist. Messages are as RFC 1035, section 4.1.
func dnsServer(t *testing.T, answer func(name string, n int) []string) *dns {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &dns{PacketConn: conn}
	done := make(chan struct{})
	t.Cleanup(func() { _ = conn.Close(); <-done })
	go func() {
		defer close(done)
		for buf := make([]byte, 1500); ; {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := d.reply(buf[:n], answer); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	}()
	return d
}

const (
	typeA    = 1
	typeAAAA = 28
)

func (d *dns) reply(query []byte, answer func(string, int) []string) []byte {
	end, name := 12, ""
	for end < len(query) && query[end] != 0 {
		size := int(query[end])
		name += string(query[end+1:end+1+size]) + "."
		end += 1 + size
	}
	question := query[12 : end+5]
	kind := binary.BigEndian.Uint16(query[end+1:])
	asked := &d.asked
	if kind == typeAAAA {
		asked = &d.six
	}
	n := int(asked.Add(1)) - 1
	var records []byte
	count := 0
	all := answer(name, n)
	for _, text := range all {
		address := netip.MustParseAddr(text)
		if raw := address.AsSlice(); (kind == typeA) == address.Is4() && (kind == typeA || kind == typeAAAA) {
			records = append(records, 0xc0, 12) // the name of the question
			records = binary.BigEndian.AppendUint16(records, kind)
			records = append(records, 0, 1, 0, 0, 0, 0)
			records = binary.BigEndian.AppendUint16(records, uint16(len(raw)))
			records = append(records, raw...)
			count++
		}
	}
	reply := append([]byte{}, query[:2]...)
	flags := uint16(0x8180)
	if len(all) == 0 {
		flags |= 3 // NXDOMAIN
	}
	reply = binary.BigEndian.AppendUint16(reply, flags)
	reply = append(reply, 0, 1, 0, byte(count), 0, 0, 0, 0)
	reply = append(reply, question...)
	return append(reply, records...)
}

// client resolves by this server.
func (d *dns) client() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", d.LocalAddr().String())
	}}
}

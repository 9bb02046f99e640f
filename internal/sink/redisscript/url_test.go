package redisscript

import (
	"errors"
	"slices"
	"testing"

	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
)

func TestParseURL(t *testing.T) {
	for url, want := range map[string]struct {
		hosts          []string
		user, password string
		db             int
		tls            bool
	}{
		"redis://h":                              {hosts: []string{"h:6379"}},
		"redis://h:1/3":                          {hosts: []string{"h:1"}, db: 3},
		"redis://u:p%2F%40@h:1":                  {hosts: []string{"h:1"}, user: "u", password: "p/@"},
		"redis://:p,q@h":                         {hosts: []string{"h:6379"}, password: "p,q"},
		"rediss://u:p@[::1]:7":                   {hosts: []string{"[::1]:7"}, user: "u", password: "p", tls: true},
		"redis://u:p@a,b:2,[::1]?read_timeout=2": {hosts: []string{"a:6379", "b:2", "[::1]:6379"}, user: "u", password: "p"},
		"unix://u:p@/run/redis.sock?db=2":        {hosts: []string{"/run/redis.sock"}, user: "u", password: "p", db: 2},
		"redis://h?max_retries=9":                {hosts: []string{"h:6379"}},
	} {
		got, err := Kind{}.Parse(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		o, hosts := got.Options, got.Hosts
		if !slices.Equal(hosts, want.hosts) || o.Username != want.user || o.Password != want.password || o.DB != want.db ||
			(o.TLSConfig != nil) != want.tls {
			t.Errorf("%s: hosts %q, user %q, password %q, db %d, TLS %v", url, hosts, o.Username, o.Password, o.DB,
				o.TLSConfig != nil)
		}
		if o.MaxRetries != -1 || !o.ContextTimeoutEnabled {
			t.Errorf("%s: MaxRetries %d, ContextTimeoutEnabled %v", url, o.MaxRetries, o.ContextTimeoutEnabled)
		}
	}
}

// FuzzParseURL: whatever the URL, an error says nothing of it.
func FuzzParseURL(f *testing.F) {
	for _, url := range []string{"redis://u:p@h:1,h2/3?db=1", "unix://u:p@/s", "://", "rediss://[::1", "redis://a:1:2",
		"redis://@,@,"} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		s, err := Kind{}.Parse(url)
		if err == nil {
			if len(s.Hosts) == 0 || slices.Contains(s.Hosts, "") || s.Options.MaxRetries != -1 {
				t.Errorf("hosts %q, MaxRetries %d", s.Hosts, s.Options.MaxRetries)
			}
			return
		}
		if !errors.Is(err, ErrForm) && !errors.Is(err, ErrDatabase) && !errors.Is(err, sinkurl.ErrPort) &&
			!errors.Is(err, sinkurl.CheckUser(url)) {
			t.Errorf("the error is %q", err)
		}
	})
}

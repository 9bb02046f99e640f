package redisscript

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
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
		o, hosts, err := ParseURL(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
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
		o, hosts, err := ParseURL(url)
		if err == nil {
			if len(hosts) == 0 || slices.Contains(hosts, "") || o.MaxRetries != -1 {
				t.Errorf("hosts %q, MaxRetries %d", hosts, o.MaxRetries)
			}
			return
		}
		if !errors.Is(err, ErrURL) && !errors.Is(err, ErrDatabase) {
			t.Errorf("the error is %q", err)
		}
	})
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for url, says := range map[string]string{
		"redis://h": "", "redis://u:p@h:6379/0": "", "redis://h1:7000,h2:7001": "", "redis://[::1]:6379": "",
		"unix:///run/redis.sock": "", "redis://:99999@h": "",
		"redis://h:99999/0": "65535", "redis://h:0": "65535", "redis://h1:7000,h2:70001": "65535",
		"redis://u:hunter2@h:x": "65535", "redis://u:hunter2@h/x": "not of the form", "redis://u:hunt/er2@h": "%2F",
		"redis://h?hunter2=1":            "parameter that nobody knows",
		"redis://h?read_timeout=hunter2": "value that one does not take",
	} {
		err := CheckURL(url)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) ||
			err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got error %v, want %q", url, err, says)
		}
	}
}

func TestPlaintext(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis://cache:6379/0": "[cache]", "redis://u:p@10.0.0.7": "[10.0.0.7]",
		"redis://[2001:db8::1]:6379":    "[2001:db8::1]",
		"redis://a:1,localhost:2,b:3/0": "[a b]",
		"redis://127.0.0.1:6379":        "[]", "redis://localhost": "[]", "redis://[::1]:6379/0?db=1": "[]",
		"rediss://cache:6379": "[]", "unix:///run/redis.sock": "[]",
	} {
		if got := fmt.Sprint(Plaintext(url)); got != want {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
}

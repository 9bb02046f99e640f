package webhook

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/sinks"
	"github.com/outboxrelay/outbox/sink"
)

func TestURLs(t *testing.T) {
	t.Parallel()
	registry, err := sinks.NewRegistry(Driver())
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{ // what is wrong with it, or its mask
		"webhook:endpoints.yaml":                               "webhook:endpoints.yaml",
		"webhook:/etc/outbox/e.yaml?cloudevents=binary":        "webhook:/etc/outbox/e.yaml",
		"webhook:///etc/outbox/e.yaml":                         "webhook:/etc/outbox/e.yaml",
		"webhook:e?proxy=http://user:hunter2@egress:4750":      "webhook:e",
		"webhook:e?allow=private,http&allow=10.0.0.0/8":        "webhook:e",
		"webhook:e?ports=1,65535":                              "webhook:e",
		"webhook:":                                             "not of the form",
		"webhook:?allow=http":                                  "not of the form",
		"webhook://host/e":                                     "not of the form",
		"webhook:e?cloudevents=hunter2":                        "cloudevents is none of",
		"webhook:e?allow=hunter2":                              "allow is none of",
		"webhook:e?allow=10.0.0.1":                             "allow is none of",
		"webhook:e?schedule=5s,1m":                             "webhook:e",
		"webhook:e?schedule=5":                                 "schedule is none of",
		"webhook:e?schedule=-5s":                               "schedule is none of",
		"webhook:e?ports=0":                                    "ports is none of",
		"webhook:e?ports=65536":                                "ports is none of",
		"webhook:e?proxy=hunter2":                              "Proxy is not of the form",
		"webhook:e?timeout=1s":                                 `unknown parameter "timeout"`,
		"webhook:e?allow=http%zz":                              "not of the form name=value",
		"webhook:e?proxy=socks5://user:hunter2@egress:1":       "Proxy is not of the form",
		"webhook:e?cloudevents=x&ports=y&allow=z&hunter=hunt2": "unknown parameter",
	} {
		err := registry.Check(url)
		if strings.HasPrefix(want, "webhook:") {
			if got := registry.Mask(url); err != nil || got != want {
				t.Errorf("%s: %v, masked %q, want %q", url, err, got, want)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
		if strings.Contains(registry.Mask(url), "hunter2") {
			t.Errorf("%s is masked as %s", url, registry.Mask(url))
		}
	}
}

func TestParametersReachTheSink(t *testing.T) {
	t.Parallel()
	path := write(t, filepath.Join(t.TempDir(), "e.yaml"), "")
	s, err := Open(t.Context(),
		"webhook:"+path+"?cloudevents=binary&allow=http,10.0.0.0/8&allow=fd00::/8&ports=443,9443&proxy=http://egress:4750",
		Config{})
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	if c := s.cfg; !c.Binary || !c.AllowHTTP || c.AllowPrivate || !slices.Equal(c.Allow, want) ||
		fmt.Sprint(c.Ports) != "[443 9443]" || c.Proxy.Host != "egress:4750" {
		t.Errorf("it is %+v", c)
	}
}

// Open says what waiting does not cure; the hint is for its errors and no others.
func TestOpenFails(t *testing.T) {
	t.Parallel()
	d := Driver()
	broken := write(t, filepath.Join(t.TempDir(), "e"), "a: b")
	for _, url := range []string{"webhook:/nowhere/e.yaml", "webhook:" + broken} {
		_, err := d.Open(t.Context(), url, sink.Options{})
		if err == nil {
			t.Fatalf("%s is opened", url)
		}
		if class, _ := outbox.Classify(err); class == outbox.ClassUnavailable {
			t.Errorf("%s: waiting does not cure %v", url, err)
		}
		if d.Hint(err) == "" {
			t.Errorf("there is no hint for %v", err)
		}
	}
	if hint := d.Hint(errors.New("connect to Redis")); hint != "" {
		t.Errorf("the hint for another's error is %q", hint)
	}
}

func TestPlaintext(t *testing.T) {
	t.Parallel()
	path := write(t, filepath.Join(t.TempDir(), "e.yaml"), `endpoints:
  - {name: a, url: "http://a.example", secrets: [`+string(key)+`]}
  - {name: b, url: "http://localhost:8080", secrets: [`+string(key)+`]}
  - {name: c, url: "https://c.example", secrets: [`+string(key)+`]}
  - {name: d, url: "http://d.example", secrets: [`+string(key)+`], disabled: true}
`)
	for url, want := range map[string]string{
		path + "?allow=http": "[a.example]", path: "[]", "/nowhere?allow=http": "[]",
	} {
		if got := fmt.Sprint(Driver().Plaintext("webhook:" + url)); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}

// Whatever a URL is, no function of the driver panics, and what is masked has no parameter.
func FuzzURL(f *testing.F) {
	f.Add("webhook:/e.yaml?proxy=http://u:p@h&allow=10.0.0.0/8&ports=1")
	f.Add("webhook:///?%zz")
	d := Driver()
	f.Fuzz(func(t *testing.T, rest string) {
		url := "webhook:" + rest
		_ = d.Check(url)
		if strings.Contains(d.Mask(url), "?") {
			t.Errorf("%q is masked as %q", url, d.Mask(url))
		}
	})
}

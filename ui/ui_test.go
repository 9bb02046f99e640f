package ui

import (
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
)

const firstLoad = 220 << 10 // bytes that a first look at the page may cost

func ask(t *testing.T, h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func body(t *testing.T, r io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var linked = regexp.MustCompile(`(?:src|href)="\./([^"]+)"`)

// The page behind a prefix: all that it links to is there, by relative URLs, for good, and within
// the budget.
func TestFirstLoad(t *testing.T) {
	h := http.StripPrefix("/a/prefix/ui", Handler())
	index := ask(t, h, http.MethodGet, "/a/prefix/ui/")
	page := body(t, index.Body)
	if got := index.Header().Get("Cache-Control"); got != "no-cache" {
		t.Errorf("the page's Cache-Control is %q", got)
	}
	if !strings.Contains(page, "<noscript>") || !strings.Contains(page, "outbox doctor") {
		t.Error("who has no JavaScript is not told of outbox doctor")
	}
	if regexp.MustCompile(`<script(?:[^>]*)>[^<]|<style|style=|https?://`).MatchString(page) {
		t.Errorf("the page has something inline, or names another host:\n%s", page)
	}
	links := linked.FindAllStringSubmatch(page, -1)
	if len(links) < 3 {
		t.Fatalf("the page links to %d files", len(links))
	}
	size := len(page)
	for _, link := range links {
		r := ask(t, h, http.MethodGet, "/a/prefix/ui/"+link[1], "Accept-Encoding", "br, gzip")
		text := body(t, r.Body)
		size += len(text)
		if r.Code != http.StatusOK || r.Header().Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: %d, %q", link[1], r.Code, r.Header().Get("Content-Encoding"))
		}
		if strings.HasPrefix(link[1], "assets/") && !strings.Contains(r.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: Cache-Control %q", link[1], r.Header().Get("Cache-Control"))
		}
	}
	fonts, err := fs.Glob(built, "dist/assets/geist-latin-wght-*.woff2")
	if err != nil || len(fonts) != 1 {
		t.Fatalf("fonts of the first load: %q, %v", fonts, err)
	}
	font, err := fs.Stat(built, fonts[0])
	if err != nil {
		t.Fatal(err)
	}
	if size += int(font.Size()); size > firstLoad {
		t.Errorf("a first load is %d bytes, more than %d", size, firstLoad)
	}
}

func TestHeaders(t *testing.T) {
	for _, target := range []string{"/", "/icon.svg", "/none"} {
		header := ask(t, Handler(), http.MethodGet, target).Header()
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		} {
			if got := header.Get(name); got != want {
				t.Errorf("GET %s: %s is %q", target, name, got)
			}
		}
	}
}

// A .gz is served to who takes it, is what the file beside it is, and is no address of its own.
func TestCompressed(t *testing.T) {
	for accepted, coding := range map[string]string{
		"gzip": "gzip", "br, GZIP;q=0.5": "gzip", "gzip; q=1.0": "gzip",
		"gzip;q=0": "", "gzip;q=0.000": "", "br": "", "": "",
	} {
		header := ask(t, Handler(), http.MethodGet, "/", "Accept-Encoding", accepted).Header()
		if got := header.Get("Content-Encoding"); got != coding {
			t.Errorf("Accept-Encoding %q: Content-Encoding %q", accepted, got)
		}
	}
	seen := 0
	err := fs.WalkDir(built, "dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".gz" {
			return err
		}
		seen++
		target := strings.TrimPrefix(strings.TrimSuffix(name, ".gz"), "dist")
		if target == "/index.html" {
			target = "/"
		}
		packed, err := gzip.NewReader(ask(t, Handler(), http.MethodGet, target, "Accept-Encoding", "gzip").Body)
		if err != nil {
			return err
		}
		if body(t, packed) != body(t, ask(t, Handler(), http.MethodGet, target).Body) {
			t.Errorf("%s is not what %s is", name, target)
		}
		if r := ask(t, Handler(), http.MethodGet, target+".gz"); target != "/" && r.Code != http.StatusNotFound {
			t.Errorf("%s.gz: %d", target, r.Code)
		}
		return nil
	})
	if err != nil || seen < 3 {
		t.Errorf("%d compressed files: %v", seen, err)
	}
}

// Who follows an old link lands on the page, whatever the prefix; a program learns that there is
// nothing.
func TestMissing(t *testing.T) {
	for target, want := range map[string]string{
		"/letters": "./", "/events/17": "./../", "/assets/": "./../", "/a/b/c": "./../../",
	} {
		r := ask(t, Handler(), http.MethodGet, target, "Accept", "text/html,*/*")
		if got := r.Header().Get("Location"); r.Code != http.StatusFound || got != want {
			t.Errorf("GET %s: %d to %q, want %q", target, r.Code, got, want)
		}
		if r := ask(t, Handler(), http.MethodGet, target, "Accept", "*/*"); r.Code != http.StatusNotFound {
			t.Errorf("GET %s by a program: %d", target, r.Code)
		}
	}
	r := ask(t, Handler(), http.MethodPost, "/")
	if r.Code != http.StatusMethodNotAllowed || r.Header().Get("Allow") == "" {
		t.Errorf("POST /: %d", r.Code)
	}
}

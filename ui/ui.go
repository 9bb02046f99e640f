// Package ui is the operator's page, as files that a browser runs.
//
// Guaranteed: it is complete and asks no other host. Its URLs are relative, so it works under any
// prefix of a proxy.
//
// Not guaranteed: rights. What the page may see and do, the admin API beside it decides.
package ui

import (
	"embed"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

// Vite's names may begin with an underscore, which embed skips without all.
//
//go:embed all:dist
var built embed.FS

// policy allows what comes with the page and nothing else: no inline script, no inline style, no
// other host.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"

// Handler serves the page at its root. Mount it behind [http.StripPrefix]; the page finds the API
// at ../v1/ of its own URL.
func Handler() http.Handler {
	dist, err := fs.Sub(built, "dist")
	if err != nil {
		panic(err) // the name is a constant
	}
	return page{dist}
}

type page struct{ dist fs.FS }

func (p page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "the page is only read: GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	name := strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/")
	if name == "" {
		name = "index.html"
	}
	if info, err := fs.Stat(p.dist, name); err != nil || info.IsDir() || strings.HasSuffix(name, ".gz") {
		p.missing(w, r)
		return
	}
	p.file(w, r, name)
}

// missing leads a person who followed an old link to the page, and tells a program that there is
// nothing.
func (page) missing(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.NotFound(w, r)
		return
	}
	// Relative, since what a proxy or StripPrefix has removed is not known here.
	depth := strings.Count(strings.TrimPrefix(r.URL.Path, "/"), "/")
	w.Header().Set("Location", "./"+strings.Repeat("../", depth))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusFound)
}

func (p page) file(w http.ResponseWriter, r *http.Request, name string) {
	header := w.Header()
	header.Set("Content-Type", contentType(name))
	header.Set("Vary", "Accept-Encoding")
	header.Set("Cache-Control", "no-cache")
	if strings.HasPrefix(name, "assets/") { // their names change with their content
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	served := name
	if _, err := fs.Stat(p.dist, name+".gz"); err == nil && takesGzip(r.Header.Get("Accept-Encoding")) {
		served = name + ".gz"
		header.Set("Content-Encoding", "gzip")
	}
	http.ServeFileFS(w, r, p.dist, served)
}

// contentType does not ask the machine's own table of types, which may know none or call scripts
// text.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".woff2":
		return "font/woff2"
	}
	return mime.TypeByExtension(path.Ext(name))
}

// takesGzip reads Accept-Encoding as RFC 9110, section 12.5.3: a coding with q=0 is refused.
func takesGzip(accepted string) bool {
	for coding := range strings.SplitSeq(accepted, ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";")
		if strings.EqualFold(name, "gzip") {
			return strings.Trim(strings.TrimPrefix(strings.ToLower(weight), "q="), "0.") != "" || weight == ""
		}
	}
	return false
}

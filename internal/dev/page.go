package dev

import (
	_ "embed"
	"net/http"
)

//go:embed page.html
var html []byte

// policy allows the page its own style and script and the API that it is served by, and nothing from anywhere else.
// Inline is as safe here as a hash would be: nothing of a request or a payload is ever written into the page's text.
const policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// page answers with the page that shows runs and a topic.
func page() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache") // another version of the program may answer next time
		_, _ = w.Write(html)               // fails if the browser has gone
	})
}

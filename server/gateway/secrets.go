package gateway

import (
	"regexp"

	"github.com/danielgtaylor/huma/v2"
)

// secrets are tokens and tickets by their beginnings, and the secret of one without it: 52 characters of base32, which
// no id of ours has in a row.
var secrets = regexp.MustCompile(`(?i)ob[xt]_[a-z0-9_]*|[a-z2-7]{40,}`)

// redacted returns text without the tokens and tickets that somebody put where they do not belong: in a path, the name
// of a parameter, the id of a request.
func redacted(text string) string { return secrets.ReplaceAllString(text, "REDACTED") }

// redactProblem does that to what of a request an answer repeats.
func redactProblem(m *huma.ErrorModel) {
	m.Detail = redacted(m.Detail)
	for _, e := range m.Errors {
		e.Message, e.Location = redacted(e.Message), redacted(e.Location)
	}
}

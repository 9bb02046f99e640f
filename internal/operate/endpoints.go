package operate

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
)

// EncodeEndpoint returns the columns of outbox_endpoints that are JSON.
func EncodeEndpoint(name string, secrets any, headers map[string]string) (secretsJSON, headersJSON string, err error) {
	if headers == nil {
		headers = map[string]string{}
	}
	s, err := json.Marshal(secrets)
	if err != nil {
		return "", "", fmt.Errorf("encode the secrets of endpoint %q: %w", name, err)
	}
	h, err := json.Marshal(headers)
	if err != nil {
		return "", "", fmt.Errorf("encode the headers of endpoint %q: %w", name, err)
	}
	return string(s), string(h), nil
}

// NewRevision draws a number so large that the sum over all endpoints is another one after each change, and so small
// that it fits.
func NewRevision() int64 { return 1 + rand.Int64N(1<<44) }

// EndpointNamed is what the record of an action says of its endpoint.
func EndpointNamed(name string) map[string]string { return map[string]string{"endpoint": name} }

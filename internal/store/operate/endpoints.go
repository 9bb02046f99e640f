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

// EncodeSubscription returns the columns of outbox_endpoints that say to what it has subscribed.
func EncodeSubscription(topics, types []string) (topicsJSON, typesJSON string, err error) {
	t, err := json.Marshal(append([]string{}, topics...))
	if err != nil {
		return "", "", err
	}
	y, err := json.Marshal(append([]string{}, types...))
	return string(t), string(y), err
}

// NewRevision draws a number so large that the sum over all endpoints is another one after each change, and so small
// that it fits.
func NewRevision() int64 { return 1 + rand.Int64N(1<<44) }

// EndpointNamed is what the record of an action says of its endpoint.
func EndpointNamed(name string) map[string]string { return map[string]string{"endpoint": name} }

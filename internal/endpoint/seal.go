package endpoint

import (
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/outboxrelay/outbox/sink/webhook"
)

// A secret in a table is sealed by AES-256-GCM: sealed:KEY:TEXT. KEY names the key by a part of its
// SHA-256. TEXT is the nonce and what was encrypted, in base64. What the secret is for is
// authenticated: whoever may write the table, and has no key, can neither give it to another
// endpoint nor have it sent to another place.
const sealedPrefix = "sealed:"

// defaultKey is the variable that has the key if the URL does not say where it is.
const defaultKey = "OUTBOX_ENDPOINT_KEY"

// keyring seals with its first key and opens with any.
type keyring []sealingKey

type sealingKey struct {
	id   string
	aead cipher.AEAD
}

var errNoKey = errors.New("there is no key for the secrets in the table: set OUTBOX_ENDPOINT_KEY to the output of " +
	"openssl rand -base64 32, or name another place by key=env:NAME or key=file:PATH in the sink's URL")

// readKeyring reads the keys that a reference names: one, or several with white space or commas
// between them. A key of the default place may be missing: what needs none, as a list of the
// endpoints, works without.
func readKeyring(reference string) (keyring, error) {
	if _, set := os.LookupEnv(defaultKey); reference == "" && !set {
		return nil, nil
	}
	text, err := webhook.ReadSecret(cmp.Or(reference, "env:"+defaultKey))
	if err != nil {
		return nil, fmt.Errorf("read the key of the endpoints' secrets: %w", err)
	}
	var ring keyring
	for _, one := range strings.FieldsFunc(string(text), func(c rune) bool { return c == ',' || c <= ' ' }) {
		key, err := base64.StdEncoding.DecodeString(one)
		if err != nil || len(key) != 32 {
			return nil, fmt.Errorf("key %d of the endpoints' secrets is not 32 bytes in base64, "+
				"as openssl rand -base64 32 makes them", len(ring)+1)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(key)
		ring = append(ring, sealingKey{hex.EncodeToString(sum[:4]), aead})
	}
	if len(ring) == 0 {
		return nil, errNoKey
	}
	return ring, nil
}

// What a sealed text of a row is.
const (
	aSecret = "secret"
	aHeader = "header " // and its name
)

// use is what a text of the row is for, which is authenticated. Its parts are quoted, so that no
// two uses are the same. The path of the URL is no part of it: it may change, the server may not.
func (r *row) use(as string) []byte {
	return fmt.Appendf(nil, "%q %q %q %q", as, r.Name, r.Tenant, origin(r.URL))
}

// origin is the scheme, host and port of a URL, or the text itself if it is none.
func origin(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return text
	}
	port := cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme])
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// errMoved says that a sealed text is not for the endpoint that has it.
var errMoved = errors.New("its row was changed: what is sealed is for another name, tenant or server, or no more " +
	"what it was. If the URL is right, outbox endpoints rotate makes another secret; a header needs remove and add")

// seal encrypts a secret of an endpoint with the first key.
func (r keyring) seal(text Secret, use []byte) (string, error) {
	if len(r) == 0 {
		return "", errNoKey
	}
	sealed := r[0].aead.Seal(nil, nil, []byte(text), use)
	return sealedPrefix + r[0].id + ":" + base64.StdEncoding.EncodeToString(sealed), nil
}

// open decrypts what seal has returned. The texts of rows come here and to nothing else: a
// reference in a row would let whoever may write the table read the relay's variables and files.
func (r keyring) open(sealed string, use []byte) (Secret, error) {
	rest, ok := strings.CutPrefix(sealed, sealedPrefix)
	switch {
	case strings.HasPrefix(sealed, "env:"), strings.HasPrefix(sealed, "file:"):
		return "", errors.New("it is a reference, which only a file of endpoints may have: remove the endpoint, " +
			"and let outbox endpoints add seal what it refers to")
	case !ok:
		return "", errors.New("it is not sealed: remove the endpoint, and let outbox endpoints add seal it")
	case len(r) == 0:
		return "", errNoKey
	}
	id, text, _ := strings.Cut(rest, ":")
	for _, key := range r {
		if key.id != id {
			continue
		}
		var plain []byte
		all, err := base64.StdEncoding.DecodeString(text)
		if err == nil {
			plain, err = key.aead.Open(nil, nil, all, use)
		}
		if err != nil {
			return "", errMoved // the cause says no more
		}
		return Secret(plain), nil
	}
	return "", fmt.Errorf("it is sealed with key %s, which is none of those given", id)
}

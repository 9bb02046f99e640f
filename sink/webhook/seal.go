package webhook

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
)

// A secret in a table that is no reference is sealed by AES-256-GCM: sealed:KEY:TEXT. KEY names the key by a part of
// its SHA-256. TEXT is the nonce and what was encrypted, in base64. The endpoint's name and the use of the secret are
// authenticated, so that no row can be given the secret of another.
const sealedPrefix = "sealed:"

// defaultKey is where the key is looked for if the URL does not say.
const defaultKey = "env:OUTBOX_ENDPOINT_KEY"

// keyring seals with its first key and opens with any.
type keyring []sealingKey

type sealingKey struct {
	id   string
	aead cipher.AEAD
}

var errNoKey = errors.New("there is no key for the secrets in the table: set OUTBOX_ENDPOINT_KEY to the output of " +
	"openssl rand -base64 32, or name another place by key=env:NAME or key=file:PATH in the sink's URL")

// readKeyring reads the keys that a reference names: one, or several with white space or commas between them. A key of
// the default place may be missing, where all secrets are references.
func readKeyring(reference string) (keyring, error) {
	if reference == "" {
		if _, set := os.LookupEnv(strings.TrimPrefix(defaultKey, "env:")); !set {
			return nil, nil
		}
		reference = defaultKey
	}
	text, err := resolve(reference, "", os.LookupEnv, map[string]stamp{})
	if err != nil {
		return nil, fmt.Errorf("read the key of the endpoints' secrets: %w", err)
	}
	var ring keyring
	for _, one := range strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c <= ' ' }) {
		key, err := base64.StdEncoding.DecodeString(one)
		if err != nil || len(key) != 32 {
			return nil, fmt.Errorf("key %d of the endpoints' secrets is not 32 bytes in base64, as openssl rand -base64 32 "+
				"makes them", len(ring)+1)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCM(block)
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

// seal encrypts a secret of an endpoint with the first key.
func (r keyring) seal(text, endpoint, use string) (string, error) {
	if len(r) == 0 {
		return "", errNoKey
	}
	nonce := make([]byte, r[0].aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return "", err
	}
	sealed := r[0].aead.Seal(nonce, nonce, []byte(text), bound(endpoint, use))
	return sealedPrefix + r[0].id + ":" + base64.StdEncoding.EncodeToString(sealed), nil
}

// open decrypts what seal has returned.
func (r keyring) open(sealed, endpoint, use string) (string, error) {
	id, text, _ := strings.Cut(strings.TrimPrefix(sealed, sealedPrefix), ":")
	if len(r) == 0 {
		return "", errNoKey
	}
	for _, key := range r {
		if key.id != id {
			continue
		}
		all, err := base64.StdEncoding.DecodeString(text)
		if n := key.aead.NonceSize(); err == nil && len(all) > n {
			if plain, err := key.aead.Open(nil, all[:n], all[n:], bound(endpoint, use)); err == nil {
				return string(plain), nil
			}
		}
		return "", errors.New("what is sealed was changed, or belongs to another endpoint: rotate it")
	}
	return "", fmt.Errorf("it is sealed with key %s, which is none of those given", id)
}

// current tells whether a text needs no sealing any more.
func (r keyring) current(text string) bool {
	return isReference(text) || len(r) > 0 && strings.HasPrefix(text, sealedPrefix+r[0].id+":")
}

func bound(endpoint, use string) []byte { return []byte(use + "\x00" + endpoint) }

package webhook

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// What secrets begin with (Standard Webhooks 1.0.0, "Signature scheme").
const (
	symmetric  = "whsec_"
	asymmetric = "whsk_"
)

// The sizes of symmetric secrets, in bytes.
const (
	minSecret = 24
	maxSecret = 64
)

// signer returns a signature with its version over the parts of a content.
type signer func(parts ...[]byte) string

// newSigner reads a secret. Its errors go on after "secret n", and show nothing of it.
func newSigner(secret string) (signer, error) {
	text, isSymmetric := strings.CutPrefix(secret, symmetric)
	if !isSymmetric {
		var ok bool
		if text, ok = strings.CutPrefix(secret, asymmetric); !ok {
			return nil, fmt.Errorf("begins neither with %s nor with %s", symmetric, asymmetric)
		}
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("is not base64 after its prefix") // the cause would show where
	}
	if isSymmetric {
		if len(key) < minSecret || len(key) > maxSecret {
			return nil, fmt.Errorf("has %d bytes, must have %d to %d", len(key), minSecret, maxSecret)
		}
		return func(parts ...[]byte) string { return "v1," + base64.StdEncoding.EncodeToString(sum(key, parts)) }, nil
	}
	private, err := privateKey(key)
	if err != nil {
		return nil, err
	}
	return func(parts ...[]byte) string {
		return "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(private, bytes.Join(parts, nil)))
	}, nil
}

func sum(key []byte, parts [][]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, part := range parts {
		_, _ = h.Write(part) // a hash takes everything
	}
	return h.Sum(nil)
}

func privateKey(key []byte) (ed25519.PrivateKey, error) {
	switch len(key) {
	case ed25519.SeedSize:
		return ed25519.NewKeyFromSeed(key), nil
	case ed25519.PrivateKeySize:
		private := ed25519.NewKeyFromSeed(key[:ed25519.SeedSize])
		if !bytes.Equal(private, key) {
			return nil, errors.New("has a public key that does not belong to its seed")
		}
		return private, nil
	}
	return nil, fmt.Errorf("has %d bytes, must have %d (a seed) or %d (seed and public key)",
		len(key), ed25519.SeedSize, ed25519.PrivateKeySize)
}

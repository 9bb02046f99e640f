package webhook

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/outboxrelay/outbox"
)

// verified checks a signature with the project's own verifier.
func verified(t *testing.T, secret Secret, got received) {
	t.Helper()
	verifier, err := standardwebhooks.NewWebhook(string(secret))
	if err != nil {
		t.Fatal(err)
	}
	if err := verifier.Verify(got.body, got.header); err != nil {
		t.Errorf("signature %q: %v", got.header.Get("webhook-signature"), err)
	}
	changed := append(got.body[:len(got.body):len(got.body)], ' ')
	if verifier.Verify(changed, got.header) == nil {
		t.Error("a body that was changed is verified")
	}
}

// verifiedAsymmetric checks a signature v1a as Standard Webhooks describes it. The official
// verifier for Go knows v1 only.
func verifiedAsymmetric(t *testing.T, public ed25519.PublicKey, got received) {
	t.Helper()
	content := fmt.Appendf(nil, "%s.%s.%s", got.header.Get("webhook-id"), got.header.Get("webhook-timestamp"), got.body)
	for text := range strings.SplitSeq(got.header.Get("webhook-signature"), " ") {
		signature, isAsymmetric := strings.CutPrefix(text, "v1a,")
		if !isAsymmetric {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(signature)
		if err != nil || !ed25519.Verify(public, content, raw) {
			t.Errorf("signature %q does not verify: %v", text, err)
		}
		return
	}
	t.Errorf("there is no signature v1a in %q", got.header.Get("webhook-signature"))
}

// Each of several secrets signs what is sent, byte by byte, in both modes and with every kind of
// payload.
func TestSignatures(t *testing.T) {
	t.Parallel()
	former := Secret(symmetric + base64.StdEncoding.EncodeToString([]byte("another secret of 32 bytes......")))
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	seed := Secret(asymmetric + base64.StdEncoding.EncodeToString(private.Seed()))
	both := Secret(asymmetric + base64.StdEncoding.EncodeToString(private))
	for _, binary := range []bool{false, true} {
		for _, payload := range []string{`{"total": 1}`, `"€ \u0000 <>&"`, "null", `{ "a" :  [ 1.0, 1e3 ] }`,
			`"` + strings.Repeat("x", 1<<20) + `"`} {
			r := receive(t, nil)
			e := r.endpoint("acme")
			e.Secrets = []Secret{key, former, seed}
			cfg := local
			cfg.Binary = binary
			s := open(t, newBook(e), cfg)
			d := event(t, "acme", 1)
			d.Payload = json.RawMessage(payload)
			wantDelivered(t, s.Publish(t.Context(), []outbox.Delivery{d}))
			got := r.requests()[0]
			verified(t, key, got)
			verified(t, former, got)
			verifiedAsymmetric(t, public, got)
			if n := len(strings.Split(got.header.Get("webhook-signature"), " ")); n != 3 {
				t.Errorf("%d signatures, want 3", n)
			}
			if binary && string(got.body) != payload {
				t.Errorf("the body is %.100s, want the payload", got.body)
			}
		}
	}
	sign, err := newSigner(string(both))
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{"Webhook-Id": {"a"}, "Webhook-Timestamp": {"1"},
		"Webhook-Signature": {sign([]byte("a.1."), []byte("{}"))}}
	verifiedAsymmetric(t, public, received{header: h, body: []byte("{}")})
}

// The id is the event's, the same at each attempt; a replay has another. It has no full stop.
func TestMessageID(t *testing.T) {
	t.Parallel()
	r := receive(t, func(w http.ResponseWriter, _ received, n int) {
		w.WriteHeader(map[bool]int{true: http.StatusInternalServerError, false: http.StatusOK}[n == 0])
	})
	s := open(t, newBook(r.endpoint("acme")), local)
	d := event(t, "acme", 1)
	wantClass(t, one(t, s, d), outbox.ClassRetryAfter)
	again := d
	record := *d.Record
	record.Attempts, record.Generation = 1, 0
	again.Record = &record
	wantDelivered(t, s.Publish(t.Context(), []outbox.Delivery{again}))
	replayed := record
	replayed.Generation = 2
	again.Record = &replayed
	wantDelivered(t, s.Publish(t.Context(), []outbox.Delivery{again}))
	ids := r.ids()
	for _, got := range r.requests() {
		verified(t, key, got)
	}
	want := []string{d.ID.String(), d.ID.String(), d.ID.String() + "_2"}
	if fmt.Sprint(ids) != fmt.Sprint(want) || strings.Contains(strings.Join(ids, ""), ".") {
		t.Errorf("the ids are %q, want %q", ids, want)
	}
}

func TestBadSecrets(t *testing.T) {
	t.Parallel()
	encode := func(prefix string, size int) string {
		return prefix + base64.StdEncoding.EncodeToString(make([]byte, size))
	}
	for secret, want := range map[string]string{
		"":                     "begins neither with",
		"hunter2":              "begins neither with",
		"whsec_hunter2!":       "is not base64",
		"whsk_hunter2!":        "is not base64",
		encode(symmetric, 23):  "has 23 bytes",
		encode(symmetric, 65):  "has 65 bytes",
		encode(asymmetric, 31): "has 31 bytes",
		encode(asymmetric, 64): "does not belong to its seed",
	} {
		_, err := newSigner(secret)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("secret %q: %v, want %q", secret, err, want)
		}
	}
	for _, size := range []int{24, 64} {
		if _, err := newSigner(encode(symmetric, size)); err != nil {
			t.Errorf("a secret of %d bytes: %v", size, err)
		}
	}
}

// No way to print an endpoint shows a secret.
func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	e := Endpoint{Name: "acme", URL: "https://user:hunter2@acme.example/hook?token=hunter2#hunter2",
		Secrets: []Secret{"hunter2"}, Headers: map[string]Secret{"Authorization": "hunter2"}}
	masked := e
	masked.URL = ""
	text, err := json.Marshal(masked)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "e", masked)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "e", masked)
	all := fmt.Sprintf("%v %+v %#v %s %q %x ", masked, masked, masked, masked.Secrets, masked.Secrets, 1) +
		string(text) + log.String()
	if strings.Contains(all, "hunter2") {
		t.Errorf("a secret is printed: %s", all)
	}
	_, err = newTarget(e, Config{})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the problems are %v", err)
	}
}

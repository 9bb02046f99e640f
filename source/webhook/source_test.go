package webhook

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// The signature covers webhook-id and the body. A party that repeats a request can add any other header.
func TestAttributesComeFromWhatIsSigned(t *testing.T) {
	t.Parallel()
	const id = "018f0000-0000-7000-8000-000000000001"
	unsigned := map[string]string{"ce-specversion": "1.0", "ce-id": "018f0000-0000-7000-8000-0000000000ff",
		"ce-type": "invoice.paid", "ce-source": "bank", "ce-tenantid": "beta", "ce_tenantid": "beta",
		"cloudEvents:tenantid": "beta", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	for _, trusting := range []bool{false, true} {
		s, err := New(Config{Secrets: []string{secret}, TrustHeaders: trusting})
		if err != nil {
			t.Fatal(err)
		}
		signer, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		now, body := time.Now(), `{"n": 1}`
		signature, err := signer.Sign(id+"_2", now, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
		for name, value := range unsigned {
			r.Header.Set(name, value)
		}
		r.Header.Set("webhook-id", id+"_2")
		r.Header.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
		r.Header.Set("webhook-signature", signature)
		if !s.verified([]byte(body), r.Header) {
			t.Fatal("the signature does not fit")
		}
		m := s.message([]byte(body), r.Header)
		if m.Attributes["id"] != id || m.Place != "webhook/"+id+"_2" {
			t.Errorf("trusting headers %t: id %q, place %q, want those of webhook-id", trusting, m.Attributes["id"], m.Place)
		}
		if got := m.Attributes["tenantid"] + m.Attributes["traceparent"]; (got != "") != trusting {
			t.Errorf("trusting headers %t: attributes %v", trusting, m.Attributes)
		}
	}
}

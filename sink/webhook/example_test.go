package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/sink/webhook"
)

// A receiver of one's own on the same machine. A receiver on the Internet needs no Config.
func Example() {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.Header.Get("webhook-id"), r.Header.Get("webhook-signature")[:3])
	}))
	defer receiver.Close()

	sink, err := webhook.New(webhook.List{{
		Name: "acme", URL: receiver.URL,
		Secrets: []webhook.Secret{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="},
	}}, webhook.Config{AllowPrivate: true, AllowHTTP: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sink.Close() }()

	// A relay does this with what it has claimed: relay.New(db, sink, relay.Config{}).
	event := outbox.Event{ID: uuid.MustParse("01975f1e-7bd0-7000-8000-000000000001"), Topic: "order.placed",
		Payload: json.RawMessage(`{"total":1}`)}
	results := sink.Publish(context.Background(), []outbox.Delivery{{
		Record: &outbox.Record{Event: event}, Destination: "acme",
	}})
	fmt.Println("error:", results[0].Err)
	// Output:
	// POST 01975f1e-7bd0-7000-8000-000000000001 v1,
	// error: <nil>
}

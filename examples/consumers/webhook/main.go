// Command webhook ships the orders that are posted to it by Standard Webhooks. It needs DATABASE_URL, LISTEN (:8080)
// and WEBHOOK_SECRET (whsec_…). TLS is left to a proxy before it.
//
// The answer is the acknowledgement: without a 2xx the event is posted again. Its webhook-id is another one after an
// operator's replay; the id of the CloudEvent in the body stays.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/outboxrelay/outbox/examples/consumers/shipping"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := consume(ctx, os.Getenv("DATABASE_URL"), os.Getenv("LISTEN"), os.Getenv("WEBHOOK_SECRET")); err != nil {
		log.Fatal(err)
	}
}

func consume(ctx context.Context, databaseURL, listen, secret string) error {
	db, err := shipping.Open(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer db.Close()
	verifier, err := standardwebhooks.NewWebhook(secret)
	if err != nil || secret == "" { // an empty secret would verify what anybody signs
		return errors.New("WEBHOOK_SECRET is not of the form whsec_ and base64")
	}
	server := http.Server{Addr: listen, Handler: receiver(db, verifier), ReadTimeout: 10 * time.Second}
	ended := make(chan error)
	// Shutdown answers what is being handled.
	context.AfterFunc(ctx, func() { ended <- server.Shutdown(context.WithoutCancel(ctx)) })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return <-ended
}

func receiver(db *pgxpool.Pool, verifier *standardwebhooks.Webhook) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 2<<20))
		if err != nil {
			http.Error(w, "the body is too large, or broken off", http.StatusBadRequest)
			return
		}
		// The signature is of these bytes. It also tells that the message is not an old one.
		if err := verifier.Verify(body, r.Header); err != nil {
			http.Error(w, "the signature does not fit", http.StatusUnauthorized)
			return
		}
		if err := shipping.Handle(r.Context(), db, body); err != nil {
			log.Print(err)
			http.Error(w, "not shipped: post it again", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

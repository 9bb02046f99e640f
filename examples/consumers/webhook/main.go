// Command webhook ships the orders that are posted to it by Standard Webhooks. It needs
// DATABASE_URL, LISTEN (:8080) and WEBHOOK_SECRET (whsec_…). TLS is left to a proxy before it. The
// answer is the acknowledgement: without a 2xx the event is posted again.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/outboxrelay/outbox/examples/consumers/shipping"
	"github.com/outboxrelay/outbox/source/webhook"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := consume(ctx, os.Getenv("DATABASE_URL"), os.Getenv("LISTEN"), os.Getenv("WEBHOOK_SECRET")); err != nil {
		log.Fatal(err)
	}
}

func consume(ctx context.Context, databaseURL, listen, secret string) error {
	from, err := webhook.New(webhook.Config{Secrets: []string{secret}})
	if err != nil {
		return err
	}
	server := http.Server{Addr: listen, Handler: from, ReadTimeout: 10 * time.Second}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() {
		defer stop()
		served <- server.ListenAndServe()
	}()
	err = shipping.Run(ctx, databaseURL, from)
	if err = errors.Join(err, server.Close()); err != nil {
		return err
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

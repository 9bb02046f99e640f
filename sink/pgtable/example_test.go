package pgtable_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/outboxrelay/outbox/sink/pgtable"
)

// A sink for a relay, on the receiver's database.
func ExampleOpen() {
	ctx := context.Background()
	sink, err := pgtable.Open(ctx, "postgres://relay@receiver:5432/shop?sslmode=verify-full", pgtable.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = sink.Close() }()
	_ = sink // relay.New(database, sink, relay.Config{})
}

// What the receiver's migrations have for the destination shop.inbox.
func ExampleCreateTable() {
	sql, err := pgtable.CreateTable("shop.inbox")
	if err != nil {
		log.Fatal(err)
	}
	first, _, _ := strings.Cut(sql, "\n")
	fmt.Println(first)
	// Output: CREATE TABLE IF NOT EXISTS "shop"."inbox" (
}

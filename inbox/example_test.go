package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/store/postgres"
)

// An order is shipped once, however often its message comes.
func ExampleInbox_Once() {
	ship := func(context.Context, pgx.Tx, []byte) error { return nil }
	handle := func(ctx context.Context, db *pgxpool.Pool, id string, data []byte) error {
		in, err := postgres.NewInbox(inbox.Config{Consumer: "shipping"}) // or sqlite.NewInbox, postgres.NewSQLInbox
		if err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			result, err := in.Once(ctx, tx, inbox.ID{Event: id, Payload: data}, func() error { return ship(ctx, tx, data) })
			fmt.Println(result) // Done, or Duplicate
			return err
		})
	}
	fmt.Println(handle != nil)
	// Output: true
}

// A mail is sent once, as far as the mail's server recognises its id, and never while another
// process sends it.
func ExampleInbox_Claim() {
	send := func(ctx context.Context, db *pgxpool.Pool, in *inbox.Inbox[pgx.Tx], id string) error {
		var claim *inbox.Claim[pgx.Tx]
		err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) (err error) {
			claim, err = in.Claim(ctx, tx, inbox.ID{Event: id}, time.Minute)
			return err
		})
		switch {
		case errors.Is(err, inbox.ErrClaimed):
			return fmt.Errorf("do not acknowledge: %w", err)
		case err != nil || claim.Answered():
			return err
		}
		number := "250 queued as " + id // of the mail's server, which was given the id
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return claim.Done(ctx, tx, []byte(number)) })
	}
	in, err := postgres.NewInbox(inbox.Config{Consumer: "mail"})
	if err != nil {
		panic(err)
	}
	fmt.Println(in.Window(), send != nil)
	// Output: 360h0m0s true
}

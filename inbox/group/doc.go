// Package group handles events in your own functions: a group of processes that share the events of
// a table, each event handled once, in the order of its key.
//
//	g, err := group.New(db, postgres.Transactions(pool), group.Config{Name: "billing"})
//	group.Handle(g, "order.placed", func(ctx context.Context, tx pgx.Tx, m group.Message[Order]) error {
//		return charge(ctx, tx, m.Data)
//	})
//	err = g.Run(ctx)
//
// A group is a relay whose sink is your function. So lanes, leases, retries, pauses, dead letters
// and replay are those of package relay, and operators know them already. What it adds is the
// transaction: a handler's effect and the id of its event are committed together (package inbox),
// so that a copy has no effect.
//
// Guaranteed: each event has its effect once, if the effect is in the handler's transaction; or it
// is a dead letter with its reason. Per key, no event is handled before an earlier one has been
// handled or is a dead letter. An event that fails holds up its own key, and no other. Each group
// of a log has its own outcome for an event, and its own letters; a table that is no log has one
// group, or one relay.
//
// Not guaranteed: anything about effects outside of the transaction. For those there is
// inbox.Claim.
package group

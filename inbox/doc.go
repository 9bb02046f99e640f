// Package inbox makes an effect happen once where events are consumed, although every sink delivers
// at least once.
//
// An [Inbox] remembers ids in the database that has the effect, in the effect's own transaction:
//
//	in, err := postgres.NewInbox(inbox.Config{Consumer: "billing"})
//	…
//	result, err := in.Once(ctx, tx, inbox.ID{Event: id, Payload: body}, func() error { return charge(ctx, tx, order) })
//
// Guaranteed: of all copies of an event, in any number of processes, at most one has the effect,
// for as long as the window lasts; and exactly one if its transaction is tried until it commits. An
// id is remembered by consumer and by tenant, so that two consumers on one database do not take
// each other's events for copies.
//
// Not guaranteed: anything about effects outside of the database. For those there is [Inbox.Claim].
package inbox

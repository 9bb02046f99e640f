// Package deadletter is what an operator does with deliveries and jobs that failed for good: look,
// replay, discard, purge. It also takes letters of failed jobs from any job runner.
//
// Guaranteed: a replay puts an event back under its own id, in pages that are transactions. What a
// page replayed is marked in the same transaction that revived it. So a replay that was stopped, or
// run by two people at once, replays each letter once. The letters of a key go in the order of its
// events. Every change leaves its record, with who and why, in its own transaction.
//
// Not guaranteed: that a subscriber has not seen a replayed event before. A delivery can fail
// although its message arrived (a lost reply); and because a replay raises the event's generation,
// no sink refuses it as a copy. The event id stays the same, for the consumer's inbox. Nor that a
// key is in order: events after a dead letter were delivered meanwhile. A store's preview tells
// which keys that concerns.
//
// It contains no SQL: package store/postgres keeps the letters.
package deadletter

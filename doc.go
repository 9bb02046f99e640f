// Package outbox is a transactional outbox: commit an event with your data, and it arrives.
//
// A service that writes to its database and to a broker separately loses or invents events. Here the event is a row,
// inserted by a [Writer] in the transaction that changes the data, and a [Relay] delivers it afterwards.
//
//	write  ->  claim  ->  publish  ->  settle (delivered | retry | dead)  ->  replay
//
// # The relay
//
// One Relay serves one table. Each turn of its loop is three steps, one file each:
//
//	claim    claim.go    read the oldest undelivered rows of the lanes it holds a lease on; no row lock, no write
//	publish  publish.go  hand them to the Sink as one batch; no transaction is open meanwhile
//	settle   settle.go   one statement marks what was delivered, what is retried and when, what is dead
//
// # What is guaranteed
//
//   - A rolled-back transaction is never delivered. A committed event is delivered to every destination at least once
//     or is visible as a dead letter.
//   - Per ordering key, no event is delivered before an earlier one has been delivered or dead-lettered. Two open
//     transactions that write the same key have no order between them unless the Writer uses [Strict].
//   - A crash between publish and settle publishes the batch again. A Sink that remembers event ids refuses the copy;
//     see the Sink's own package for its window.
//   - A broker that is down costs no attempts: the table fills, then drains.
//
// # What is not
//
// Events without a key have no order. Delivery to Redis Pub/Sub reaches whoever is subscribed at that moment.
//
// This package knows no database and no broker: package store/postgres is a [Store], packages below sink are Sinks.
package outbox

// Package outbox is a transactional outbox: commit an event with your data, and it arrives.
//
// A service that writes to its database and to a broker separately loses or invents events. Here
// the event is a row, inserted by a [Writer] in the transaction that changes the data, and a relay
// (package relay) delivers it afterwards.
//
//	write  ->  claim  ->  publish  ->  settle (delivered | retry | dead)  ->  replay
//
// # What is guaranteed
//
//   - A rolled-back transaction is never delivered. A committed event is delivered to every
//     destination at least once or is visible as a dead letter.
//   - Per ordering key, no event is delivered before an earlier one has been delivered or
//     dead-lettered; per key and sink, where routes send events to several. Two open transactions
//     that write the same key have no order between them unless WriterConfig.Strict says so.
//   - A crash between publish and settle publishes the batch again. A Sink that remembers event ids
//     refuses the copy; see the Sink's own package for its window.
//   - A broker that is down costs no attempts: the table fills, then drains.
//
// # What is not
//
// Events without a key have no order, unless the layout makes them a sequence
// (Layout.KeylessScope, as EventOutbox does). Delivery to Redis Pub/Sub reaches whoever is
// subscribed at that moment.
//
// This package has the words that producers, sinks and stores share, and knows no loop, no database
// and no broker. Package relay has the loop. Packages store/postgres and store/sqlite have a
// [Database], packages below sink are Sinks.
//
// # Words
//
//	lane        a partition, or shard: one of 64 into which the keys of a table fall; one relay serves it at a time
//	lease       the right to serve lanes until a time; taken and renewed in the database
//	epoch       a fencing token: the number of a lane's takeovers, which every settle must know
//	claim       to read the next records of one's lanes; what others call fetch or poll
//	settle      to record what became of published records; what brokers call acknowledge
//	position    the order of rows in a table; within a key it is the order of delivery
//	key         what must stay in order, such as an aggregate's id
//	destination the name at the sink: channel, topic, subject, queue or URL
//	sink        what publishes to a broker or endpoint
//	letter      a dead letter: a delivery that was given up, with its errors
//	replay      to deliver again what is dead, or what was delivered before
//	generation  how often an event was replayed; a part of its duplicate key
//	trial       quarantine: events of a lane at which relays died, published in small batches, at last one by one
package outbox

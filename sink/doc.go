// Package sink is how a program that is told of its sinks by URLs, such as the command outbox,
// opens them: a Driver knows the URLs of some schemes. Each kind of sink is a folder below this one
// that exports a Driver. A program that opens its sink itself needs none of it but Limit.
//
//	s, err := kafka.Driver().Open(ctx, "kafka://broker:9092", sink.Options{})
//
// # What is guaranteed
//
//   - What Limit returns gives its sink no more than the limits allow, and counts no attempt for
//     what had no time.
//
// # What is not
//
//   - That a driver keeps what its fields ask for. Package outboxtest has the suite for what its
//     sinks publish.
package sink

// Package sink is how a program that is told of its sinks by URLs, such as the command outbox, opens them: a Driver
// knows the URLs of some schemes, a Registry knows the drivers. Each kind of sink is a folder below this one that
// exports a Driver. A program that opens its sink itself needs none of it.
//
//	registry, err := sink.NewRegistry(redispubsub.Driver(), memory.Driver())
//	driver, err := registry.Find("redis://cache:6379")
//	s, err := driver.Open(ctx, "redis://cache:6379", sink.Options{})
//
// # What is guaranteed
//
//   - Two drivers of one scheme, and a driver that cannot open, are errors of NewRegistry.
//   - A registry shows no more of a URL than its driver's Mask does, and of one that no driver knows, the scheme.
//
// # What is not
//
//   - That a driver keeps what its fields ask for. Package outboxtest has the suite for what its sinks publish.
package sink

// Package source brings the messages of a broker into a table of the consumer's own database, where
// a group (package inbox/group) handles them. Each broker has its folder below; webhooks too.
//
//	from, err := kafka.New(kafka.Config{Brokers: brokers, Group: "billing", Topics: []string{"order.placed"}})
//	…
//	err = source.Run(ctx, from, postgres.Transactions(pool), writer.Write, source.Config{Name: "orders"})
//
// A batch of messages is written in one transaction, together with their ids, and acknowledged
// after the commit. So a handler that fails or is slow holds up its key alone, and neither the
// broker nor a partition.
//
// Guaranteed: each message is a row before its acknowledgement. A message that comes again is no
// second row, for as long as ids are kept, unless it has nothing that tells a copy (RabbitMQ,
// without a message-id). Rows have the order in which the source has received them, and the package
// of each broker says when that is the order of a key. A message that can be no event is one all
// the same, whose payload is a JSON string, so that it blocks nothing and no handler of an object
// takes it: it ends as a DeserializationFailed letter. At most one batch is in memory, beside what
// a client reads ahead.
//
// Not guaranteed: that rows are handled; that is the group's.
package source

// Package readers holds a test for each client of somebody else that reads what the sinks send,
// where Outbox's own tests do not have it: kafkajs, kcat, sarama and the batch format that Kafka's
// Java client reads, and Watermill's subscribers of Redis Streams, Kafka, NATS JetStream and
// RabbitMQ. Kafka is kfake, as in the sink's own tests. It is a module of its own, so what it needs
// costs nobody anything.
//
// make readers runs it.
package readers

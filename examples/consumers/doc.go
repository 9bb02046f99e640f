// Package consumers holds one program for each sink: it takes the events of a service and ships the
// orders in them, each order once, although messages may come twice. What they share is package
// shipping beside them.
//
// A program writes messages into the log of its own database, acknowledges them, and handles the
// log. An order that cannot be shipped becomes a dead letter, and holds up no other key.
package consumers

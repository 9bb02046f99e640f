// Package consumers holds one program for each sink: it takes the events of a service and ships the orders in them,
// each order once, although messages may come twice. What they share is package shipping beside them.
//
// A program commits its work and the id of the message in one transaction, and acknowledges the message after that. An
// error ends the program: what it has not acknowledged comes again when its supervisor has started it again.
//
// Not shown: what to do with a message that can never be handled. Here it stops the consumer, and with it the order of
// the messages is kept; a service may rather put it aside.
package consumers

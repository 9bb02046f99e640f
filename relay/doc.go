// Package relay delivers the events of outbox tables to their sinks.
//
// A [Relay] serves the tables of an [outbox.Database], each with one of its sinks or by its routes.
// It removes what was delivered long ago, and tells how it is doing. For each table it turns a loop
// of three steps, one file each:
//
//	claim    claim.go    read the oldest undelivered rows of the lanes it holds a lease on; no row lock, no write
//	publish  publish.go  hand them to the Sink as one batch; no transaction is open meanwhile
//	settle   settle.go   one statement marks what was delivered, what is retried and when, what is dead
//
// worker.go and turn.go turn it. Four machines decide whether and with what it turns, each with its
// states where it is declared: the circuit of a sink (circuit.go), the lease of lanes (lease.go),
// the quarantine of lanes at which relays died (quarantine.go), and how the events get to the sinks
// (mode, in publish.go).
//
// Guaranteed is what package outbox says. Not guaranteed: that a sink refuses the copies that a
// crash leaves.
package relay

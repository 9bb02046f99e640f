// Package integration tests the whole product, with real processes of every kind: PostgreSQL, Redis
// and the outbox binary. It guarantees nothing to anybody and is imported by nothing, so what it
// depends on costs users of the library nothing.
package integration

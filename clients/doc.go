// Package clients holds the clients in other languages, each a package of its language in a folder
// of its own, and the tests of them: against a gateway, a relay, PostgreSQL and Redis that run, and
// are killed in between. It is a module of its own, so what the tests need costs nobody anything.
//
// make clients runs it.
package clients

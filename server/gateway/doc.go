// Package gateway serves runs over HTTP: an API that is described at /openapi.json, and streams of
// events (SSE).
//
// Guaranteed: a request without a valid token sees and changes nothing, and one with a token
// nothing of another tenant: there a run does not exist (404). What is refused is refused whole,
// with the names of the fields (RFC 9457). A request may be sent again after a lost answer: create
// with an Idempotency-Key, append with event ids, start, complete, fail and cancel as they are. A
// database that does not answer is 503 with Retry-After, never an empty list. No token, ticket or
// text of the database is in an answer or in the log. A tenant's answers take a bounded part of the
// memory, whoever reads them or not, and so do its topics; its streams end within 15 s of their
// token.
//
// Not guaranteed: protection against a flood. Limits of rate, TLS and the time to read a request's
// header are those of the server and of what stands before it.
//
// It imports no store and no broker: both are behind crawl.Service, stream.Hub and token.Store.
package gateway

// Package outboxtest holds the contracts of package outbox as tests. Whoever writes a Sink runs
// SinkSuite against it, whoever writes a store StoreSuite. Whoever runs an outbox compares with
// Check what was written with what arrived.
//
//	func TestSink(t *testing.T) {
//		outboxtest.SinkSuite(t, outboxtest.SinkFeatures{RefusesDuplicates: true},
//			func(t *testing.T) outboxtest.SinkHarness { … })
//	}
//
// Guaranteed: a sink that passes keeps what outbox.Sink asks of it and what its SinkFeatures
// promise, in the cases tested, against the broker that the harness runs. A feature that is not
// promised, or that the harness cannot provoke, is named in the output of go test -v.
//
// Not guaranteed: anything about the broker's own failures (crash, failover, a lost reply). They
// differ too much between brokers; a sink tests them beside its code, and internal/test/chaos runs
// Check through them.
//
// The package imports no broker's client and no database's driver, so that none reaches the users
// of another one's sink or store.
package outboxtest

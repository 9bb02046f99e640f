//go:build subscriptions

package clients

import "testing"

func TestSubscriptions(t *testing.T) {
	t.Parallel()
	newWorld(t).run("typescript", "node", "--test", "test/subscription.test.mjs")
}

func TestConsumer(t *testing.T) {
	t.Parallel()
	newWorld(t).unittest("test_subscription.py")
}

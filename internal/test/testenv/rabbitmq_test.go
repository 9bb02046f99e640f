package testenv

import (
	"os"
	"syscall"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// A server knows its virtual hosts, and leaves nothing behind.
func TestRabbitMQ(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server, err := StartRabbitMQ(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	vhost := server.Vhost(t)
	if got := server.Eval(t, `rabbit_vhost:exists(<<"`+vhost+`">>).`); got != "true" {
		t.Errorf("the virtual host exists: %s", got)
	}
	node, dir := server.server.pid(), server.server.dir
	mapper := server.mapper.pid()
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
	for _, pid := range []int{node, mapper} {
		if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
			t.Errorf("process %d is still there: %v", pid, err)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there: %v", err)
	}
}

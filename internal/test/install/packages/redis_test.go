package packages

import (
	"encoding/json"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// streams is a Redis that keeps what is published to its streams.
type streams struct {
	addr   string
	client *redis.Client
}

func redisServer(t *testing.T) *streams {
	t.Helper()
	server := testenv.RedisServer(t)
	s := &streams{addr: server.Addr(), client: redis.NewClient(&redis.Options{Addr: server.Addr()})}
	t.Cleanup(func() { _ = s.client.Close() })
	return s
}

// event is what the tests look at of a message.
type event struct {
	ID   string
	Data struct{ N int }
	Key  string `json:"partitionkey"`
}

// events are all that was published to a stream, in order.
func (s *streams) events(t *testing.T, stream string) (all []event) {
	t.Helper()
	entries, err := s.client.XRange(t.Context(), stream, "-", "+").Result()
	noError(t, err)
	for _, e := range entries {
		for _, value := range e.Values {
			var one event
			if text, ok := value.(string); ok && json.Unmarshal([]byte(text), &one) == nil && one.ID != "" {
				all = append(all, one)
			}
		}
	}
	return all
}

// daemon is a program in the background.
type daemon struct {
	*exec.Cmd
	log   log
	ended chan struct{}
}

// background runs a program until it is ended, or the test ends.
func background(t *testing.T, cmd *exec.Cmd) *daemon {
	t.Helper()
	d := &daemon{Cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &d.log, &d.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	noError(t, cmd.Start())
	go func() {
		defer close(d.ended)
		_ = cmd.Wait() // its code is asked of ProcessState
	}()
	t.Cleanup(func() {
		d.end(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("%s\n%s", cmd, &d.log)
		}
	})
	return d
}

// end sends a signal to the program and all that it has started, and waits for its end.
func (d *daemon) end(signal os.Signal) {
	select {
	case <-d.ended:
		return
	default:
	}
	_ = syscall.Kill(-d.Process.Pid, signal.(syscall.Signal)) // unless it has just ended
	<-d.ended
}

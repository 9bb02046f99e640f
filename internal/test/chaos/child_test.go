package chaos

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Servers that this test binary is when it is started again, to be killed: those that are packages
// of Go and no programs. They take commands, a line each.
const (
	roleKafka    = "kafka"    // a broker that keeps its data in a folder
	roleEndpoint = "endpoint" // an HTTP server that prints what it gets before it answers

	addressVariable = "OUTBOX_CHAOS_ADDRESS" // where the server listens
	nameVariable    = "OUTBOX_CHAOS_NAME"    // the address at which clients shall look for it

	sayReady = "ready"

	commandFull   = "full"
	commandDenied = "denied"
	commandWell   = "well"
)

// serveKafka is kfake, the imitation of a broker by the authors of the client.
func serveKafka(address string, commands <-chan string) error {
	_, text, _ := net.SplitHostPort(address)
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	listen := func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		return named{l, os.Getenv(nameVariable)}, err
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.ListenFn(listen),
		kfake.DataDir(os.Getenv(fileVariable)), kfake.SyncWrites(), kfake.SeedTopics(4, destination))
	if err != nil {
		return err
	}
	defer cluster.Close()
	fmt.Println(sayReady)
	var faults *kfake.FaultHandle
	for command := range commands {
		says := map[string]*kerr.Error{
			commandFull: kerr.KafkaStorageError, commandDenied: kerr.TopicAuthorizationFailed,
		}[command]
		if says == nil {
			faults.Remove()
			continue
		}
		faults = cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: says, Count: -1})
	}
	return nil
}

// named is a listener that gives another address as its own.
type named struct {
	net.Listener
	name string
}

func (n named) Addr() net.Addr { return n }
func (named) Network() string  { return "tcp" }
func (n named) String() string { return n.name }

func serveEndpoint(address string, commands <-chan string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	var refusal atomic.Int64
	fmt.Println(sayReady)
	go func() { // ends with the process
		for command := range commands {
			refusal.Store(map[string]int64{
				commandFull: http.StatusTooManyRequests, commandDenied: http.StatusUnauthorized}[command])
		}
	}()
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if status := int(refusal.Load()); err != nil || status != 0 {
			w.WriteHeader(max(status, http.StatusBadRequest))
			return
		}
		if _, err := os.Stdout.Write(append(body, '\n')); err != nil {
			os.Exit(1) // nobody listens any more
		}
	}))
}

// serveNATS runs a NATS server until it is killed.
func serveNATS(file string) error {
	options, err := natsserver.ProcessConfigFile(file)
	if err != nil {
		return err
	}
	options.NoSigs = true // but for the one below
	s, err := natsserver.NewServer(options)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	s.Start()
	for range reload {
		if err := s.Reload(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	return nil
}

// serve is the whole life of a child in a server's role.
func serve(role string, commands <-chan string) error {
	address := os.Getenv(addressVariable)
	if role == roleKafka {
		return serveKafka(address, commands)
	}
	return serveEndpoint(address, commands)
}

// child is a process of a server's role. It may be killed and started again.
type child struct {
	*process
	t     *testing.T
	env   []string
	stdin io.WriteCloser // for commands; its end tells it that the test has gone

	mu    sync.Mutex
	heard []string // in all its lives, its readiness left out
}

// newChild starts a server at an address; env is added to its environment.
func newChild(t *testing.T, role, address string, env ...string) *child {
	t.Helper()
	c := &child{t: t, env: append(env, roleVariable+"="+role, addressVariable+"="+address)}
	must(t, c.Restart())
	return c
}

// Restart starts it, again with what it has stored.
func (c *child) Restart() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), c.env...)
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		return err
	}
	ready := make(chan struct{})
	c.process = start(c.t, cmd, func(line []byte) {
		if string(line) == sayReady {
			close(ready)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.heard = append(c.heard, string(line))
	})
	select {
	case <-ready:
		return nil
	case <-c.exited:
		return errors.New("start a child: it ended before it was ready")
	}
}

func (c *child) lines() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.heard...)
}

// told returns a fault that a command begins, and another one ends.
func (c *child) told(t *testing.T, command string) func() (end func()) {
	tell := func(command string) {
		_, err := io.WriteString(c.stdin, command+"\n")
		must(t, err)
	}
	return func() func() {
		tell(command)
		return func() { tell(commandWell) }
	}
}

// PID is the process id.
func (c *child) PID() int { return c.cmd.Process.Pid }

// Kill ends it with SIGKILL.
func (c *child) Kill() error {
	c.kill(c.t)
	return nil
}

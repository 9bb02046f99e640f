package chaos

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Servers that this test binary is when it is started again, to be killed: those that are packages of Go and no
// programs. They take commands, a line each.
const (
	roleKafka    = "kafka"    // a broker that keeps its data in a folder
	roleEndpoint = "endpoint" // an HTTP server that prints what it gets before it answers

	portVariable = "OUTBOX_CHAOS_PORT" // where the server listens
	nameVariable = "OUTBOX_CHAOS_NAME" // the address at which clients shall look for it

	sayReady = "ready"

	commandFull   = "full"
	commandDenied = "denied"
	commandWell   = "well"
)

// serveKafka is kfake, the imitation of a broker by the authors of the client.
func serveKafka(port int, commands <-chan string) error {
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

func serveEndpoint(port int, commands <-chan string) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
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
	port, err := strconv.Atoi(os.Getenv(portVariable))
	if err != nil {
		return err
	}
	if role == roleKafka {
		return serveKafka(port, commands)
	}
	return serveEndpoint(port, commands)
}

// child is a process of a server's role. It may be killed and started again.
type child struct {
	env []string

	cmd    *exec.Cmd
	stdin  io.WriteCloser // whose end tells it that the test has gone
	exited chan struct{}

	mu   sync.Mutex
	said []string // in all its lives, its readiness left out
}

// newChild starts a server at a port of 127.0.0.1; env is added to its environment.
func newChild(t *testing.T, role string, port int, env ...string) *child {
	t.Helper()
	c := &child{env: append(env, roleVariable+"="+role, portVariable+"="+itoa(port))}
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Kill() })
	return c
}

func (c *child) start() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	c.cmd = exec.Command(program)
	c.cmd.Env = append(os.Environ(), c.env...)
	c.cmd.Stderr = os.Stderr
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		return err
	}
	cmd, exited, ready := c.cmd, make(chan struct{}), make(chan struct{})
	c.exited = exited
	go func() { // ends with the process, for which Kill waits
		defer close(exited)
		for lines := bufio.NewReader(stdout); ; {
			line, err := lines.ReadString('\n') // what has no end was cut off by the kill
			if err != nil {
				break
			}
			if line = strings.TrimSuffix(line, "\n"); line == sayReady {
				close(ready)
				continue
			}
			c.mu.Lock()
			c.said = append(c.said, line)
			c.mu.Unlock()
		}
		_ = cmd.Wait() // was killed
	}()
	select {
	case <-ready:
		return nil
	case <-exited:
		return errors.New("start a child: it ended before it was ready")
	}
}

func (c *child) lines() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.said...)
}

// tell gives it a command.
func (c *child) tell(t *testing.T, command string) {
	t.Helper()
	if _, err := io.WriteString(c.stdin, command+"\n"); err != nil {
		t.Fatal(err)
	}
}

// told returns a fault that a command begins, and another one ends.
func (c *child) told(t *testing.T, command string) func() (end func()) {
	return func() func() {
		c.tell(t, command)
		return func() { c.tell(t, commandWell) }
	}
}

// PID is the process id.
func (c *child) PID() int { return c.cmd.Process.Pid }

// Kill ends it with SIGKILL.
func (c *child) Kill() error {
	_ = c.cmd.Process.Kill() // fails if it has ended
	<-c.exited
	return nil
}

// Restart starts it again with what it has stored.
func (c *child) Restart() error { return c.start() }

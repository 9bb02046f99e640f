package testenv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// RabbitMQ is a running private RabbitMQ server. Its methods may be called from several goroutines.
type RabbitMQ struct {
	// The port mapper of Erlang. A node would start one by itself that outlives it, on a port that
	// all nodes of the machine share.
	mapper *server
	server *server
	argv   []string
	port   int
	vhosts atomic.Int64
}

// evaluator answers Erlang expressions on a Unix socket: one call a connection, each way 4 bytes of
// length and the text. It does what rabbitmqctl does, which takes 1.5 s of a processor for each
// call (measured).
const evaluator = `spawn(fun() ->
  file:delete(%[1]q),
  {ok, Listener} = gen_tcp:listen(0, [binary, {ifaddr, {local, %[1]q}}, {packet, 4}, {active, false}, {backlog, 128}]),
  Answer = fun(Socket) ->
    {ok, Code} = gen_tcp:recv(Socket, 0),
    Said = try
      {ok, Tokens, _} = erl_scan:string(binary_to_list(Code)),
      {ok, Expressions} = erl_parse:parse_exprs(Tokens),
      {value, Value, _} = erl_eval:exprs(Expressions, []),
      io_lib:format("~0tp", [Value])
    catch Kind:Reason -> io_lib:format("!~0tp", [{Kind, Reason}]) end,
    gen_tcp:send(Socket, unicode:characters_to_binary(Said))
  end,
  Serve = fun Serve() ->
    {ok, Socket} = gen_tcp:accept(Listener),
    Worker = spawn(fun() -> receive go -> Answer(Socket) end end),
    ok = gen_tcp:controlling_process(Socket, Worker),
    Worker ! go,
    Serve()
  end,
  Serve()
end).`

// StartRabbitMQ starts a server without plugins and returns when it takes connections. ctx bounds
// the start, not the life of the server. It was seen to take 6 s and 150 MB of memory. Errors name
// the missing program, or carry the end of the server's log.
func StartRabbitMQ(ctx context.Context) (*RabbitMQ, error) {
	program, err := findRabbitMQ()
	if err != nil {
		return nil, fmt.Errorf("start rabbitmq: %w", err)
	}
	mapper, err := findProgram("epmd")
	if err != nil {
		return nil, fmt.Errorf("start rabbitmq: %w", err)
	}
	r := &RabbitMQ{}
	if r.mapper, err = newServer("epmd", "", syscall.SIGKILL); err != nil {
		return nil, err
	}
	if r.server, err = newServer("rabbitmq", "", syscall.SIGKILL); err != nil {
		return nil, errors.Join(err, r.mapper.close())
	}
	if err := r.create(ctx, program, mapper); err != nil {
		return nil, errors.Join(err, r.Stop())
	}
	return r, nil
}

// findRabbitMQ returns the program itself. What Debian has on PATH is a wrapper that insists on
// user rabbitmq.
func findRabbitMQ() (string, error) {
	const debian = "/usr/lib/rabbitmq/bin/rabbitmq-server"
	if _, err := os.Stat(debian); err == nil {
		return debian, nil
	}
	return findProgram("rabbitmq-server")
}

func (r *RabbitMQ) create(ctx context.Context, program, mapper string) error {
	ports := make([]int, 3)
	for i := range ports {
		port, err := freePort()
		if err != nil {
			return fmt.Errorf("start rabbitmq: %w", err)
		}
		ports[i] = port
	}
	mapperPort, nodePort := strconv.Itoa(ports[0]), strconv.Itoa(ports[1])
	r.port = ports[2]
	listening := func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", mapperPort))
		if err != nil {
			return err
		}
		return conn.Close()
	}
	if err := r.mapper.start(ctx, listening, mapper, "-address", "127.0.0.1", "-port", mapperPort); err != nil {
		return err
	}
	within := func(name string) string { return filepath.Join(r.server.dir, name) }
	r.server.env = []string{
		"HOME=" + r.server.dir, // Erlang's cookie
		"ERL_EPMD_ADDRESS=127.0.0.1", "ERL_EPMD_PORT=" + mapperPort, "RABBITMQ_DIST_PORT=" + nodePort,
		"RABBITMQ_NODENAME=outbox@localhost",
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1", "RABBITMQ_NODE_PORT=" + strconv.Itoa(r.port),
		"RABBITMQ_MNESIA_BASE=" + within("data"), "RABBITMQ_PID_FILE=" + within("node.pid"),
		"RABBITMQ_LOG_BASE=" + r.server.dir, "RABBITMQ_LOGS=-", "ERL_CRASH_DUMP=" + within("dump"),
		"RABBITMQ_CONF_ENV_FILE=" + within("no-env"), "RABBITMQ_CONFIG_FILE=" + within("no-config"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + within("no-plugins"),
		// Without busy waiting, which only costs other processes their time.
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none " +
			"+sbwtdio none",
		// It makes the script become the server, where else it would wait for a child that survives
		// it.
		"RABBITMQ_ALLOW_INPUT=1",
	}
	r.argv = []string{program, "-noinput", "-eval", fmt.Sprintf(evaluator, r.socket())}
	return r.server.start(ctx, r.ready, r.argv...)
}

func (r *RabbitMQ) socket() string { return filepath.Join(r.server.dir, "eval.sock") }

func (r *RabbitMQ) ready(ctx context.Context) error {
	running, err := r.eval(ctx, "rabbit:is_running() andalso rabbit_networking:active_listeners() =/= [].")
	if err == nil && running != "true" {
		return errors.New("it does not listen yet")
	}
	return err
}

// eval returns what the server makes of Erlang expressions, as Erlang writes it. They end with a
// full stop.
func (r *RabbitMQ) eval(ctx context.Context, code string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", r.socket())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(code))), code...)); err != nil {
		return "", err
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(conn, head); err != nil {
		return "", err
	}
	said := make([]byte, binary.BigEndian.Uint32(head))
	if _, err := io.ReadFull(conn, said); err != nil {
		return "", err
	}
	if problem, failed := strings.CutPrefix(string(said), "!"); failed {
		return "", fmt.Errorf("evaluate %q: %s", code, problem)
	}
	return string(said), nil
}

// Eval returns what the server makes of Erlang expressions, as Erlang writes it. They end with a
// full stop.
func (r *RabbitMQ) Eval(t testing.TB, code string) string {
	t.Helper()
	said, err := r.eval(t.Context(), code)
	if err != nil {
		t.Fatal(err)
	}
	return said
}

// Vhost makes a virtual host that nobody else uses, with all rights for user guest, and returns its
// name.
func (r *RabbitMQ) Vhost(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test_%d", r.vhosts.Add(1))
	r.Eval(t, fmt.Sprintf(`rabbit_vhost:add(<<%q>>, <<"test">>).`, name))
	r.Allow(t, "guest", name, ".*", ".*", ".*")
	return name
}

// Allow gives a user the rights in a virtual host to configure, write and read what matches three
// regular expressions.
func (r *RabbitMQ) Allow(t testing.TB, user, vhost, configure, write, read string) {
	t.Helper()
	r.Eval(t, fmt.Sprintf(`rabbit_auth_backend_internal:set_permissions(
		<<%q>>, <<%q>>, <<%q>>, <<%q>>, <<%q>>, <<"test">>).`, user, vhost, configure, write, read))
}

// Addr is the server's TCP address on the loopback interface, host:port.
func (r *RabbitMQ) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// URL is Addr as AMQP clients take it, for user guest and a virtual host.
func (r *RabbitMQ) URL(vhost string) string { return "amqp://guest:guest@" + r.Addr() + "/" + vhost }

// PID is the process id of the server.
func (r *RabbitMQ) PID() int { return r.server.pid() }

// Log returns the server's log so far.
func (r *RabbitMQ) Log() (string, error) {
	text, err := os.ReadFile(r.server.logPath())
	return string(text), err
}

// Stop ends the server and removes its directory. A second call does nothing.
func (r *RabbitMQ) Stop() error { return errors.Join(r.server.close(), r.mapper.close()) }

// Kill ends the server with SIGKILL and keeps the directory. What RabbitMQ writes in its own time
// is written before: the definitions of queues, of which one made a moment ago would be gone, and
// the table of quorum queues. One that is not in that comes back without a leader, and takes
// nothing (both measured).
func (r *RabbitMQ) Kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
	defer cancel()
	// One that does not answer is killed all the same.
	_, _ = r.eval(ctx, "mnesia:sync_log(), [dets:sync(Table) || Table <- dets:all()].")
	return r.server.end(syscall.SIGKILL)
}

// Restart starts the server again on the same directory and ports; a running one is killed first.
// It returns when the server takes connections.
func (r *RabbitMQ) Restart() error {
	if err := r.Kill(); err != nil {
		return err
	}
	return r.server.start(context.Background(), r.ready, r.argv...)
}

// sharedRabbitMQ is the RabbitMQ server of this test binary: one start costs more than most
// packages' tests.
var sharedRabbitMQ struct {
	sync.Mutex
	server *RabbitMQ
}

// RabbitMQServer returns a server that all tests of this binary share, started by the first call.
// Each takes a virtual host of its own.
func RabbitMQServer(t testing.TB) *RabbitMQ {
	t.Helper()
	sharedRabbitMQ.Lock()
	defer sharedRabbitMQ.Unlock()
	if sharedRabbitMQ.server == nil {
		server, err := StartRabbitMQ(t.Context())
		if err != nil {
			fatal(t, err)
		}
		sharedRabbitMQ.server = server
	}
	return sharedRabbitMQ.server
}

func stopSharedRabbitMQ() {
	sharedRabbitMQ.Lock()
	defer sharedRabbitMQ.Unlock()
	if sharedRabbitMQ.server == nil {
		return
	}
	if err := sharedRabbitMQ.server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
	}
	sharedRabbitMQ.server = nil
}

// PrivateRabbitMQ starts a RabbitMQ server for this test alone and stops it when t ends.
func PrivateRabbitMQ(t testing.TB) *RabbitMQ {
	t.Helper()
	server, err := StartRabbitMQ(t.Context())
	return stopAfter(t, server, err)
}

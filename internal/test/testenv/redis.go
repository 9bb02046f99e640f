package testenv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// RedisConfig says how a server differs from Redis's own defaults. The zero value is a server that
// saves nothing.
type RedisConfig struct {
	// Args are server arguments after this package's own, which they win over, e.g. "--appendonly",
	// "yes".
	Args []string
	// Cluster makes it a cluster of this one node with all 16384 slots. Each start then takes 2 s,
	// Redis's own fixed delay before a master of a cluster takes writes.
	Cluster bool
}

// Redis is a running private Redis server. Its methods may be called from several goroutines.
type Redis struct {
	server *server
	argv   []string
	port   int
	config RedisConfig
}

// clusterBus is how far above its port a cluster node opens a second one, for other nodes. Redis 7
// could be told another.
const clusterBus = 10000

// StartRedis starts a server and returns when it answers commands (with Cluster: when it reports
// cluster_state ok). ctx bounds the start, not the life of the server. Errors name the missing
// program, or carry the end of the server's log.
func StartRedis(ctx context.Context, config RedisConfig) (*Redis, error) {
	program, err := findProgram("redis-server")
	if err != nil {
		return nil, fmt.Errorf("start redis: %w", err)
	}
	s, err := newServer("redis", "", syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	r := &Redis{server: s, config: config}
	if err := r.create(ctx, program); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return r, nil
}

func (r *Redis) create(ctx context.Context, program string) (err error) {
	for {
		if r.port, err = freePort(); err != nil {
			return fmt.Errorf("start redis: %w", err)
		}
		r.argv = []string{program,
			"--bind", "127.0.0.1", "--port", strconv.Itoa(r.port), "--unixsocket", r.Socket(),
			"--dir", r.server.dir, "--save", "", "--appendonly", "no",
		}
		if r.config.Cluster {
			// Announced, because a node that has met no other does not know its own address.
			r.argv = append(r.argv, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1")
		}
		r.argv = append(r.argv, r.config.Args...)
		err = r.server.start(ctx, r.ready, r.argv...)
		taken := err != nil && strings.Contains(err.Error(), "Address already in use") // who had it may be gone by now
		if err == nil || !taken && portFree(r.port) && (!r.config.Cluster || portFree(r.port+clusterBus)) {
			return err
		}
		// Somebody took the port between freePort and the server, or has the one of the cluster
		// bus.
	}
}

// ready asks over the Unix socket: on the TCP port a stranger might answer.
func (r *Redis) ready(ctx context.Context) error {
	reply, err := r.command(ctx, "PING")
	if err != nil {
		return err
	}
	if reply != "+PONG" && !strings.HasPrefix(reply, "-NOAUTH") { // -LOADING, -MASTERDOWN
		return errors.New(reply)
	}
	if !r.config.Cluster {
		return nil
	}
	info, err := r.command(ctx, "CLUSTER INFO")
	if err != nil || strings.Contains(info, "cluster_state:ok") {
		return err
	}
	if strings.Contains(info, "cluster_slots_assigned:0\r\n") { // after a Restart they still are
		err = r.assignSlots(ctx)
	}
	return errors.Join(errors.New(info), err)
}

// assignSlots gives the node all slots, in halves since an inline command may have 64 KiB.
// ADDSLOTSRANGE would need Redis 7, and Ubuntu 22.04 has 6.
func (r *Redis) assignSlots(ctx context.Context) error {
	const slots = 16384
	for half := range 2 {
		var add strings.Builder
		add.WriteString("CLUSTER ADDSLOTS")
		for slot := half * slots / 2; slot < (half+1)*slots/2; slot++ {
			fmt.Fprintf(&add, " %d", slot)
		}
		if reply, err := r.command(ctx, add.String()); err != nil || reply != "+OK" {
			return errors.Join(fmt.Errorf("assign slots: %q", reply), err)
		}
	}
	return nil
}

// command sends one inline command and returns the reply as it is on the wire, for a bulk string
// its content. A client library is not worth its price here, see the package comment.
func (r *Redis) command(ctx context.Context, command string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", r.Socket())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		return "", err
	}
	reader := bufio.NewReader(conn)
	line, err := reader.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "$") {
		return line, nil
	}
	size, err := strconv.Atoi(line[1:])
	if err != nil {
		return "", err
	}
	bulk := make([]byte, max(0, size))
	_, err = io.ReadFull(reader, bulk)
	return string(bulk), err
}

// Addr is the server's TCP address on the loopback interface, host:port.
func (r *Redis) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// URL is Addr in the form that Redis clients and OUTBOX_SINK take.
func (r *Redis) URL() string { return "redis://" + r.Addr() }

// Socket is the path of the server's Unix socket.
func (r *Redis) Socket() string { return filepath.Join(r.server.dir, "redis.sock") }

// Dir is the server's private directory: log and, where Args ask for them, the files it saves.
func (r *Redis) Dir() string { return r.server.dir }

// PID is the process id of the server.
func (r *Redis) PID() int { return r.server.pid() }

// Stop ends the server and removes its directory. A second call does nothing.
func (r *Redis) Stop() error { return r.server.close() }

// Kill ends the server with SIGKILL and keeps the directory. What Args did not make it save is
// lost.
func (r *Redis) Kill() error { return r.server.end(syscall.SIGKILL) }

// Restart starts the server again on the same directory, socket and ports; a running one is shut
// down first. It returns when the server answers commands.
func (r *Redis) Restart() error {
	if err := r.server.end(syscall.SIGTERM); err != nil {
		return err
	}
	if err := r.mend(); err != nil {
		return err
	}
	return r.server.start(context.Background(), r.ready, r.argv...)
}

// mend cuts off what a killed server had begun to write. Redis 7.0 does it by itself, and wrongly
// where it was in the middle of what a script has done: the start after the next one does all of
// that, beside what was published again (measured; valkey-io/valkey#4342).
func (r *Redis) mend() error {
	files, err := filepath.Glob(filepath.Join(r.server.dir, "appendonlydir", "*.manifest"))
	if err != nil || len(files) == 0 {
		return err
	}
	program, err := findProgram("redis-check-aof")
	if err != nil {
		return err
	}
	fix := exec.Command(program, "--fix", files[0])
	fix.Stdin = strings.NewReader("y\n")
	if said, err := fix.CombinedOutput(); err != nil {
		return fmt.Errorf("mend redis's files: %w: %s", err, said)
	}
	return nil
}

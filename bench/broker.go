package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/twmb/franz-go/pkg/kfake"
)

// brokerVariable has a process of this program be a broker: nats or kafka. Both are packages of Go, and in processes
// of their own they share neither memory nor garbage collector with what is measured.
const brokerVariable = "OUTBOX_BENCH_BROKER"

// broker is a child process that is one, and ends with this process.
type broker struct {
	url     string
	process *exec.Cmd
	input   io.Closer
	dir     string
}

func startBroker(ctx context.Context, kind string) (b *broker, err error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b = &broker{process: exec.CommandContext(ctx, executable)}
	if b.dir, err = os.MkdirTemp("", "bench-"+kind+"-"); err != nil {
		return nil, err
	}
	b.process.Env = append(os.Environ(), brokerVariable+"="+kind, "OUTBOX_BENCH_DIR="+b.dir)
	b.process.Stderr = os.Stderr
	output, err := b.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if b.input, err = b.process.StdinPipe(); err != nil {
		return nil, err
	}
	if err := b.process.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		b.stop()
		return nil, fmt.Errorf("start %s: %w", kind, err)
	}
	b.url = strings.TrimSpace(line)
	return b, nil
}

func (b *broker) stop() {
	_ = b.input.Close()
	_ = b.process.Process.Kill() // fails if it has ended
	_ = b.process.Wait()
	_ = os.RemoveAll(b.dir)
}

// serveBroker is the child: it prints its address, and ends when its input does.
func serveBroker(kind string) error {
	var url string
	switch kind {
	case "nats":
		server, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT,
			JetStream: true, StoreDir: os.Getenv("OUTBOX_BENCH_DIR"), NoSigs: true, NoLog: true})
		if err != nil {
			return err
		}
		server.Start()
		if !server.ReadyForConnections(10 * time.Second) {
			return errors.New("NATS does not take connections")
		}
		url = server.ClientURL()
	case "kafka":
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			return err
		}
		url = cluster.ListenAddrs()[0]
	default:
		return fmt.Errorf("no broker %q", kind)
	}
	fmt.Println(url)
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

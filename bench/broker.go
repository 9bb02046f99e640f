package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/twmb/franz-go/pkg/kfake"
)

// broker is one in a process of its own: nats or kafka. Both are packages of Go, and there they
// share neither memory nor garbage collector with what is measured.
type broker struct {
	*child
	url string
	dir string
}

func startBroker(ctx context.Context, kind string) (*broker, error) {
	dir, err := os.MkdirTemp("", "bench-"+kind+"-")
	if err != nil {
		return nil, err
	}
	process, err := startChild(ctx, kind, "OUTBOX_BENCH_DIR="+dir)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return &broker{child: process, url: process.ready, dir: dir}, nil
}

func (b *broker) stop() {
	_ = b.Kill() // it has nothing to finish
	_ = b.child.stop()
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

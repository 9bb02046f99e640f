package sources

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/redis/go-redis/v9/logging"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// The binary is more than the tests: started again with one of these variables it is a server, or a
// part.
const (
	kafkaPort = "OUTBOX_TEST_KAFKA_PORT"
	kafkaDir  = "OUTBOX_TEST_KAFKA_DIR"
)

func TestMain(m *testing.M) {
	for variable, role := range map[string]func(string) error{
		testenv.NATSVariable: serveNATS, kafkaPort: serveKafka,
		part: func(name string) error { return play(context.Background(), name) },
	} {
		if value := os.Getenv(variable); value != "" {
			if err := role(value); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	logging.Disable()
	testenv.AtOnce(2) // each has a server and three processes
	testenv.Main(m)
}

func serveNATS(file string) error {
	options, err := natsserver.ProcessConfigFile(file)
	if err != nil {
		return err
	}
	options.NoSigs = true
	s, err := natsserver.NewServer(options)
	if err != nil {
		return err
	}
	s.Start()
	s.WaitForShutdown()
	return nil
}

// serveKafka is kfake, the imitation of a broker by the authors of the client, until its standard
// input ends.
func serveKafka(port string) error {
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(number), kfake.DataDir(os.Getenv(kafkaDir)),
		kfake.SyncWrites(), kfake.SeedTopics(2, destination))
	if err != nil {
		return err
	}
	defer cluster.Close()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

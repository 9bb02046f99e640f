package natsjs

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// The binary is the server of its own tests too: as a child process it can be killed and stopped
// like a real one.
func TestMain(m *testing.M) {
	if file := os.Getenv(testenv.NATSVariable); file != "" {
		if err := serve(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testenv.AtOnce(8)
	testenv.Main(m)
}

// serve runs a NATS server until it is killed.
func serve(file string) error {
	options, err := server.ProcessConfigFile(file)
	if err != nil {
		return err
	}
	options.NoSigs = true // but for the one below
	s, err := server.NewServer(options)
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

var (
	deliver, deliverAtLast, eventually = sinktest.Deliver, sinktest.DeliverAtLast, sinktest.Eventually
	newEvent, wantClass                = sinktest.Event, sinktest.WantClass
)

// class checks an answer's class and a part of its text.
func class(t testing.TB, res outbox.Result, want outbox.Class, says string) {
	t.Helper()
	wantClass(t, res.Err, want, says)
}

// open returns a sink on the server, and JetStream for what the sink cannot do.
func open(t testing.TB, server *testenv.NATS, cfg Config) (*Sink, jetstream.JetStream) {
	t.Helper()
	return openURL(t, server.URL(), cfg), admin(t, server.URL())
}

func openURL(t testing.TB, url string, cfg Config) *Sink {
	t.Helper()
	s, err := Open(t.Context(), url, cfg)
	return sinktest.Closing(t, s, err)
}

// admin connects, and connects again whenever the server has been away.
func admin(t testing.TB, url string) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.IgnoreAuthErrorAbort())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(tier.Patience()))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// stream makes a stream of files for the subjects, or changes it.
func stream(t testing.TB, js jetstream.JetStream, cfg jetstream.StreamConfig) jetstream.Stream {
	t.Helper()
	for deadline := time.Now().Add(tier.Patience()); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // a cluster that has no leader yet may say nothing
		s, err := js.CreateOrUpdateStream(ctx, cfg)
		cancel()
		if err == nil {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("create stream: %v", err)
		}
	}
}

// stored returns the first n messages of a subject, once there are so many.
func stored(t testing.TB, js jetstream.JetStream, name, subject string, n int) (messages []*jetstream.RawStreamMsg) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), tier.Patience())
	defer cancel()
	for next := uint64(1); len(messages) < n; {
		m, err := get(ctx, js, name, subject, next)
		if err != nil {
			if ctx.Err() != nil {
				t.Fatalf("%d of %d messages are stored: %v", len(messages), n, err)
			}
			time.Sleep(20 * time.Millisecond)
			continue
		}
		messages = append(messages, m)
		next = m.Sequence + 1
	}
	return messages
}

func get(
	ctx context.Context, js jetstream.JetStream, name, subject string, from uint64,
) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // a server that was killed meanwhile says nothing
	defer cancel()
	s, err := js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.GetMsg(ctx, from, jetstream.WithGetMsgSubject(subject))
}

// count returns how many messages a stream holds.
func count(t testing.TB, js jetstream.JetStream, name string) uint64 {
	t.Helper()
	var n uint64
	eventually(t, func() bool { // a request is lost with the server that was to answer it
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		s, err := js.Stream(ctx, name)
		if err == nil {
			n = s.CachedInfo().State.Msgs
		}
		return err == nil
	})
	return n
}

// leader returns the number of the server that leads a stream.
func leader(t testing.TB, js jetstream.JetStream, name string) (number int) {
	t.Helper()
	eventually(t, func() bool { // there may be none at this moment
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		s, err := js.Stream(ctx, name)
		if err != nil || s.CachedInfo().Cluster == nil {
			return false
		}
		_, err = fmt.Sscanf(s.CachedInfo().Cluster.Leader, "server-%d", &number)
		return err == nil
	})
	return number
}

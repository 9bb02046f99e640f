package redispubsub

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// The server publishes the batch but is too busy to say so in time. Sent again, all of it is a
// copy.
func TestTimeout(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServerWith(t, testenv.RedisConfig{Args: []string{"--enable-debug-command", "local"}})
	sink, admin := open(t, server, Config{Envelope: idEnvelope})
	sub := subscribe(t, admin, "c")
	deliver(t, sink, event(t, "other", 1)) // connected, script loaded

	asleep := make(chan error, 1)
	go func() { asleep <- admin.Do(context.WithoutCancel(t.Context()), "DEBUG", "SLEEP", "1").Err() }()
	time.Sleep(200 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	batch := []outbox.Delivery{event(t, "c", 1), event(t, "c", 1), event(t, "c", 2)}
	for _, res := range sink.Publish(ctx, batch) {
		wantUnavailable(t, res, "")
	}
	if err := <-asleep; err != nil {
		t.Fatal(err)
	}
	wantCopies(t, sink, batch...)
	sub.want("c", ids(batch...)...)
}

// The reply is lost with its connection, and the server lives. So the batch is sent again, in
// parts: with a window all of it is a copy, with the window off there are two of each. go-redis's
// default is to send the command again by itself, three times. The sink must not let it, whatever
// client it is given.
func TestLostReply(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  Config
	}{{"window", Config{Envelope: idEnvelope}}, {"window off", Config{Window: -1, Envelope: idEnvelope}}} {
		t.Run(tt.name, func(t *testing.T) {
			server := testenv.RedisServer(t)
			admin := connectAdmin(t, server)
			sub := subscribe(t, admin, "c")
			proxy := sinktest.NewProxy(t, server.Addr())
			client := redis.NewClient(&redis.Options{Addr: proxy.Addr}) // 3 retries
			t.Cleanup(func() { _ = client.Close() })
			sink, err := New(client, tt.cfg)
			if err != nil {
				t.Fatal(err)
			}
			deliver(t, sink, event(t, "other", 1))

			proxy.LoseReply.Store(true)
			batch := []outbox.Delivery{event(t, "c", 1), event(t, "c", 1), event(t, "c", 2)}
			got := sink.Publish(t.Context(), batch)
			copies := tt.cfg.Window == 0
			for i, res := range got {
				if res != (outbox.Result{Duplicate: copies}) {
					t.Errorf("delivery %d is answered %+v, want delivered, and a copy: %t", i, res, copies)
				}
			}
			if copies {
				sub.want("c", ids(batch...)...)
			} else {
				sub.want("c", ids(append(slices.Clone(batch), batch...)...)...)
			}
			if err := sink.Close(); err != nil {
				t.Error(err)
			}
			if err := client.Ping(t.Context()).Err(); err != nil {
				t.Errorf("Close closed a client that is not its own: %v", err)
			}
		})
	}
}

// The server forgets the script: it is brought again within the call.
func TestScriptFlush(t *testing.T) {
	sink, admin := open(t, testenv.RedisServer(t), Config{Envelope: idEnvelope})
	sub := subscribe(t, admin, "c")
	var sent []outbox.Delivery
	for range 3 {
		batch := []outbox.Delivery{event(t, "c", 1), event(t, "c", 2)}
		deliver(t, sink, batch...)
		sent = append(sent, batch...)
		do(t, admin, "SCRIPT", "FLUSH")
	}
	sub.want("c", ids(sent...)...)
}

// Close ends a round trip that Publish gave up on, instead of waiting for its time-out.
func TestClose(t *testing.T) {
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	sink, err := Open(t.Context(), server.URL()+"?read_timeout=15m", Config{})
	if err != nil {
		t.Fatal(err)
	}
	deliver(t, sink, event(t, "c", 1))
	do(t, admin, "CLIENT", "PAUSE", "900000", "WRITE")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	for _, res := range sink.Publish(ctx, []outbox.Delivery{event(t, "c", 1)}) {
		wantUnavailable(t, res, context.Canceled.Error())
	}
	start := time.Now()
	if err := sink.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > tier.Patience() {
		t.Errorf("Close took %s: it waited for a server that does not answer", took)
	}
}

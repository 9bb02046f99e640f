package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// subscriber counts what arrives; handle, if set, sees each message in the order of arrival.
// Channel and payload are valid until it returns.
//
// It reads the answers of Redis by itself and keeps nothing of them: it has the processors in
// common with what it measures, and a message cost a client library as much as Redis (3 µs; like
// this 0.7).
type subscriber struct {
	conn   net.Conn
	in     *bufio.Reader
	count  atomic.Int64
	handle atomic.Pointer[func(channel, payload []byte, at time.Time)]
	done   chan struct{}
}

// subscribe subscribes to every channel of the server that client talks to.
func subscribe(ctx context.Context, client *redis.Client) (*subscriber, error) {
	if err := client.ConfigSet(ctx, "client-output-buffer-limit", "pubsub 0 0 0").Err(); err != nil {
		return nil, err
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, client.Options().Network, client.Options().Addr)
	if err != nil {
		return nil, err
	}
	s := &subscriber{conn: conn, in: bufio.NewReaderSize(conn, 1<<18), done: make(chan struct{})}
	if _, err := io.WriteString(conn, "PSUBSCRIBE *\r\n"); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if err := s.expect("*3", "$10", "psubscribe", "$1", "*", ":1"); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go func() {
		defer close(s.done)
		var channel, payload []byte
		for {
			var err error
			if channel, payload, err = s.receive(channel, payload); err != nil {
				return
			}
			if h := s.handle.Load(); h != nil {
				(*h)(channel, payload, time.Now())
			}
			s.count.Add(1)
		}
	}()
	return s, nil
}

// receive reads the next message, into the memory of the last one. It is an array of four:
// pmessage, the pattern, channel and payload (https://redis.io/docs/latest/develop/pubsub).
func (s *subscriber) receive(channel, payload []byte) (_, _ []byte, err error) {
	if err := s.expect("*4", "$8", "pmessage", "$1", "*"); err != nil {
		return nil, nil, err
	}
	if channel, err = s.bulk(channel); err != nil {
		return nil, nil, err
	}
	payload, err = s.bulk(payload)
	return channel, payload, err
}

// expect reads lines that can only be these.
func (s *subscriber) expect(lines ...string) error {
	for _, want := range lines {
		if got, err := s.line(); err != nil {
			return err
		} else if string(got) != want {
			return fmt.Errorf("Redis has sent %q instead of %q", got, want)
		}
	}
	return nil
}

// bulk reads a string behind its length, into the memory of another.
func (s *subscriber) bulk(into []byte) ([]byte, error) {
	length, err := s.line()
	if err != nil {
		return nil, err
	}
	if len(length) < 2 || length[0] != '$' {
		return nil, fmt.Errorf("Redis has sent %q instead of a length", length)
	}
	n, err := strconv.Atoi(string(length[1:]))
	if err != nil {
		return nil, err
	}
	if n += len("\r\n"); cap(into) < n {
		into = make([]byte, n)
	}
	_, err = io.ReadFull(s.in, into[:n])
	return into[:n-len("\r\n")], err
}

// line reads up to the end of a line, which it leaves out. The line is valid until the next read.
func (s *subscriber) line() ([]byte, error) {
	line, err := s.in.ReadSlice('\n')
	return line[:max(len(line)-len("\r\n"), 0)], err
}

func (s *subscriber) close() {
	_ = s.conn.Close()
	<-s.done
}

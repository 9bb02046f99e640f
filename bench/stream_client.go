package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// readRun reads a run's stream from the beginning to event n and returns when each event was there. An event out of
// order is an error. ready is called once the stream is open.
func readRun(ctx context.Context, g *gateway, run uuid.UUID, n int, ready func()) ([]time.Time, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/v1/runs/%s/stream", g.base, run), nil)
	if err != nil {
		ready()
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	response, err := client.Do(request)
	ready()
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the stream answers %s", response.Status)
	}
	at := make([]time.Time, 0, n)
	lines := bufio.NewReaderSize(response.Body, 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return nil, fmt.Errorf("after event %d of %d: %w", len(at), n, err)
		}
		id, found := bytes.CutPrefix(line, []byte("id: "))
		if !found {
			continue
		}
		if seq, err := strconv.Atoi(string(bytes.TrimSpace(id))); err != nil || seq != len(at)+1 {
			return nil, fmt.Errorf("event %s came after %d", bytes.TrimSpace(id), len(at))
		}
		if at = append(at, time.Now()); len(at) == n {
			return at, nil
		}
	}
}

// dial opens a run's stream after an event and reads nothing but the head of the answer.
func (b *streamBench) dial(ctx context.Context, g *gateway, run uuid.UUID, after int) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(g.base, "http://"))
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "GET /v1/runs/%s/stream HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: %d\r\n\r\n", run,
		after); err != nil {
		return nil, err
	}
	head := make([]byte, 12)
	if _, err := conn.Read(head); err != nil {
		return nil, err
	}
	if !bytes.HasSuffix(head, []byte("200")) {
		return nil, fmt.Errorf("the stream answers %q", head)
	}
	return conn, nil
}

// stall opens streams and does not read them. The gateway cuts each off after 10 s, and the client comes back.
func (b *streamBench) stall(ctx context.Context, g *gateway) {
	for ctx.Err() == nil {
		conn, err := b.dial(ctx, g, b.long, 0)
		if err != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(12 * time.Second):
		}
		_ = conn.Close()
	}
}

// Package redisstream receives the entries of a stream of Redis for package source, as a consumer
// group.
//
// Guaranteed: an entry is acknowledged after its row. The entries of the stream are written in
// their order, by any number of processes: they are one consumer of the group, one of them has a
// batch at a time, and what is not acknowledged comes before what is new. An entry that was trimmed
// before anybody read it, after it had been handed out, is an event that says so.
//
// Not guaranteed: what Redis loses when it fails, nor entries that were trimmed before they were
// handed out. What other consumers of the same group have read is theirs.
package redisstream

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/internal/backoff"
	"github.com/outboxrelay/outbox/source"
)

// Config says what is received. Zero means the default in parentheses.
type Config struct {
	Stream string        // required
	Group  string        // the consumer group, which begins with the oldest entry if it is new; required
	Batch  int           // most entries of a batch (500)
	Poll   time.Duration // how often an empty stream is asked (50 ms)
	// AckWait is after which time another process gets entries that were not acknowledged (5 s). A
	// batch that takes longer is received twice, and written once.
	AckWait time.Duration
}

// Source is a source.Source.
type Source struct {
	client redis.UniversalClient
	cfg    Config
	held   bool // it has received what it has not acknowledged
}

// New returns a source on a client of the caller's.
func New(client redis.UniversalClient, cfg Config) (*Source, error) {
	if cfg.Stream == "" || cfg.Group == "" {
		return nil, errors.New("configure source: Stream and Group are required")
	}
	if cfg.Batch <= 0 {
		cfg.Batch = 500
	}
	if cfg.Poll <= 0 {
		cfg.Poll = 50 * time.Millisecond
	}
	if cfg.AckWait <= 0 {
		cfg.AckWait = 5 * time.Second
	}
	return &Source{client: client, cfg: cfg}, nil
}

// consumer is the name of all processes in their group.
const consumer = "outbox"

//go:embed receive.lua
var text string

var script = redis.NewScript(text)

// Receive implements source.Source.
func (s *Source) Receive(ctx context.Context) (source.Batch, error) {
	for {
		entries, err := s.read(ctx)
		if err != nil {
			return source.Batch{}, fmt.Errorf("read stream %s: %w", s.cfg.Stream, err)
		}
		if len(entries) == 0 {
			if !backoff.Wait(ctx, s.cfg.Poll) {
				return source.Batch{}, ctx.Err()
			}
			continue
		}
		ids, messages := make([]string, len(entries)), make([]source.Message, len(entries))
		for i, entry := range entries {
			if messages[i], ids[i], err = s.message(entry); err != nil {
				return source.Batch{}, err
			}
		}
		s.held = true
		return source.Batch{Messages: messages, Ack: func(ctx context.Context) error {
			err := s.client.XAck(ctx, s.cfg.Stream, s.cfg.Group, ids...).Err()
			s.held = err != nil
			return err
		}}, nil
	}
}

// read returns entries. A group that is not there, because it is new or Redis has lost it, is made.
func (s *Source) read(ctx context.Context) ([]any, error) {
	wait := s.cfg.AckWait
	if s.held {
		wait = 0
	}
	entries, err := script.Run(ctx, s.client, []string{s.cfg.Stream}, s.cfg.Group, consumer, s.cfg.Batch,
		wait.Milliseconds()).Slice()
	if err == nil || !strings.Contains(err.Error(), "NOGROUP") {
		return entries, err
	}
	err = s.client.XGroupCreateMkStream(ctx, s.cfg.Stream, s.cfg.Group, "0").Err()
	if err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") { // another was faster
		return nil, err
	}
	return nil, nil
}

// message reads an entry: its id, and fields and values, or nil if it was trimmed. Our sink has the
// message in the field event, in binary mode in data.
func (s *Source) message(entry any) (m source.Message, id string, err error) {
	parts, _ := entry.([]any)
	if len(parts) != 2 {
		return m, "", fmt.Errorf("read stream %s: an entry has the form %T", s.cfg.Stream, entry)
	}
	id = fmt.Sprint(parts[0])
	m = source.Message{Place: s.cfg.Stream + "/" + id, Channel: s.cfg.Stream,
		Problem: "the stream was trimmed before the entry was read"}
	milliseconds, _, _ := strings.Cut(id, "-")
	if at, err := strconv.ParseInt(milliseconds, 10, 64); err == nil {
		m.Time = time.UnixMilli(at)
	}
	fields, there := parts[1].([]any)
	if there {
		m.Problem = "the entry has no field event or data"
	}
	for i := 0; i+1 < len(fields); i += 2 {
		name, value := fmt.Sprint(fields[i]), fmt.Sprint(fields[i+1])
		if m.Header(name, value, false); name == "event" || name == "data" {
			m.Body, m.Problem = []byte(value), ""
		}
	}
	return m, id, nil
}

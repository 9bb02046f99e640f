package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/sink"
)

// linesDriver opens sinks that append each message to a file, a line each:
// lines:/var/log/events.jsonl.
func linesDriver() sink.Driver {
	return sink.Driver{
		Schemes: []string{"lines"}, Example: "lines:FILE appends to a file",
		Check: func(url string) error {
			if fileOf(url) == "" {
				return errors.New("the URL names no file: lines:FILE")
			}
			return nil
		},
		Open: func(_ context.Context, url string, _ sink.Options) (sink.Sink, error) {
			f, err := os.OpenFile(fileOf(url), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			if err != nil {
				return nil, fmt.Errorf("open lines: %w", err) // of no class: a folder that is not there does not come by itself
			}
			publish := func(_ context.Context, d outbox.Delivery) error {
				var line bytes.Buffer // a payload may have line breaks
				if err := json.Compact(&line, d.AppendMessage(nil, outbox.CloudEvent)); err != nil {
					return outbox.Permanent(err)
				}
				line.WriteByte('\n')
				_, err := f.Write(line.Bytes())
				return err
			}
			return lines{outbox.SinkFunc(publish), f}, nil
		},
		Tail: tail,
	}
}

func fileOf(url string) string { return strings.TrimPrefix(url, "lines:") }

type lines struct {
	outbox.SinkFunc
	file *os.File
}

func (l lines) Abilities() outbox.Abilities { return outbox.Abilities{Ping: l.ping} }

func (l lines) ping(context.Context) error {
	_, err := l.file.Stat()
	return err
}

func (l lines) Close() error { return l.file.Close() }

// tail prints what is appended. A file knows no channels, so all of them are one.
func tail(ctx context.Context, url string, channels []string, t sink.Tail) (err error) {
	f, err := os.OpenFile(fileOf(url), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open lines: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return fmt.Errorf("find the end of the lines: %w", err)
	}
	t.Subscribed(channels)
	reader, begun := bufio.NewReader(f), ""
	for ctx.Err() == nil {
		line, err := reader.ReadString('\n')
		begun += line
		if err != nil { // the rest of a line is still to come
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		if err := t.Message(channels[0], strings.TrimSuffix(begun, "\n")); err != nil {
			return err
		}
		begun = ""
	}
	return nil
}

package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
)

const (
	batchLines = 500
	batchBytes = 8 << 20 // a transaction of 500 of the largest payloads would be half a gigabyte
	// maxLine leaves room for the largest payload, as much metadata, and the escapes that JSON may
	// have written both with.
	maxLine = 8 * outbox.DefaultMaxPayload
	// linger is how long a line waits for others to share its transaction. Somebody may be typing,
	// or following a log.
	linger = 50 * time.Millisecond
)

// parseLine returns the fields of a line, and of all what it leaves out.
func parseLine(text []byte, all fields) (in fields, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return in, undecodable(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return in, errors.New("there is more than one JSON value on it")
	}
	return in.or(all), nil
}

// undecodable says in an operator's words why a line is no event.
func undecodable(err error) error {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) && kind.Field != "" {
		return fmt.Errorf("%s: got JSON of type %s, want %s", kind.Field, kind.Value, typeName(kind.Type))
	}
	if errors.As(err, &kind) {
		return fmt.Errorf("got JSON of type %s, want an object with the fields of an event", kind.Value)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("its JSON is not complete: an event must be on one line")
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

// typeName is a type of fields in the words of JSON.
func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice:
		return "list of strings"
	case reflect.Int:
		return "whole number"
	}
	return t.String()
}

// writeLines writes an event a line. template has what lines may leave out.
func (a *application) writeLines(ctx context.Context, w writing, template fields, form string) error {
	b := lineBatch{app: a, writing: w, form: form, next: 1, progress: newProgress(a.Err)}
	problem := b.readAll(ctx, template)
	// The lines before a bad one are good, so they are committed, and one goes on from the bad one.
	if err := b.flush(ctx); err != nil {
		problem = err
	}
	b.progress.done()
	if problem != nil {
		if b.next == 1 {
			return fmt.Errorf("%w; nothing before that was written", problem)
		}
		return fmt.Errorf("%w; the lines before line %d are committed (%s), go on from there with "+
			"the same flags: tail -n +%d FILE | outbox write --jsonl …", problem, b.next, b.summary(), b.next)
	}
	out := a.Out
	if form == "json" {
		out = a.Err
	}
	fmt.Fprintf(out, "wrote %s\n", b.summary())
	return nil
}

// lineBatch gathers lines to a transaction.
type lineBatch struct {
	app      *application
	writing  writing
	form     string
	progress *progress

	waiting           []pending
	bytes             int
	due               time.Time // when what is waiting is committed at the latest
	next              int       // first line that is not committed
	wrote, duplicates int
}

// readAll commits full batches and returns at the end of the input, or with what is wrong with a
// line; the last batch is not committed yet.
func (b *lineBatch) readAll(ctx context.Context, template fields) error {
	lines := readLines(ctx, b.app.In)
	for {
		pause := (<-chan time.Time)(nil)
		if len(b.waiting) > 0 {
			pause = time.After(time.Until(b.due))
		}
		select {
		case <-ctx.Done():
			return errors.New("interrupted")
		case <-pause:
			if err := b.flush(ctx); err != nil {
				return err
			}
		case line := <-lines:
			if errors.Is(line.err, io.EOF) {
				return nil
			}
			if err := b.add(ctx, line, template); err != nil {
				return err
			}
		}
	}
}

func (b *lineBatch) add(ctx context.Context, line inputText, template fields) error {
	if line.err != nil {
		return fmt.Errorf("line %d: %w", line.number, line.err)
	}
	if len(bytes.TrimSpace(line.text)) == 0 {
		return nil
	}
	event, err := parseLine(line.text, template)
	var prepared pending
	if err == nil {
		prepared, err = b.writing.prepare(ctx, event)
	}
	if err != nil {
		return fmt.Errorf("line %d: %w", line.number, err)
	}
	prepared.line = line.number
	if len(b.waiting) == 0 {
		b.due = time.Now().Add(linger)
	}
	b.waiting = append(b.waiting, prepared)
	if b.bytes += len(line.text); len(b.waiting) == batchLines || b.bytes >= batchBytes {
		return b.flush(ctx)
	}
	return nil
}

// flush commits what is waiting.
func (b *lineBatch) flush(ctx context.Context) error {
	if len(b.waiting) == 0 {
		return nil
	}
	first, last := b.waiting[0].line, b.waiting[len(b.waiting)-1].line
	done, err := b.writing.commit(ctx, b.waiting)
	b.waiting, b.bytes = b.waiting[:0], 0 // also after an error: it ends the writing
	if err != nil {
		return fmt.Errorf("commit lines %d to %d: %w", first, last, err)
	}
	b.next = last + 1
	for _, d := range done {
		if d.Duplicate {
			b.duplicates++
		} else {
			b.wrote++
		}
		if b.form == "json" {
			if err := printLine(b.app.Out, d); err != nil {
				return err
			}
		}
	}
	b.progress.show("%s", counted(b.wrote, "event"))
	return nil
}

func (b *lineBatch) summary() string {
	s := counted(b.wrote, "event")
	if b.duplicates > 0 {
		s += fmt.Sprintf(", %d more were in the table already", b.duplicates)
	}
	return s
}

// A read from a terminal or a pipe cannot be interrupted, so stdin is read by goroutines of its
// own. After a stop nobody waits for them: they end with the process, which is about to.

// readAll returns all of r, at most limit bytes of it.
func readAll(ctx context.Context, r io.Reader, limit int64) ([]byte, error) {
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(r, limit))
		done <- result{text, err}
	}()
	select {
	case <-ctx.Done():
		return nil, errors.New("interrupted, nothing was written")
	case r := <-done:
		return r.text, r.err
	}
}

// readLines sends the lines of r until it ends or ctx does. The last value has err set, io.EOF at
// the end.
func readLines(ctx context.Context, r io.Reader) <-chan inputText {
	lines := make(chan inputText, 16) // few, because a line may be large
	go func() {
		scanner := bufio.NewScanner(r)
		scanner.Buffer(make([]byte, 64<<10), maxLine)
		n := 0
		send := func(l inputText) bool {
			select {
			case lines <- l:
				return true
			case <-ctx.Done():
				return false
			}
		}
		for scanner.Scan() {
			n++
			if !send(inputText{number: n, text: bytes.Clone(scanner.Bytes())}) {
				return
			}
		}
		err := io.EOF
		if errors.Is(scanner.Err(), bufio.ErrTooLong) {
			n++
			err = fmt.Errorf("it has more than %d bytes", maxLine)
		} else if scanner.Err() != nil {
			err = scanner.Err()
		}
		send(inputText{number: n, err: err})
	}()
	return lines
}

type inputText struct {
	number int
	text   []byte
	err    error
}

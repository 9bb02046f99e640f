package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// A read from a terminal or a pipe cannot be interrupted, so stdin is read by goroutines of its own. After a stop
// nobody waits for them: they end with the process, which is about to.

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

// readLines sends the lines of r until it ends or ctx does. The last value has err set, io.EOF at the end.
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

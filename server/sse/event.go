package sse

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Event is one block of a stream.
type Event struct {
	// ID becomes the client's last event id, which it sends when it connects again. Empty: the
	// client keeps the one it has.
	ID string
	// Name is the type of the event. Empty: a browser calls it "message".
	Name string
	// Data is what the client's handler gets. Empty but not nil is an event with empty data. Nil is
	// no event: the client takes ID and Retry over, and no handler is called.
	Data []byte
	// Retry is how long the client is to wait before it connects again, in whole milliseconds,
	// rounded up. 0: as it does now.
	Retry time.Duration
}

// What has no encoding. The format knows no escapes, so the only safe thing to do with a line break
// in a one-line field is not to write it.
var (
	errID    = errors.New("encode event: the id contains NUL, CR or LF")
	errName  = errors.New("encode event: the name contains NUL, CR or LF")
	errRetry = errors.New("encode event: retry is negative")
	errNil   = errors.New("encode event: a name without data: the client would drop it")
	errEmpty = errors.New("encode event: nothing in it")
)

// Append appends e to dst as a client reads it. An event that cannot be encoded is an error, and
// dst is returned as it was.
func Append(dst []byte, e Event) ([]byte, error) {
	switch {
	case strings.ContainsAny(e.ID, "\x00\r\n"): // with a NUL the client would ignore it and come back with an older one
		return dst, errID
	case strings.ContainsAny(e.Name, "\x00\r\n"): // with a NUL some readers end the name there
		return dst, errName
	case e.Retry < 0:
		return dst, errRetry
	case e.Data == nil && e.Name != "":
		return dst, errNil
	case e.Data == nil && e.ID == "" && e.Retry == 0:
		return dst, errEmpty
	}
	// The space after a colon is not part of the value. It is always written, because a value may
	// begin with one of its own.
	if e.ID != "" {
		dst = append(append(append(dst, "id: "...), e.ID...), '\n')
	}
	if e.Name != "" {
		dst = append(append(append(dst, "event: "...), e.Name...), '\n')
	}
	if e.Retry > 0 {
		dst = append(dst, "retry: "...)
		dst = strconv.AppendInt(dst, int64((e.Retry-1)/time.Millisecond)+1, 10)
		dst = append(dst, '\n')
	}
	if e.Data != nil {
		dst = appendLines(dst, "data: ", e.Data)
	}
	return append(dst, '\n'), nil
}

// AppendComment appends text as a comment, which clients ignore: a sign of life that keeps proxies
// from closing a quiet connection. It must come between events, not within one.
func AppendComment(dst []byte, text string) []byte {
	return appendLines(dst, ": ", []byte(text))
}

// appendLines appends each line of text, after prefix. A line ends with LF, CRLF or CR, as in the
// format itself. What follows the last line end is a line, even if it is empty, so that a client
// gets back all of them.
func appendLines(dst []byte, prefix string, text []byte) []byte {
	begin := 0
	// Each kind of line end is looked for again only when the last one found is behind: two fast
	// searches over the text, however many lines.
	lf, cr := find(text, 0, '\n'), find(text, 0, '\r')
	for {
		end := min(lf, cr)
		dst = append(append(append(dst, prefix...), text[begin:end]...), '\n')
		if end == len(text) {
			return dst
		}
		begin = end + 1
		if end == cr {
			if begin < len(text) && lf == begin {
				begin++
			}
			cr = find(text, begin, '\r')
		}
		if lf < begin {
			lf = find(text, begin, '\n')
		}
	}
}

// find returns where c is next in text, len(text) if nowhere.
func find(text []byte, from int, c byte) int {
	if i := bytes.IndexByte(text[from:], c); i >= 0 {
		return from + i
	}
	return len(text)
}

// quote is what an error shows of a text that somebody sent: at most its first 40 bytes, with
// nothing that a log or a terminal would obey.
func quote(text string) string {
	const most = 40
	if len(text) > most {
		return fmt.Sprintf("%+q… (%d bytes)", text[:most], len(text))
	}
	return strconv.QuoteToASCII(text)
}

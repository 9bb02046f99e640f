package sse

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Cursor returns the number of the last event that a client has: it is to be sent what comes after.
// It looks in this order and takes the first it finds:
//
//   - the header Last-Event-ID: an EventSource that connects again sends it, to the URL it was made
//     with, so it knows better than the URL
//   - the query parameter lastEventId: for who cannot set a header, such as a page that was loaded
//     again
//   - the query parameter fromSeq: begin with this event, counted from 1
//
// A client that names none has nothing, which is 0. An empty value counts as not given: an
// EventSource without an id leaves the header out, and a copy of one in a script often sends it
// empty. A malformed value is an error even if a later one is good, and so is one given twice.
func Cursor(h http.Header, q url.Values) (after int64, err error) {
	text, name, err := lastEventID(h, q)
	if err != nil {
		return 0, err
	}
	if text != "" {
		if after, err = ParseLastEventID(text); err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		return after, nil
	}
	text, err = only("fromSeq", q["fromSeq"])
	if text == "" || err != nil {
		return 0, err
	}
	from, err := ParseLastEventID(text)
	if err == nil && from == 0 {
		err = errors.New("the first event is 1")
	}
	if err != nil {
		return 0, fmt.Errorf("fromSeq: %w", err)
	}
	return from - 1, nil
}

// VectorCursor is Cursor for a stream of n sources, which has no fromSeq. A client that names none
// gets nil.
func VectorCursor(h http.Header, q url.Values, n int) ([]int64, error) {
	text, name, err := lastEventID(h, q)
	if text == "" || err != nil {
		return nil, err
	}
	after, err := ParseVector(text, n)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return after, nil
}

// lastEventID returns what the client sends as its last event id, and where it was; empty if
// nowhere.
func lastEventID(h http.Header, q url.Values) (text, name string, err error) {
	const header, parameter = "Last-Event-ID", "lastEventId"
	if text, err = only(header, h.Values(header)); text != "" || err != nil {
		return text, header, err
	}
	text, err = only(parameter, q[parameter])
	return text, parameter, err
}

func only(name string, values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", fmt.Errorf("%s: given %d times", name, len(values))
}

// ParseLastEventID reads the number of an event, 0 to 2^63-1, in the one spelling in which it was
// sent as an id: decimal digits without sign, space or leading zero. The error quotes at most 40
// bytes.
func ParseLastEventID(header string) (int64, error) {
	if header == "" {
		return 0, errors.New("empty, want the number of an event")
	}
	for i := range len(header) {
		if c := header[i]; c < '0' || c > '9' {
			return 0, fmt.Errorf("%s is not the number of an event: only the digits 0 to 9 are allowed", quote(header))
		}
	}
	if header[0] == '0' && header != "0" {
		return 0, fmt.Errorf("%s is not the number of an event: it begins with 0", quote(header))
	}
	n, err := strconv.ParseInt(header, 10, 64)
	if err != nil { // its only reason left: out of range, which the 19 digits of 2^63-1 bound
		return 0, fmt.Errorf("%s is not the number of an event: it is above 2^63-1", quote(header))
	}
	return n, nil
}

// ParseVector reads the cursor of a stream of n sources, for example 12.7.0: the number of the last
// event of each, in the order in which the client named them. The error quotes at most 40 bytes.
func ParseVector(s string, n int) ([]int64, error) {
	if places := strings.Count(s, ".") + 1; places != n { // before anything is allocated for them
		return nil, fmt.Errorf("%s has %d places, want one for each of %d sources", quote(s), places, n)
	}
	vector := make([]int64, 0, n)
	for place := range strings.SplitSeq(s, ".") {
		number, err := ParseLastEventID(place)
		if err != nil {
			return nil, fmt.Errorf("place %d: %w", len(vector)+1, err)
		}
		vector = append(vector, number)
	}
	return vector, nil
}

// AppendVector appends what ParseVector reads. No number may be negative.
func AppendVector(dst []byte, vector []int64) []byte {
	for i, number := range vector {
		if i > 0 {
			dst = append(dst, '.')
		}
		dst = strconv.AppendInt(dst, number, 10)
	}
	return dst
}

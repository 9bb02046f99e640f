package integration

import (
	"bytes"
	"strings"
	"testing"

	gosse "github.com/tmaxmax/go-sse"

	"github.com/outboxrelay/outbox/server/sse"
)

// FuzzEventStream: a parser that is not ours reads our events as they were. It lives here because a
// test beside server/sse would put the parser into the go.sum of everybody who imports the gateway.
func FuzzEventStream(f *testing.F) {
	f.Add("1", "NODE_START", []byte("{}"), "still here")
	f.Add("", "", []byte("a\r\nb\rc\n"), "a\nid: 5")
	f.Add(":", " ", []byte("\ndata: x\n\nid: 2\n"), "\r\n\r\n")
	f.Add("\xef\xbb\xbf", "e\x00", []byte(""), "")
	f.Fuzz(func(t *testing.T, id, name string, data []byte, comment string) {
		data = append([]byte{}, data...) // not nil, which is no event
		stream, err := sse.Append(nil, sse.Event{ID: id, Name: name, Data: data})
		if err != nil {
			return // has no encoding; server/sse tests which those are
		}
		stream = sse.AppendComment(stream, comment)
		if stream, err = sse.Append(stream, sse.Event{Data: []byte("end")}); err != nil {
			t.Fatal(err)
		}
		lines := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data))
		want := []gosse.Event{{LastEventID: id, Type: name, Data: lines}, {LastEventID: id, Data: "end"}}
		for event, err := range gosse.Read(bytes.NewReader(stream), &gosse.ReadConfig{MaxEventSize: 1 << 20}) {
			if err != nil || len(want) == 0 || event != want[0] {
				t.Fatalf("%q is read as %+q, %v; want %+q", stream, event, err, want)
			}
			want = want[1:]
		}
		if len(want) > 0 {
			t.Fatalf("%q: missing %+q", stream, want)
		}
	})
}

package sse

import (
	"strings"
	"testing"
	"time"
)

func TestAppend(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		event Event
		want  string
	}{
		"all fields": {Event{ID: "12", Name: "NODE_START", Data: []byte("{}"), Retry: 3 * time.Second},
			"id: 12\nevent: NODE_START\nretry: 3000\ndata: {}\n\n"},
		"data alone":             {Event{Data: []byte("x")}, "data: x\n\n"},
		"empty data is an event": {Event{Data: []byte{}}, "data: \n\n"},
		"no data, only an id":    {Event{ID: "7"}, "id: 7\n\n"},
		"no data, only retry":    {Event{Retry: time.Second}, "retry: 1000\n\n"},
		"retry rounds up":        {Event{Retry: time.Millisecond + 1}, "retry: 2\n\n"},
		"the longest retry":      {Event{Retry: 1<<63 - 1}, "retry: 9223372036855\n\n"},
		"LF":                     {Event{Data: []byte("a\nb")}, "data: a\ndata: b\n\n"},
		"CRLF":                   {Event{Data: []byte("a\r\nb")}, "data: a\ndata: b\n\n"},
		"CR":                     {Event{Data: []byte("a\rb")}, "data: a\ndata: b\n\n"},
		"all of them": {Event{Data: []byte("\n\r\r\n\na\r")},
			"data: \ndata: \ndata: \ndata: \ndata: a\ndata: \n\n"},
		"LF CR is two":         {Event{Data: []byte("a\n\rb")}, "data: a\ndata: \ndata: b\n\n"},
		"ends with a line end": {Event{Data: []byte("a\n")}, "data: a\ndata: \n\n"},
		"spaces are kept":      {Event{ID: " 1", Name: " n", Data: []byte(" d")}, "id:  1\nevent:  n\ndata:  d\n\n"},
		"fields within data":   {Event{Data: []byte("id: 9\n\ndata: x")}, "data: id: 9\ndata: \ndata: data: x\n\n"},
		"colons are content":   {Event{ID: ":", Name: ":", Data: []byte(":")}, "id: :\nevent: :\ndata: :\n\n"},
		"NUL in data":          {Event{Data: []byte("b\x00")}, "data: b\x00\n\n"},
		// Are none in this format.
		"unicode line ends": {Event{Data: []byte("a\u2028b\u0085c\vd")}, "data: a\u2028b\u0085c\vd\n\n"},
	} {
		got, err := Append([]byte("before"), tt.event)
		if err != nil || string(got) != "before"+tt.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tt.want)
		}
	}
}

func TestAppendRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		event Event
		text  string
	}{
		"LF in the id":      {Event{ID: "1\ndata: x", Data: []byte("x")}, "id"},
		"CR in the id":      {Event{ID: "1\r", Data: []byte("x")}, "id"},
		"NUL in the id":     {Event{ID: "1\x00", Data: []byte("x")}, "id"},
		"LF in the name":    {Event{Name: "a\nb", Data: []byte("x")}, "name"},
		"CR in the name":    {Event{Name: "a\rb", Data: []byte("x")}, "name"},
		"NUL in the name":   {Event{Name: "a\x00", Data: []byte("x")}, "name"},
		"negative retry":    {Event{Retry: -1, Data: []byte("x")}, "retry"},
		"name without data": {Event{ID: "1", Name: "n"}, "name"},
		"nothing":           {Event{}, "nothing"},
	} {
		got, err := Append([]byte("before"), tt.event)
		if err == nil || !strings.Contains(err.Error(), tt.text) || string(got) != "before" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestAppendComment(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                  ": \n",
		"still here":        ": still here\n",
		"a\ndata: b\r\n\rc": ": a\n: data: b\n: \n: c\n",
	} {
		if got := AppendComment(nil, text); string(got) != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// read is the parser of the standard, section 9.2.6, line by line as it is written there, so that
// the fuzz test does not depend on what we believe.
func read(stream string) (events []Event, retry string) {
	var data, name, id string
	stream = strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(stream, "\n")
	for _, line := range lines[:len(lines)-1] { // what no line end follows is not interpreted
		if line == "" {
			if data != "" {
				events = append(events, Event{ID: id, Name: name, Data: []byte(strings.TrimSuffix(data, "\n"))})
			}
			data, name = "", ""
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			name = value
		case "data":
			data += value + "\n"
		case "id":
			if !strings.Contains(value, "\x00") {
				id = value
			}
		case "retry":
			if strings.Trim(value, "0123456789") == "" {
				retry = value
			}
		}
	}
	return events, retry
}

// FuzzAppend: a client reads what was written, between two other events, and nothing else.
func FuzzAppend(f *testing.F) {
	f.Add("1", "NODE_START", []byte("{}"), int64(time.Second), "still here")
	f.Add("", "", []byte("a\r\nb\rc\n"), int64(0), "a\nid: 5")
	f.Add(":", " ", []byte("\ndata: x\n\nid: 2\n"), int64(1), "\r\n\r\n")
	f.Add("\xef\xbb\xbf", "e\x00", []byte{}, int64(-1), "")
	f.Fuzz(func(t *testing.T, id, name string, data []byte, retry int64, comment string) {
		if data == nil {
			data = []byte{} // the fuzzer does not tell one from the other
		}
		before, err := Append(nil, Event{ID: "before", Data: []byte("1")})
		if err != nil {
			t.Fatal(err)
		}
		stream, err := Append(before, Event{ID: id, Name: name, Data: data, Retry: time.Duration(retry)})
		if refused := strings.ContainsAny(id, "\x00\r\n") || strings.ContainsAny(name, "\x00\r\n") ||
			retry < 0; refused != (err != nil) {
			t.Fatalf("refused is %v, error %v", refused, err)
		}
		if err != nil {
			return
		}
		stream = AppendComment(stream, comment)
		if stream, err = Append(stream, Event{Data: []byte("2")}); err != nil {
			t.Fatal(err)
		}
		if id == "" {
			id = "before"
		}
		got, gotRetry := read(string(stream))
		text := strings.ReplaceAll(strings.ReplaceAll(string(data), "\r\n", "\n"), "\r", "\n")
		if len(got) != 3 || got[1].ID != id || got[1].Name != name || string(got[1].Data) != text || got[2].ID != id ||
			got[2].Name != "" || string(got[2].Data) != "2" {
			t.Fatalf("read %q", got)
		}
		if (retry > 0) != (gotRetry != "") || gotRetry == "0" {
			t.Fatalf("retry of %d ns is read as %q", retry, gotRetry)
		}
	})
}

// BenchmarkAppend is one event as the gateway writes it, in a buffer that is used again.
func BenchmarkAppend(b *testing.B) {
	data := []byte(strings.Repeat(`{"x":1}`, 100))
	for name, e := range map[string]Event{
		"700 bytes": {ID: "123456", Name: "ACTION_EXECUTED", Data: data},
		"700 bytes, 20 lines": {ID: "123456", Name: "ACTION_EXECUTED",
			Data: []byte(strings.Repeat(strings.Repeat("x", 34)+"\n", 20))},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				var err error
				if buf, err = Append(buf[:0], e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("comment", func(b *testing.B) {
		b.ReportAllocs()
		var buf []byte
		for b.Loop() {
			buf = AppendComment(buf[:0], "still here")
		}
	})
}

func TestAppendAllocatesNothing(t *testing.T) {
	e := Event{ID: "1", Name: "n", Data: []byte("a\nb"), Retry: time.Second}
	buf := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := Append(buf, e); err != nil {
			t.Error(err)
		}
		AppendComment(buf, "still here")
		AppendVector(buf, []int64{1, 2})
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

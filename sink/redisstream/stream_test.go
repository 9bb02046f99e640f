package redisstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// What is wrong with one stream fails its own events, with what to do, and is forgotten: once it is
// mended they go out.
func TestRefusedStreams(t *testing.T) {
	t.Parallel()
	sink, admin := restricted(t, testenv.RedisServer(t), Config{Envelope: idEnvelope})
	makeStreams(t, admin, "suite:well", "private")
	for name, tt := range map[string]struct {
		spoil, mend []any
		says        string
	}{
		"suite:missing": {[]any{"PING"}, []any{"XGROUP", "CREATE", "suite:missing", "g", "$", "MKSTREAM"},
			"XGROUP CREATE suite:missing GROUP $ MKSTREAM"},
		"suite:text": {[]any{"SET", "suite:text", "x"}, []any{"DEL", "suite:text"}, "holds something else"},
		"private":    {[]any{"PING"}, []any{"ACL", "SETUSER", "relay", "~private"}, "ACL SETUSER with ~private"},
		"suite:full": {[]any{"XADD", "suite:full", "18446744073709551615-18446744073709551615", "a", "b"},
			[]any{"DEL", "suite:full"}, "ID"},
	} {
		do(t, admin, tt.spoil...)
		batch := []outbox.Delivery{event(t, name, 1), event(t, "suite:well", 1), event(t, "suite:well", 2)}
		got := sink.Publish(t.Context(), batch)
		sinktest.WantClass(t, got[0].Err, outbox.ClassRetryable, tt.says, name)
		if !errors.Is(got[1].Err, outbox.ErrNotAttempted) || got[2] != (outbox.Result{}) {
			t.Errorf("%s: the others are answered %+v", name, got[1:])
		}
		do(t, admin, tt.mend...)
		if tt.mend[0] == "DEL" {
			makeStreams(t, admin, name)
		}
		deliver(t, sink, batch[:2]...)
		if n := admin.XLen(t.Context(), name).Val(); n != 1 {
			t.Errorf("%s has %d entries, want 1", name, n)
		}
	}
}

// A stream is made only when asked, and its trimming keeps what it says.
func TestCreateAndTrim(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	batch := func(stream string, n int) (all []outbox.Delivery) {
		for range n {
			all = append(all, event(t, stream, 1))
		}
		return all
	}
	for query, want := range map[string]struct{ least, most int64 }{
		"":                       {1000, 1000},
		"&maxlen=10&exact=true":  {10, 10},
		"&maxlen=10":             {10, 300}, // a node of a stream has 100 entries by default
		"&minid=1h":              {1000, 1000},
		"&minid=1ms&exact=true":  {0, 999},
		"&maxlen=10&exact=false": {10, 300},
	} {
		stream := "s" + query
		sink := openURL(t, "redis+stream://"+server.Addr()+"?create=true"+query, Config{Envelope: idEnvelope})
		for part := range slices.Chunk(batch(stream, 1000), 100) {
			deliver(t, sink, part...)
			time.Sleep(2 * time.Millisecond) // longer than the shortest age
		}
		if n := admin.XLen(t.Context(), stream).Val(); n < want.least || n > want.most {
			t.Errorf("%q leaves %d entries, want %d to %d", query, n, want.least, want.most)
		}
	}
	sink := openURL(t, "redis+stream://"+server.Addr()+"?create=false", Config{})
	res := sink.Publish(t.Context(), batch("new", 1))
	if res[0].Err == nil || admin.Exists(t.Context(), "new").Val() != 0 {
		t.Errorf("answered %+v, want that there is no such stream", res)
	}
}

// More fields than Lua can hand to a command fail the event alone, and it is not remembered as
// published.
func TestTooManyFields(t *testing.T) {
	t.Parallel()
	sink, admin := open(t, testenv.RedisServer(t), Config{Binary: true})
	makeStreams(t, admin, "s")
	metadata := map[string]int{}
	for i := range 40_000 { // more than a MessagePack array 16 has, too
		metadata[fmt.Sprintf("m%d", i)] = i
	}
	bad, other := event(t, "s", 1), event(t, "s", 2)
	var err error
	if bad.RawMetadata, err = json.Marshal(metadata); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got := sink.Publish(t.Context(), []outbox.Delivery{bad, other})
		sinktest.WantClass(t, got[0].Err, outbox.ClassRetryable)
		if got[1].Err != nil {
			t.Errorf("the event beside it is answered %+v", got[1])
		}
	}
	if n := admin.XLen(t.Context(), "s").Val(); n != 1 {
		t.Errorf("the stream has %d entries, want the other event once", n)
	}
}

// Any bytes may be a stream's name, and none of them gets into another argument.
func FuzzStreamName(f *testing.F) {
	for _, name := range []string{
		"orders", "a b", "a\r\nb", "*", "{tag}x", "}{", "\x00\xff", strings.Repeat("long", 1000),
	} {
		f.Add(name)
	}
	server := testenv.RedisServer(f)
	sink := openURL(f, "redis+stream://"+server.Addr()+"?create=true", Config{Envelope: idEnvelope, Window: time.Second})
	admin := connectAdmin(f, server)
	f.Fuzz(func(t *testing.T, name string) {
		d := event(t, name, 1)
		got := sink.Publish(t.Context(), []outbox.Delivery{d})[0]
		if name == "" || strings.HasPrefix(name, "outbox:") {
			sinktest.WantClass(t, got.Err, outbox.ClassPermanent)
			return
		}
		if got.Err != nil {
			t.Fatalf("%q: %v", name, got.Err)
		}
		last, err := admin.XRevRangeN(t.Context(), name, "+", "-", 1).Result()
		if err != nil || len(last) != 1 || last[0].Values[eventField] != d.ID.String() || len(last[0].Values) != 1 {
			t.Errorf("%q: the last entry is %v, %v", name, last, err)
		}
	})
}

// The names of the keys are a contract: operators look for them, and other versions share them.
// Channels of the same name have others.
func TestKeys(t *testing.T) {
	t.Parallel()
	sink, admin := open(t, testenv.RedisServer(t), Config{})
	makeStreams(t, admin, "orders")
	d := event(t, "orders", 1)
	d.Lane = 12
	deliver(t, sink, d)
	wantCopies(t, sink, d)
	keys := admin.Keys(t.Context(), "outbox:*").Val()
	if len(keys) != 1 || !strings.HasPrefix(keys[0], "outbox:seen:stream:{12}:120000:") {
		t.Errorf("the keys are %q", keys)
	}
}

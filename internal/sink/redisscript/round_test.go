package redisscript

import (
	"errors"
	"slices"
	"testing"

	"github.com/outboxrelay/outbox"
)

// Whatever else differs between two deliveries of an event must change the member.
func TestCopyHash(t *testing.T) {
	seen := map[uint64]outbox.Delivery{}
	for _, destination := range []string{"", "a", "b", "ab", "ba", "a\x00", "a\x01"} {
		for _, generation := range []int{0, 1, 2, 255, 256, 257, 65536} {
			for _, origin := range []uint64{0, 1, 2, 255, 256, 257, 65536, 1 << 63} {
				d := outbox.Delivery{Destination: destination, Origin: origin, Record: &outbox.Record{Generation: generation}}
				h := copyHash(&d)
				if other, ok := seen[h]; ok {
					t.Errorf("(%q, %d, %d) and (%q, %d, %d) have the same hash", destination, generation, origin, other.Destination,
						other.Generation, other.Origin)
				}
				seen[h] = d
			}
		}
	}
}

func refuse(_, text string) error { return errors.New(text) }

func TestAnswer(t *testing.T) {
	batch := []outbox.Delivery{{Destination: "a"}, {Destination: "b"}, {Destination: "c"}, {Destination: "d"}}
	deliveries := []int{0, 1, 3} // the third is another call's
	for _, tt := range []struct {
		reply any
		want  []outbox.Result
	}{
		{[]any{int64(3)}, []outbox.Result{{}, {}, {}, {}}},
		{[]any{int64(3), int64(1), int64(0), int64(3), int64(1)},
			[]outbox.Result{{Duplicate: true}, {}, {}, {Err: outbox.ErrNotAttempted}}},
		{nil, nil}, {"OK", nil}, {int64(3), nil}, {[]any{}, nil},
		{[]any{int64(2)}, nil},                                         // other than was asked for
		{[]any{int64(3), int64(1)}, nil},                               // half a pair
		{[]any{int64(3), int64(0), int64(0)}, nil},                     // counted from 0
		{[]any{int64(3), int64(4), int64(0)}, nil},                     // beyond the end
		{[]any{int64(3), int64(1), int64(2)}, nil},                     // no such answer
		{[]any{int64(3), int64(1), nil}, nil},                          // neither
		{[]any{int64(3), "1", int64(0)}, nil},                          // not a number
		{[]any{int64(3), int64(2), int64(0), int64(2), int64(0)}, nil}, // twice
	} {
		results := make([]outbox.Result, len(batch))
		err := answer(tt.reply, deliveries, batch, results, refuse)
		if tt.want == nil {
			if !errors.Is(err, errUnknownReply) {
				t.Errorf("%v: %v", tt.reply, err)
			}
		} else if err != nil || !slices.Equal(results, tt.want) {
			t.Errorf("%v: %v, %+v", tt.reply, err, results)
		}
	}
}

// FuzzAnswer: a reply is understood completely or not at all, and answers no delivery but its own.
func FuzzAnswer(f *testing.F) {
	f.Add(uint8(3), []byte{3})
	f.Add(uint8(3), []byte{3, 1, 0, 2, 1, 3, 's'})
	f.Add(uint8(0), []byte{0, 200, 0})
	f.Fuzz(func(t *testing.T, n uint8, reply []byte) {
		batch := make([]outbox.Delivery, 2*int(n))
		deliveries := make([]int, n)
		for i := range deliveries {
			deliveries[i] = 2 * i // every second delivery is another call's
		}
		var list []any
		for _, b := range reply {
			switch b {
			case 's':
				list = append(list, "ERR refused")
			case 'n':
				list = append(list, nil)
			default:
				list = append(list, int64(int8(b)))
			}
		}
		results := make([]outbox.Result, len(batch))
		if answer(list, deliveries, batch, results, refuse) != nil {
			return
		}
		answered := 0
		for i, res := range results {
			if res != (outbox.Result{}) {
				answered++
				if i%2 == 1 {
					t.Errorf("delivery %d of another call is answered %+v", i, res)
				}
			}
		}
		if len(list) != 1+2*answered {
			t.Errorf("%d exceptions in %v", answered, list)
		}
	})
}

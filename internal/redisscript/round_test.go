package redisscript

import (
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

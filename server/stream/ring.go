package stream

// ring keeps the newest messages of a stream, up to its size. What it gave out stays valid: it
// never writes to a place twice.
type ring struct {
	size     ringSize
	messages []Message
	bytes    int
}

type ringSize struct{ messages, bytes int }

// What a run's reader does not find in the ring it finds in the log; a topic's is told to begin
// anew. So a topic's holds several batches of a relay (1000 events each), which arrive within a
// millisecond each where the relay is in this process. Of a burst of 3000 a reader missed 449 with
// 512 places.
var (
	runRing   = ringSize{512, 512 << 10}
	topicRing = ringSize{4096, 2 << 20}
)

// add appends m. When the ring is full the older half goes, in a new array: readers still hold the
// old one.
func (r *ring) add(m Message) {
	if len(r.messages) >= r.size.messages || len(r.messages) > 1 && r.bytes+m.size() > r.size.bytes {
		half := r.messages[len(r.messages)/2:]
		r.messages = append(make([]Message, 0, 2*len(half)+1), half...)
		r.bytes = 0
		for i := range half {
			r.bytes += half[i].size()
		}
	}
	r.messages = append(r.messages, m)
	r.bytes += m.size()
}

// clear forgets everything.
func (r *ring) clear() { *r = ring{size: r.size} }

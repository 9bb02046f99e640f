package stream

// ring keeps the newest messages of a stream, up to so many and so many bytes. What it gave out stays valid: it never writes to a place twice.
type ring struct {
	messages []Message
	bytes    int
}

const (
	ringMessages = 512
	ringBytes    = 512 << 10
)

// add appends m. When the ring is full the older half goes, in a new array: readers still hold the old one.
func (r *ring) add(m Message) {
	if len(r.messages) >= ringMessages || len(r.messages) > 1 && r.bytes+m.size() > ringBytes {
		half := r.messages[len(r.messages)/2:]
		r.messages = append(make([]Message, 0, ringMessages), half...)
		r.bytes = 0
		for i := range half {
			r.bytes += half[i].size()
		}
	}
	r.messages = append(r.messages, m)
	r.bytes += m.size()
}

// clear forgets everything.
func (r *ring) clear() { *r = ring{} }

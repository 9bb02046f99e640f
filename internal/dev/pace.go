package dev

import "time"

// What a Pace allows. A run of script:checkout takes 64 seconds and 0.8 MB of the file (measured). So this is ten
// minutes of something to see at each start, and 38 MB a day afterwards instead of 1 GB. Beginning none while nobody
// watches would not do: what is forgotten is most often a tab with the page.
const (
	Eager = 10
	Pause = 30 * time.Minute
)

// Pace says when outbox dev may begin another run of its own: at once for the first Eager, then one every Pause. The
// zero value is ready for use.
type Pace struct {
	begun int
	last  time.Time
}

// Due tells whether another may begin now.
func (p *Pace) Due(now time.Time) bool { return p.begun < Eager || now.Sub(p.last) >= Pause }

// Begun says that one has begun.
func (p *Pace) Begun(now time.Time) { p.begun, p.last = p.begun+1, now }

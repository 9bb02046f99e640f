package operate

import (
	"slices"
	"time"
)

// Group is a consumer group of a log, or the group that is the recorded reader of another table. It
// exists once a process of it has leased lanes or has noted where it begins.
type Group struct {
	Queue
	// Life is alive if a process of the group renews its lease, dead if the leases of its lanes
	// have expired, stopped if its processes gave up their lanes, or new if it never had a lane.
	Life     string     `json:"life"`
	LastSeen *time.Time `json:"lastSeen,omitempty"` // the last sign of life of any of its processes
	// Failed counts the events that have failed or wait behind a failed one.
	Failed int     `json:"failed"`
	Pauses []Pause `json:"pauses"` // that concern it
}

// Groups returns the consumer groups. The events that a group failed to handle are among those that
// it has still to handle.
func (f *Facts) Groups() (all []Group) {
	for _, q := range f.Queues {
		if q.Group == "" || q.Sink != "" {
			continue
		}
		g := Group{Queue: q, Failed: q.Retrying + q.Blocked, Pauses: []Pause{}}
		for _, failed := range f.Queues {
			if failed.Sink == "" || failed.Group != q.Group || failed.Table != q.Table {
				continue
			}
			g.Waiting, g.Failed = g.Waiting+failed.Waiting, failed.Waiting
			g.Keys, g.Failing = g.Keys+failed.Keys, failed.Failing
			if failed.Oldest != nil && (g.Oldest == nil || *failed.Oldest > *g.Oldest) {
				g.Oldest = failed.Oldest
			}
		}
		g.live(f.At)
		g.Processes = g.Alive()
		g.Pauses = append(g.Pauses, slices.DeleteFunc(slices.Clone(f.Pauses), func(p Pause) bool {
			return p.Name() != q.Name && (p.Table != "" || p.To != "")
		})...)
		all = append(all, g)
	}
	return all
}

// live sets Life and LastSeen.
func (g *Group) live(now time.Time) {
	switch {
	case len(g.Alive()) > 0:
		g.Life = "alive"
	case g.Expired > 0:
		g.Life = "dead"
	case g.LastLease != nil:
		g.Life = "stopped"
	default:
		g.Life = "new"
	}
	if g.LastLease != nil && g.LastLease.Before(now) {
		g.LastSeen = g.LastLease
	}
	for _, p := range g.Processes {
		if g.LastSeen == nil || p.SeenAt.After(*g.LastSeen) {
			g.LastSeen = &p.SeenAt
		}
	}
}

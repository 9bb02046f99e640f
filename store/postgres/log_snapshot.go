package postgres

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// snapshot is a pg_snapshot: which transactions had ended when it was taken.
type snapshot struct {
	text   string
	xmax   uint64   // the first transaction that it knows nothing of
	active []uint64 // those before that were in progress, ascending
}

// parseSnapshot reads PostgreSQL's text of one: xmin:xmax:xip,xip.
func parseSnapshot(text string) (snapshot, error) {
	s := snapshot{text: text}
	_, rest, ok := strings.Cut(text, ":")
	xmax, list, more := strings.Cut(rest, ":")
	var err error
	if s.xmax, err = strconv.ParseUint(xmax, 10, 64); !ok || !more || err != nil {
		return s, fmt.Errorf("read snapshot %q: want xmin:xmax:transactions", text)
	}
	for one := range strings.SplitSeq(list, ",") {
		if one == "" {
			continue
		}
		xid, err := strconv.ParseUint(one, 10, 64)
		if err != nil {
			return s, fmt.Errorf("read snapshot %q: %w", text, err)
		}
		s.active = append(s.active, xid)
	}
	slices.Sort(s.active)
	return s, nil
}

// sees tells whether a transaction had ended. Of one that did not commit there are no rows to be seen.
func (s *snapshot) sees(xid uint64) bool {
	_, active := slices.BinarySearch(s.active, xid)
	return xid < s.xmax && !active
}

// unseen returns what tells the transactions that one of some snapshots does not see: those that were in progress, as
// texts, and the first of all that are unknown.
func unseen(snapshots []snapshot) (active []string, first string) {
	xmax := snapshots[0].xmax
	for _, s := range snapshots[1:] {
		xmax = min(xmax, s.xmax)
	}
	var xids []uint64
	for _, s := range snapshots {
		for _, xid := range s.active {
			if xid < xmax {
				xids = append(xids, xid)
			}
		}
	}
	slices.Sort(xids)
	active = []string{} // not NULL
	for _, xid := range slices.Compact(xids) {
		active = append(active, strconv.FormatUint(xid, 10))
	}
	return active, strconv.FormatUint(xmax, 10)
}

package postgres

import (
	"embed"
	"errors"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// statements are the texts of sql/ with a layout's names filled in.
type statements struct {
	claimStatements
	claimPausing claimStatements // without what is paused
	// The second passes over rows that are locked.
	settle, settlePassing                                             settleStatements
	settlePlaced                                                      arrivals // by place
	settleApps, settleLeft, settleKnown                               string
	leaseRows, leaseJoin, leaseQuit, leaseTake, leaseHeld, leaseSweep string
	leaseReader, leaseReadBy                                          string
	durable, leaseRelease, leaseLeave, leaseMark, backlog, owes       string
	claimKeys                                                         string
	deadReduced                                                       [3]string // see Layout.Reduced
}

type claimStatements struct {
	claim, claimOneByOne, claimUnreadable, claimBare string
}

type settleStatements struct {
	arrivals
	retry, dead, owed string
}

// arrivals are the statements that settle what was delivered.
type arrivals struct {
	delivered string
	remove    string // in front of delivered, where delivered rows leave their table
}

var files = pgtable.Files(sqlFiles)

// plain returns a statement that needs no names.
func plain(name string) (string, error) { return files.Statement(name, nil) }

func statementsOf(l outbox.Layout) (s statements, err error) {
	q := pgtable.Quote(l)
	passing, placed := q, q
	passing.Passing, placed.Placed = true, true
	err = errors.Join(
		files.Fill(q, map[string]*string{
			"settle_delivered": &s.settle.delivered, "settle_retry": &s.settle.retry, "settle_dead": &s.settle.dead,
			"settle_owed": &s.settle.owed, "settle_delete": &s.settle.remove,
			"settle_apps": &s.settleApps, "settle_known": &s.settleKnown, "settle_left": &s.settleLeft,
			"lease_rows": &s.leaseRows, "lease_join": &s.leaseJoin, "lease_quit": &s.leaseQuit,
			"lease_take": &s.leaseTake, "lease_held": &s.leaseHeld, "lease_sweep": &s.leaseSweep,
			"lease_reader": &s.leaseReader, "lease_read_by": &s.leaseReadBy,
			"durable": &s.durable, "lease_release": &s.leaseRelease, "lease_leave": &s.leaseLeave,
			"lease_mark": &s.leaseMark, "backlog": &s.backlog, "owes": &s.owes, "claim_keys": &s.claimKeys,
		}),
		files.Fill(passing, map[string]*string{
			"settle_delivered": &s.settlePassing.delivered, "settle_retry": &s.settlePassing.retry,
			"settle_dead": &s.settlePassing.dead, "settle_owed": &s.settlePassing.owed,
			"settle_delete": &s.settlePassing.remove,
		}),
		files.Fill(placed, map[string]*string{
			"settle_delivered": &s.settlePlaced.delivered, "settle_delete": &s.settlePlaced.remove,
		}))
	for pausing, dst := range map[bool]*claimStatements{false: &s.claimStatements, true: &s.claimPausing} {
		all := q
		all.Pausing = pausing
		one, unreadable := all, all
		one.OneByOne, unreadable.Unreadable = true, true
		bare := unreadable
		bare.Bare = true
		err = errors.Join(err,
			files.Fill(all, map[string]*string{"claim": &dst.claim}),
			files.Fill(one, map[string]*string{"claim": &dst.claimOneByOne}),
			files.Fill(unreadable, map[string]*string{"claim": &dst.claimUnreadable}),
			files.Fill(bare, map[string]*string{"claim": &dst.claimBare}))
	}
	for i, form := range q.Reduced() {
		err = errors.Join(err, files.Fill(form, map[string]*string{"settle_dead": &s.deadReduced[i]}))
	}
	return s, err
}

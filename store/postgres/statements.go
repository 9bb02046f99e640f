package postgres

import (
	"embed"
	"sync"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/sqlfile"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
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
	leaseDurable, leaseRelease, leaseLeave, leaseMark, backlog, owes  string
}

type claimStatements struct {
	claim, claimOneByOne, claimUnreadable string
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

// parseSQL parses the files once: opening a store asks for them several times.
var parseSQL = sync.OnceValues(func() (*sqlfile.Set, error) { return pgtable.Parse(sqlFiles) })

// plain returns a statement that needs no names.
func plain(name string) (string, error) {
	t, err := parseSQL()
	if err != nil {
		return "", err
	}
	return t.Statement(name, nil)
}

func statementsOf(l outbox.Layout) (statements, error) {
	var s statements
	t, err := parseSQL()
	if err != nil {
		return s, err
	}
	q := quote(l)
	for name, dst := range map[string]*string{
		"settle_delivered": &s.settle.delivered, "settle_retry": &s.settle.retry, "settle_dead": &s.settle.dead,
		"settle_owed": &s.settle.owed, "owes": &s.owes, "settle_apps": &s.settleApps,
		"settle_delete": &s.settle.remove, "settle_known": &s.settleKnown,
		"settle_left": &s.settleLeft, "lease_rows": &s.leaseRows, "lease_join": &s.leaseJoin,
		"lease_quit": &s.leaseQuit, "lease_take": &s.leaseTake,
		"lease_held": &s.leaseHeld, "lease_sweep": &s.leaseSweep, "lease_durable": &s.leaseDurable,
		"lease_release": &s.leaseRelease,
		"lease_leave":   &s.leaseLeave, "lease_mark": &s.leaseMark,
		"backlog": &s.backlog,
	} {
		if *dst, err = t.Statement(name, q); err != nil {
			return s, err
		}
	}
	passing := q
	passing.Passing = true
	for name, dst := range map[string]*string{
		"settle_delivered": &s.settlePassing.delivered, "settle_retry": &s.settlePassing.retry,
		"settle_dead": &s.settlePassing.dead, "settle_owed": &s.settlePassing.owed,
		"settle_delete": &s.settlePassing.remove,
	} {
		if *dst, err = t.Statement(name, passing); err != nil {
			return s, err
		}
	}
	placed := q
	placed.Placed = true
	for name, dst := range map[string]*string{
		"settle_delivered": &s.settlePlaced.delivered, "settle_delete": &s.settlePlaced.remove,
	} {
		if *dst, err = t.Statement(name, placed); err != nil {
			return s, err
		}
	}
	for pausing, dst := range map[bool]*claimStatements{false: &s.claimStatements, true: &s.claimPausing} {
		all, one, bare := q, q, q
		all.Pausing, one.Pausing, bare.Pausing = pausing, pausing, pausing
		one.OneByOne, bare.Unreadable = true, true
		for _, c := range []struct {
			dst  *string
			data quotedLayout
		}{{&dst.claim, all}, {&dst.claimOneByOne, one}, {&dst.claimUnreadable, bare}} {
			if *c.dst, err = t.Statement("claim", c.data); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// quote returns the layout as the SQL templates need it: identifiers and literals quoted.
func quote(l outbox.Layout) quotedLayout { return quotedLayout{Layout: pgtable.Quote(l)} }

type quotedLayout struct {
	sqltable.Layout
	Unreadable bool // claim.sql only
	OneByOne   bool // the same
	Pausing    bool // the same
}

package storetest

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/store"
	"github.com/outboxrelay/outbox/server/token"
)

// Explained is a database whose statements are explained before they run.
type Explained struct {
	store.Database
	Explain func(statement string, args []any) (plan string)
}

// plans are the last ones, by the names of files and, of a list, what it is filtered by.
type plans struct {
	t  *testing.T
	by map[string]string
	of string
}

// planned is a store.Database that fills plans.
type planned struct {
	Explained
	*plans
}

func (p planned) explain(asks []store.Ask) {
	p.t.Helper()
	for _, a := range asks {
		statement, args, err := cold.Statement(p.Database, a.Name, a.Data)
		if err != nil {
			p.t.Fatalf("%s: %v", a.Name, err)
		}
		p.by[a.Name+p.of] = p.Explain(statement, args)
	}
}

// Read implements store.Database.
func (p planned) Read(ctx context.Context, tenant string, a store.Ask) error {
	p.explain([]store.Ask{a})
	return p.Database.Read(ctx, tenant, a)
}

// Write implements store.Database.
func (p planned) Write(ctx context.Context, tenant string, asks ...store.Ask) error {
	p.explain(asks)
	return p.Database.Write(ctx, tenant, asks...)
}

// Change implements store.Database.
func (p planned) Change(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	return p.Database.Change(ctx, tenant, func(tx store.Tx) error { return fn(plannedTx{tx, p}) })
}

type plannedTx struct {
	store.Tx
	of planned
}

func (p plannedTx) Run(ctx context.Context, asks ...store.Ask) error {
	p.of.explain(asks)
	return p.Tx.Run(ctx, asks...)
}

func (p plannedTx) Commit(ctx context.Context, asks ...store.Ask) error {
	p.of.explain(asks)
	return p.Tx.Commit(ctx, asks...)
}

// Plans has a store do all that it can on a database with rows, where no run may wait for a worker,
// and returns how each statement was carried out: by the name of its file and, of a list, what it
// is filtered by.
func Plans(t *testing.T, owner, gateway, worker Explained) map[string]string {
	t.Helper()
	all := &plans{t: t, by: map[string]string{}}
	explainTokens(t, planned{owner, all}, planned{gateway, all})
	r, w := open(t, planned{gateway, all}), open(t, planned{worker, all})
	fails := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	n := crawl.NewRun{AppPackage: "p", MaxSteps: 9, Crawler: "demo", IdempotencyKey: "plan"}
	run, _, err := r.CreateRun(t.Context(), acme, n, 1000)
	fails("create", err)
	events := runEvents("A", "B")
	for range 2 {
		_, err = r.Change(t.Context(), acme, run.ID, crawl.Change{Events: events})
		fails("append", err)
	}
	for of, f := range map[string]crawl.RunFilter{"": {}, " of a status": {Status: crawl.Cancelled},
		" of an app": {AppPackage: "nosuch"}, " of both": {Status: crawl.Cancelled, AppPackage: "nosuch"}} {
		all.of, f.Before = of, crawl.Cursor{CreatedAt: time.Now(), ID: run.ID}
		_, _, err = r.ListRuns(t.Context(), acme, f)
		fails("list"+of, err)
	}
	all.of = ""
	_, err = r.GetRun(t.Context(), acme, run.ID)
	fails("get", err)
	_, err = r.ListEvents(t.Context(), acme, run.ID, 1, 500)
	fails("list events", err)
	_, err = r.LastSeqs(t.Context(), acme, []uuid.UUID{run.ID})
	fails("last numbers", err)
	_, err = r.EndedRuns(t.Context(), acme, []uuid.UUID{run.ID})
	fails("ended runs", err)
	c, err := w.ClaimRun(t.Context(), uuid.New(), []string{"demo"}, time.Minute, nil)
	fails("claim", err)
	_, err = w.Change(t.Context(), acme, run.ID, crawl.Change{From: runningOnly, Hold: &c.Hold, Events: runEvents("C"),
		Progress: crawl.Progress{Node: "n", State: json.RawMessage("1"), Steps: 1}})
	fails("save progress", err)
	all.by["run_change with progress"] = all.by["run_change"]
	_, _, err = w.RenewRun(t.Context(), run.ID, c.Hold, time.Minute)
	fails("renew", err)
	fails("release", w.ReleaseRun(t.Context(), run.ID, c.Hold))
	_, err = r.Change(t.Context(), acme, run.ID, crawl.Change{To: crawl.Failed, Error: "x"})
	fails("fail", err)
	return all.by
}

func open(t *testing.T, db store.Database) *store.Runs {
	t.Helper()
	r, err := store.OpenRuns(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func explainTokens(t *testing.T, owner, gateway store.Database) {
	t.Helper()
	mine, err := store.OpenTokens(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := store.OpenTokens(t.Context(), gateway)
	if err != nil {
		t.Fatal(err)
	}
	made, text, sum, err := token.New(acme, "plan", token.Scopes)
	if err == nil {
		_, err = mine.CreateToken(t.Context(), "test", made, sum, time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
	auth := &token.Authenticator{Store: theirs}
	who, err := auth.Authenticate(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	ticket, _, err := auth.NewTicket(t.Context(), who)
	if err == nil {
		_, err = auth.RedeemTicket(t.Context(), ticket)
	}
	if err == nil {
		_, err = theirs.ValidTokens(t.Context(), []string{made.ID, "aaaaaaaaaaab"})
	}
	if err == nil {
		_, err = mine.RevokeToken(t.Context(), "test", made.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
}

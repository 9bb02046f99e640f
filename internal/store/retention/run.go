package retention

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/outboxrelay/outbox/internal/backoff"
)

// logEvery is how often a long run says how far it is.
const logEvery = 10 * time.Second

// grace is how long a database that does not answer may keep a keeper that was told to stop, for
// its lease and again for giving that up.
const grace = 2 * time.Second

// Report is what a run did, or so far.
type Report struct {
	Table  string   `json:"table"`
	Action string   `json:"action"` // Archived or Deleted
	Rows   int64    `json:"rows"`   // removed; in a dry run, that would be
	Files  []string `json:"files,omitempty"`
	// Refused are rows that are old enough and that the database does not let go, and Refusal the
	// first error.
	Refused int64         `json:"refused,omitempty"`
	Refusal string        `json:"refusal,omitempty"`
	Sweep   bool          `json:"sweep"` // the whole table was looked at
	DryRun  bool          `json:"dryRun"`
	Took    time.Duration `json:"-"`
}

func (r Report) log(log *slog.Logger, text string) {
	attrs := []any{"table", r.Table, "action", r.Action, "rows", r.Rows, "took", r.Took.Round(time.Millisecond).String()}
	if len(r.Files) > 0 {
		attrs = append(attrs, "files", r.Files)
	}
	log.Info(text, attrs...)
}

// run is one run of a keeper.
type run struct {
	*Keeper
	lease    Lease
	began    time.Time
	renewed  time.Time // asked for
	logged   time.Time
	report   Report
	swept    bool
	progress func(Report)

	file   *file // being written, or nil
	filed  []Row // what is in it
	number int   // of files begun
}

func (k *Keeper) newRun() *run {
	now := time.Now()
	return &run{Keeper: k, began: now, renewed: now, logged: now,
		report: Report{Table: k.cfg.Table, Action: k.cfg.Archive.Action()}}
}

// run takes the lease, works and gives the lease up. The report is good also where there is an
// error.
func (k *Keeper) run(ctx context.Context, least time.Duration, work func(context.Context, *run) error) (Report, error) {
	r := k.newRun()
	lease, err := k.askLease(ctx, least)
	if err != nil {
		return r.report, err
	}
	if !lease.Held {
		return r.report, ErrBusy
	}
	r.lease = lease
	err = work(ctx, r)
	r.report.Took = time.Since(r.began)
	// Also when told to stop, so that a successor need not wait.
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if releaseErr := k.turns.Release(releasing, k.owner, Done{Rows: r.report.Rows, Swept: r.swept}); err == nil {
		err = releaseErr
	}
	return r.report, err
}

// askLease waits for the answer also when told to stop meanwhile: a request that was given up may
// be granted all the same, and then nobody would release it.
func (k *Keeper) askLease(ctx context.Context, least time.Duration) (Lease, error) {
	asking, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })()
	return k.turns.Lease(asking, LeaseRequest{Owner: k.owner, TTL: k.cfg.LeaseTTL, Least: least})
}

// work goes through the table page by page.
func (r *run) work(ctx context.Context) (err error) {
	defer func() { r.file.abandon() }() // one that was sealed is no longer r.file
	search := Search{Sweep: r.report.Sweep, OlderThan: r.cfg.OlderThan, Limit: r.cfg.Batch,
		Content: r.cfg.Archive.Dir != "" && !r.report.DryRun}
	for {
		began := time.Now()
		var page []Row
		search.After, err = r.store.Find(ctx, search, func(row Row) error {
			if search.Content {
				if err := r.write(row); err != nil {
					return err
				}
				row.Content = nil
			}
			page = append(page, row)
			return nil
		})
		if err != nil {
			return err
		}
		switch {
		case r.report.DryRun:
			r.report.Rows += int64(len(page))
		case search.Content:
			r.filed = append(r.filed, page...)
			if len(r.filed) >= r.cfg.FileRows || search.After == "" {
				err = r.sealAndRemove(ctx)
			}
		case len(page) > 0:
			err = r.remove(ctx, page)
		}
		if err != nil || search.After == "" {
			return err
		}
		if err := r.rest(ctx, time.Since(began)); err != nil {
			return err
		}
	}
}

// write adds a row to the file, which it begins if there is none.
func (r *run) write(row Row) (err error) {
	if r.file == nil {
		r.number++
		if r.file, err = createFile(r.cfg.Archive.Dir, r.cfg.Table, r.began, r.number, r.owner); err != nil {
			return err
		}
	}
	return r.file.add(r.cfg.Table, row)
}

// sealAndRemove makes the file final and only then removes what is in it.
func (r *run) sealAndRemove(ctx context.Context) error {
	if r.file == nil {
		return nil
	}
	path, err := r.file.seal()
	if err != nil {
		return err
	}
	r.report.Files = append(r.report.Files, path)
	filed := r.filed
	r.file, r.filed = nil, nil
	for batch := range slices.Chunk(filed, r.cfg.Batch) {
		began := time.Now()
		if err := r.remove(ctx, batch); err != nil {
			return fmt.Errorf("%w (rows in %s that are still in the table will be archived again)", err, path)
		}
		if err := r.rest(ctx, time.Since(began)); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) remove(ctx context.Context, rows []Row) error {
	archive := r.cfg.Archive == Archive{}
	done, err := r.store.Remove(ctx, Removal{Owner: r.owner, OlderThan: r.cfg.OlderThan, Rows: rows, Archive: archive})
	n := done.Rows
	r.report.Rows += int64(n)
	if r.report.Refused += int64(done.Refused); done.Refusal != nil && r.report.Refusal == "" {
		r.report.Refusal = done.Refusal.Error()
	}
	if n > 0 && r.cfg.Observer != nil {
		r.cfg.Observer.ObserveRemoved(r.cfg.Table, r.report.Action, n)
	}
	if err != nil {
		return err
	}
	if n+done.Refused == 0 {
		if err := r.renew(ctx); err != nil {
			return err
		}
		// Without this, a policy that lets a role see rows and not delete them would look like a
		// table with nothing to do.
		return fmt.Errorf("remove rows of %s: none of %d found could be removed: something else removed them, or row-level "+
			"security forbids it", r.cfg.Table, len(rows))
	}
	return nil
}

// rest is the end of a batch that took so long: it tells how far the run is, keeps the lease, and
// leaves the database to others for as long.
func (r *run) rest(ctx context.Context, took time.Duration) error {
	r.report.Took = time.Since(r.began)
	if r.progress != nil {
		r.progress(r.report)
	} else if time.Since(r.logged) >= logEvery {
		r.logged = time.Now()
		r.report.log(r.cfg.Logger, "removing old rows")
	}
	backoff.Wait(ctx, min(took, r.cfg.LeaseTTL/3))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !r.report.DryRun && time.Since(r.renewed) > r.cfg.LeaseTTL/3 {
		return r.renew(ctx)
	}
	return nil
}

func (r *run) renew(ctx context.Context) error {
	asked := time.Now()
	lease, err := r.askLease(ctx, 0)
	if err != nil {
		return err
	}
	if !lease.Held {
		return fmt.Errorf("remove rows of %s: the maintenance lapsed and was taken over: %w", r.cfg.Table, ErrBusy)
	}
	r.renewed = asked
	return nil
}

package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/backoff"
)

// ErrBusy says that another process holds the table's maintenance.
var ErrBusy = errors.New("another process is removing rows from this table")

// What becomes of a row, in reports and metrics.
const (
	Archived = "archived"
	Deleted  = "deleted"
)

// Archive says where rows go when they leave their table. The zero value is the archive table.
type Archive struct {
	None bool
	Dir  string // files in this directory
}

// ParseArchive reads the setting: "table", "none", or a directory, which must exist.
func ParseArchive(text string) (Archive, error) {
	switch text {
	case "table":
		return Archive{}, nil
	case "none":
		return Archive{None: true}, nil
	case "":
		return Archive{}, errors.New("is empty, want table, none or a directory")
	}
	if info, err := os.Stat(text); err != nil || !info.IsDir() {
		return Archive{}, fmt.Errorf("%q is neither table nor none nor a directory that exists", text)
	}
	return Archive{Dir: text}, nil
}

// String is what ParseArchive reads.
func (a Archive) String() string {
	switch {
	case a.None:
		return "none"
	case a.Dir != "":
		return a.Dir
	}
	return "table"
}

// Action is what becomes of a row: Archived or Deleted.
func (a Archive) Action() string {
	if a.None {
		return Deleted
	}
	return Archived
}

// Config configures a Keeper. Zero means the default in parentheses; those of outbox.Retention are
// written there.
type Config struct {
	Table     string
	OlderThan time.Duration   // since delivery or replay (outbox.Retention's)
	Archive   Archive         // (the archive table)
	Batch     int             // rows a transaction (outbox.Retention's)
	Every     time.Duration   // between runs (outbox.Retention's)
	LeaseTTL  time.Duration   // how long a keeper that died keeps others from the table (30 s)
	FileRows  int             // rows a file, of which the keeper remembers some 100 bytes each (50,000)
	Logger    *slog.Logger    // (slog.Default)
	Observer  outbox.Observer // may be nil
}

func (c Config) withDefaults() (Config, error) {
	def := outbox.Retention{}.WithDefaults()
	var problems []error
	if c.Table == "" {
		problems = append(problems, errors.New("Table is required"))
	}
	positive(&problems, "OlderThan", &c.OlderThan, def.After)
	positive(&problems, "Every", &c.Every, def.Every)
	positive(&problems, "LeaseTTL", &c.LeaseTTL, 30*time.Second)
	positive(&problems, "Batch", &c.Batch, def.Batch)
	positive(&problems, "FileRows", &c.FileRows, 50_000)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(problems...)
}

// positive has 0 be def, and refuses what is negative.
func positive[T int | time.Duration](problems *[]error, field string, v *T, def T) {
	if *v = cmp.Or(*v, def); *v < 0 {
		*problems = append(*problems, fmt.Errorf("%s is %v, must be positive", field, *v))
	}
}

// Keeper removes old rows from one table. Any number may run, in any number of processes: they take
// turns.
type Keeper struct {
	turns Turns
	store Store // nil: Look does the work
	cfg   Config
	owner uuid.UUID
	turn  func(context.Context, *run) error // one run of Run
}

// New returns a keeper of store's table. All problems of cfg are reported at once.
func New(store Store, cfg Config) (*Keeper, error) {
	k, err := newKeeper(store, cfg)
	if err == nil {
		k.store, k.turn = store, k.routine
	}
	return k, err
}

func newKeeper(turns Turns, cfg Config) (*Keeper, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configure retention: %w", err)
	}
	owner, err := outbox.NewID()
	if err != nil {
		return nil, err
	}
	return &Keeper{turns: turns, cfg: cfg, owner: owner}, nil
}

// Run removes what is due, every Config.Every, until ctx ends, and then returns nil. A failure does
// not end it: it is logged, the first of a row, and tried again at the next turn.
func (k *Keeper) Run(ctx context.Context) error {
	failing := false
	for ctx.Err() == nil {
		// Half of Every: with several keepers the table has a run at least at that pace and at most
		// at twice it, whose turn it may be.
		report, err := k.run(ctx, k.cfg.Every/2, k.turn)
		switch {
		case errors.Is(err, ErrBusy):
		case ctx.Err() != nil:
		case err != nil:
			if !failing {
				k.cfg.Logger.Error("cannot remove old rows, trying again", "table", k.cfg.Table, "error", err, "retry_in",
					k.cfg.Every.String())
			}
			failing = true
			k.observe(err)
		default:
			if failing {
				k.cfg.Logger.Info("old rows can be removed again", "table", k.cfg.Table)
			}
			failing = false
			k.observe(nil)
		}
		if report.Rows > 0 {
			report.log(k.cfg.Logger, "removed old rows")
		}
		if report.Refused > 0 {
			k.cfg.Logger.Warn("the database refuses to remove old rows", "table", k.cfg.Table, "rows", report.Refused,
				"error", report.Refusal)
		}
		backoff.Wait(ctx, k.cfg.Every)
	}
	return nil
}

func (k *Keeper) observe(err error) {
	if k.cfg.Observer != nil {
		k.cfg.Observer.ObserveRun(k.cfg.Table, err)
	}
}

// routine is a run among others: a walk, or the sweep if it is due.
func (k *Keeper) routine(ctx context.Context, r *run) error {
	r.report.Sweep = r.lease.SinceSweep >= k.cfg.OlderThan/7
	if err := r.work(ctx); err != nil {
		return err
	}
	r.swept = r.report.Sweep
	return nil
}

// Purge does at once what Run does bit by bit: it sweeps the whole table. progress is called after
// each batch. While another process holds the table's maintenance it waits, for at most patience,
// and then returns ErrBusy. The report holds what was done also where there is an error.
func (k *Keeper) Purge(ctx context.Context, patience time.Duration, progress func(Report)) (Report, error) {
	deadline := time.Now().Add(patience)
	for {
		report, err := k.run(ctx, 0, func(ctx context.Context, r *run) error {
			// Not recorded as a sweep: the relay's own cut may be at another age.
			r.report.Sweep, r.progress = true, progress
			return r.work(ctx)
		})
		if !errors.Is(err, ErrBusy) || !time.Now().Before(deadline) {
			return report, err
		}
		backoff.Wait(ctx, min(200*time.Millisecond, time.Until(deadline)))
		if ctx.Err() != nil {
			return report, ctx.Err()
		}
	}
}

// Count sweeps the whole table and counts what Purge would remove. It takes no lease, locks nothing
// and changes nothing. The count is exact as of the moment at which each part of the table was
// read.
func (k *Keeper) Count(ctx context.Context, progress func(Report)) (Report, error) {
	r := k.newRun()
	r.report.DryRun, r.report.Sweep, r.progress = true, true, progress
	err := r.work(ctx)
	r.report.Took = time.Since(r.began)
	return r.report, err
}

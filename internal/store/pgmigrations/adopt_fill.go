package pgmigrations

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	fillBatch = 2000 // rows a commit: some 50 ms, for which an application may wait for one of them
	fillLeast = 50   // where rows are locked all the time

	// fewLeft is how many rows of the log may be left for the transaction that keeps writers out,
	// and soon how long they may take. A machine that is too busy for that is given some rounds to
	// become less so.
	fewLeft = 300
	soon    = 300 * time.Millisecond
	rounds  = 20
)

// filling is one column that is filled: which statement, and from where on.
type filling struct {
	statement  string // of adopt/
	Table      string
	Column     string
	Sequence   string
	Time       bool   // in the order of created_at, id; else of id
	Cursor     string // the column it goes by
	CursorType string
	from       string
	third      int64 // last number given out, or id to end at
}

func (w *work) filling(c column) *filling {
	f := &filling{statement: "fill_default", Table: w.table, Column: c.Name, Sequence: helper(w.table, c.Name),
		Cursor: "id"}
	if f.Time = c.Identity != "" && w.have.column("created_at") != nil; f.Time {
		f.Cursor = "created_at"
	}
	switch {
	case c.Identity != "":
		f.statement = "fill_position"
	case w.table == "crawl_events" && c.Name == "seq":
		f.statement = "fill_seq"
	}
	f.CursorType = w.have.column(f.Cursor).Base
	f.from = map[string]string{"uuid": "00000000-0000-0000-0000-000000000000", "int4": "-2147483648"}[f.CursorType]
	switch {
	case f.Time:
		f.from = "-infinity"
	case f.from == "":
		f.from = "-9223372036854775808"
	}
	return f
}

// next fills the next rows in one transaction and says how many. A row that somebody holds locked
// fails it at once (NOWAIT). To wait for one while holding others is how deadlocks come about, of
// which the application might be the victim.
func (f *filling) next(ctx context.Context, tx pgx.Tx, size int) (filled int64, err error) {
	if _, err := tx.Exec(ctx, briefly+statement("pin", nil)); err != nil {
		return 0, err
	}
	row := tx.QueryRow(ctx, statement(f.statement, f), f.from, size, f.third)
	err = row.Scan(&filled, &f.third, &f.from)
	return filled, err
}

// all fills in batches, with a commit each, until nothing is left.
func (f *filling) all(ctx context.Context, conn *pgx.Conn) (total int64, err error) {
	for size := fillBatch; ; size = min(2*size, fillBatch) {
		var filled int64
		err := patiently(ctx, func() error {
			at := *f
			err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
				filled, err = at.next(ctx, tx, size)
				return err
			})
			if err == nil {
				*f = at
			} else if locksOut(err) {
				size = max(size/2, fillLeast)
			}
			return err
		})
		total += filled
		if err != nil || filled < int64(size) {
			return total, err
		}
	}
}

// buildEarly builds the indexes that serve the filling: the oldest first, and the last number of a
// run.
func (a *adoption) buildEarly(ctx context.Context, w *work) error {
	for _, c := range w.fills {
		f := w.filling(c)
		if f.Time {
			if err := a.build(ctx, w, index{Name: f.Sequence + "_order", Definition: fmt.Sprintf(
				"CREATE INDEX %s_order ON %s USING btree (created_at, id) WHERE (%s IS NULL)", f.Sequence, w.table,
				c.Name)}); err != nil {
				return err
			}
		}
	}
	if !w.numbers() {
		return nil
	}
	for _, i := range w.builds {
		if i.Constraint && i.Keys[len(i.Keys)-1] == "seq" {
			if err := a.build(ctx, w, i); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *adoption) fill(ctx context.Context, w *work) error {
	for _, c := range w.fills {
		f := w.filling(c)
		if f.statement == "fill_position" {
			if err := a.conn.QueryRow(ctx, statement("last", f)).Scan(&f.third); err != nil {
				return err
			}
		}
		if w.numbers() {
			continue // all columns at once, below
		}
		if _, err := f.all(ctx, a.conn); err != nil {
			return fmt.Errorf("column %s: %w", c.Name, err)
		}
	}
	if w.numbers() {
		return a.fillLog(ctx, w)
	}
	return nil
}

// numbers tells whether the table is the log, and has events to be numbered within their runs.
func (w *work) numbers() bool {
	return w.table == "crawl_events" && slices.ContainsFunc(w.fills, func(c column) bool { return c.Name == "seq" })
}

// fillLog numbers the events of each run without a gap in the order of their ids. An application
// goes on writing, and a lower id may be committed after a higher one. So it goes up to the newest
// row of a moment at which no writer was under way, again and again until few rows are left. Those
// are numbered while no writer comes in. Then the trigger numbers all that follow.
func (a *adoption) fillLog(ctx context.Context, w *work) error {
	f := w.filling(column{Name: "seq"})
	for round := 1; ; round++ {
		began := time.Now()
		if err := a.newest(ctx, f); err != nil {
			return err
		}
		filled, err := f.all(ctx, a.conn)
		if err != nil {
			return fmt.Errorf("column seq: %w", err)
		}
		// What has been written meanwhile takes about as long again, with writers waiting.
		if filled < fewLeft && time.Since(began) < soon || round > rounds && filled < fillBatch {
			break
		}
	}
	added := []addition{
		{"function " + logTrigger, fmt.Sprintf("DROP FUNCTION IF EXISTS %s()", logTrigger)},
		{"trigger " + logTrigger, fmt.Sprintf("DROP TRIGGER IF EXISTS %s ON %s", logTrigger, w.table)},
	}
	return patiently(ctx, func() error {
		return pgx.BeginFunc(ctx, a.conn, func(tx pgx.Tx) error {
			last := *f
			if err := a.inStep(ctx, tx, w.table, added, keepWritersOut(w.table)); err != nil {
				return err
			}
			if err := tx.QueryRow(ctx, statement("newest", f)).Scan(&last.third); err != nil {
				return err
			}
			for {
				if filled, err := last.next(ctx, tx, fillBatch); err != nil || filled == 0 {
					if err != nil {
						return err
					}
					break
				}
			}
			if !w.trigger {
				return nil
			}
			return a.inStep(ctx, tx, w.table, nil, a.ref.functions[logTrigger], w.whole.Triggers[logTrigger])
		})
	})
}

func keepWritersOut(table string) string {
	return fmt.Sprintf("LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE", table)
}

// newest waits until no writer is under way, and lets the next ones in at once.
func (a *adoption) newest(ctx context.Context, f *filling) error {
	return patiently(ctx, func() error {
		return pgx.BeginFunc(ctx, a.conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, briefly+keepWritersOut(f.Table)); err != nil {
				return err
			}
			return tx.QueryRow(ctx, statement("newest", f)).Scan(&f.third)
		})
	})
}

// constrain adds what rows must fulfil: for new rows at once, then it reads the old ones, which
// keeps nobody out.
func (a *adoption) constrain(ctx context.Context, w *work) error {
	for _, c := range w.fills {
		name := helper(w.table, c.Name)
		if !slices.ContainsFunc(w.have.Constraints, func(k constraint) bool { return k.Name == name }) {
			// Nothing undoes it: it goes with its column.
			if err := a.step(ctx, w.table, nil,
				w.alter(fmt.Sprintf("ADD CONSTRAINT %s CHECK (%s IS NOT NULL) NOT VALID", name, c.Name))); err != nil {
				return err
			}
		}
		if err := a.validate(ctx, w, name); err != nil {
			return fmt.Errorf("column %s: %w", c.Name, err)
		}
		if err := a.notNull(ctx, w, c); err != nil {
			return fmt.Errorf("column %s: %w", c.Name, err)
		}
	}
	if err := a.replaceChecks(ctx, w); err != nil {
		return err
	}
	for _, k := range w.constraints {
		if k.Kind == "u" {
			continue // buildAll
		}
		if err := a.step(ctx, w.table, []addition{w.dropping(k)}, w.adding(k)); err != nil {
			return err
		}
	}
	if err := a.inspect(ctx, w); err != nil {
		return err
	}
	for _, k := range w.have.Constraints {
		if !k.Valid && w.ours["constraint "+k.Name] {
			if err := a.validate(ctx, w, k.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// replaceChecks puts the check of reasons in the place of an earlier one, in one transaction: under
// a running application there is always one of them. The earlier one comes back with the table, and
// is validated if its rows let it.
func (a *adoption) replaceChecks(ctx context.Context, w *work) error {
	for _, old := range w.replaced {
		i := slices.IndexFunc(w.whole.Constraints,
			func(k constraint) bool { return k.Name == "job_dlq_error_reason_check" })
		ours := w.whole.Constraints[i]
		back := fmt.Sprintf("DO $do$ BEGIN ALTER TABLE %[1]s ADD CONSTRAINT %[2]s %[3]s NOT VALID; "+
			"BEGIN ALTER TABLE %[1]s VALIDATE CONSTRAINT %[2]s; EXCEPTION WHEN check_violation THEN "+
			"NULL; END; END $do$",
			w.table, quote(old.Name), strings.TrimSuffix(old.Definition, " NOT VALID"))
		if err := a.step(ctx, w.table, []addition{{"check " + old.Name, back}, w.dropping(ours)},
			w.alter("DROP CONSTRAINT IF EXISTS "+quote(old.Name)), w.adding(ours)); err != nil {
			return err
		}
	}
	if len(w.replaced) == 0 {
		return nil
	}
	w.replaced = nil
	return a.inspect(ctx, w)
}

// adding adds a constraint for new rows, and dropping is what undoes it.
func (w *work) adding(k constraint) string {
	definition := strings.TrimSuffix(k.Definition, " NOT VALID")
	return w.alter(fmt.Sprintf("ADD CONSTRAINT %s %s NOT VALID", k.Name, definition))
}

func (w *work) dropping(k constraint) addition {
	return addition{"constraint " + k.Name, w.alter("DROP CONSTRAINT IF EXISTS " + k.Name)}
}

func (a *adoption) validate(ctx context.Context, w *work, name string) error {
	return a.step(ctx, w.table, nil, w.alter("VALIDATE CONSTRAINT "+name))
}

// notNull makes a filled column NOT NULL, for which the validated check spares reading the table,
// and an identity column of one that is numbered by a sequence.
func (a *adoption) notNull(ctx context.Context, w *work, c column) error {
	statements := []string{fmt.Sprintf("LOCK TABLE %s IN ACCESS EXCLUSIVE MODE", w.table),
		w.alter("ALTER COLUMN " + c.Name + " SET NOT NULL"), w.alter("DROP CONSTRAINT " + helper(w.table, c.Name))}
	if c.Identity != "" {
		statements = append(statements, statement("identity", w.filling(c)))
	}
	return a.step(ctx, w.table, nil, statements...)
}

// build builds an index without keeping writers out. One that was interrupted is left invalid, and
// built again.
func (a *adoption) build(ctx context.Context, w *work, i index) error {
	undo := addition{"index " + i.Name, "DROP INDEX IF EXISTS " + quote(i.Name)}
	if err := a.step(ctx, w.table, []addition{undo}); err != nil {
		return err
	}
	return patiently(ctx, func() error {
		if err := a.inspect(ctx, w); err != nil {
			return err
		}
		if have := w.have.index(i.Name); have != nil {
			if have.Valid {
				return nil
			}
			if _, err := a.conn.Exec(ctx, "DROP INDEX CONCURRENTLY IF EXISTS "+quote(i.Name)); err != nil {
				return err
			}
		}
		_, err := a.conn.Exec(ctx, strings.Replace(i.Definition, "INDEX ", "INDEX CONCURRENTLY ", 1))
		return err
	})
}

func (a *adoption) buildAll(ctx context.Context, w *work) error {
	for _, i := range slices.Clone(w.builds) {
		if err := a.build(ctx, w, i); err != nil {
			return fmt.Errorf("index %s: %w", i.Name, err)
		}
	}
	for _, k := range slices.Clone(w.constraints) {
		if k.Kind != "u" {
			continue
		}
		if err := a.step(ctx, w.table, []addition{w.dropping(k)},
			w.alter(fmt.Sprintf("ADD CONSTRAINT %s UNIQUE USING INDEX %s", k.Name, k.Name))); err != nil {
			return err
		}
	}
	return nil
}

// finish drops what served the filling only, and lets the planner know what the new columns hold.
func (a *adoption) finish(ctx context.Context, w *work) error {
	for _, i := range w.have.Indexes {
		if strings.HasSuffix(i.Name, "_adopt_order") && w.ours["index "+i.Name] {
			if _, err := a.conn.Exec(ctx, "DROP INDEX CONCURRENTLY IF EXISTS "+quote(i.Name)); err != nil {
				return err
			}
		}
	}
	_, err := a.conn.Exec(ctx, "ANALYZE "+w.table)
	return err
}

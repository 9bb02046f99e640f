package outboxtest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
)

// StoreFeatures declares what a store promises beyond what every store does. What it lacks is named
// in the test's log, by the tests that do not run for it.
type StoreFeatures struct {
	// ConcurrentWriters: transactions that write run beside each other, so that one that began
	// earlier may commit later. Only Strict order keeps the events of one key in the order of their
	// commits. A store without it has one writer at a time, and all its events are in the order of
	// their commits.
	ConcurrentWriters bool
	// SeveralHosts: relays on several hosts may serve one database.
	SeveralHosts bool
	// RowSecurity: the database itself shows a tenant's application its own rows and no others.
	RowSecurity bool
	// SurvivesErrors: an error of the database in a Write undoes that call and leaves the caller's
	// transaction usable.
	SurvivesErrors bool
	// LogTables: the store has tables whose rows are only inserted (outbox.OutboxLog), and the
	// harness has made one.
	LogTables bool
	// StoresBytes: a payload comes back byte for byte as it was written. Without it, as the same
	// JSON value.
	StoresBytes bool
	// EngineOnly leaves out what people see and do, the dead letters, and the other settle modes:
	// for a second way to a database that passes the whole suite by the first. Its harness needs
	// neither Letters nor Jobs.
	EngineOnly bool
}

// StoreHarness is a database with the tables of all three migration sets, fresh for one test, and
// what the store under test makes of it.
type StoreHarness struct {
	// Table opens a table as a relay does. A second call is a second relay's.
	Table func(t *testing.T, layout outbox.Layout) outbox.Store
	// Write writes each batch with one call, all in one transaction, and then commits or rolls
	// back. A batch that the writer refuses does not end the transaction; the errors come back
	// joined.
	Write func(ctx context.Context, cfg outbox.WriterConfig, commit bool, batches ...[]outbox.Event) error
	// Hold writes events in a transaction and leaves it open until end is called, which commits it
	// or rolls it back.
	Hold func(t *testing.T, cfg outbox.WriterConfig, events ...outbox.Event) (end func(commit bool))
	// HoldExec is Hold for a statement, as Exec takes it.
	HoldExec func(t *testing.T, sql string, args ...any) (end func(commit bool))
	// Exec runs a statement of plain SQL, as a program without the library would, and Value a query
	// whose single value it returns as text, "" for NULL. Parameters are ?1, ?2 and so on: the
	// harness spells them as its database wants them, and stores a time.Time as the tables have it.
	Exec  func(t *testing.T, sql string, args ...any)
	Value func(t *testing.T, sql string, args ...any) string
	// Mapped makes a table of another shape than ours, called legacy, and returns its layout. Its
	// columns are n (drawn by the database), uid, kind, body, customer, region, goes, version,
	// done_at, tries, due, problem. But for n and uid all may be NULL and none has a default. The
	// table has no index but that of n.
	Mapped func(t *testing.T) outbox.Layout
	// Letters and the others open what their names say.
	Letters func(t *testing.T, layouts ...outbox.Layout) deadletter.Store
	Jobs    func(t *testing.T) deadletter.Recorder
	// Age makes everything in the database older by d, or what a test needs of it: delivered_at and
	// the like of a table's rows. nil: through Exec.
	Age func(t *testing.T, layout outbox.Layout, d time.Duration)
}

// storeSuite is one test's harness.
type storeSuite struct {
	StoreHarness
	rows     tabletest.Database
	features StoreFeatures
	mode     outbox.SettleMode // of the tables that the test opens
	events   outbox.Layout     // of the table that its events are written into: outbox_events, or a log
}

// storeTest is one behaviour, by the name under which every store shows it.
type storeTest struct {
	name string
	run  func(*testing.T, *storeSuite)
	// needs says what of StoreFeatures it is about, and whether the store has that; nil: every
	// store does.
	needs func(StoreFeatures) (feature string, has bool)
	// notInLog says why a log shows something else; "": it shows the same.
	notInLog string
}

// Why a log shows something else.
const (
	noState   = "its rows have no state: what fails goes by outbox_deliveries"
	noTurns   = "its rows are claimed in their order"
	noIndexes = "its ids are not unique, and no index over all parts is"
	noPauses  = "what is paused goes by outbox_deliveries"
	noOther   = "it is about other tables"
	noSingle  = "its relay serves outbox_deliveries too, as those of routes do"
)

// inLog returns a harness that has a log in the place of outbox_events.
func inLog(h StoreHarness) StoreHarness {
	events, log := outbox.OutboxEvents().Table, outbox.OutboxLog()
	in := h
	in.Table = func(t *testing.T, layout outbox.Layout) outbox.Store {
		if layout.Table == events {
			layout = log
		}
		return h.Table(t, layout)
	}
	in.Write = func(ctx context.Context, cfg outbox.WriterConfig, commit bool, batches ...[]outbox.Event) error {
		cfg.Table = log.Table
		return h.Write(ctx, cfg, commit, batches...)
	}
	in.Hold = func(t *testing.T, cfg outbox.WriterConfig, events ...outbox.Event) func(bool) {
		cfg.Table = log.Table
		return h.Hold(t, cfg, events...)
	}
	renamed := func(sql string) string { return strings.ReplaceAll(sql, events, log.Table) }
	in.HoldExec = func(t *testing.T, sql string, args ...any) func(bool) { return h.HoldExec(t, renamed(sql), args...) }
	in.Exec = func(t *testing.T, sql string, args ...any) { h.Exec(t, renamed(sql), args...) }
	in.Value = func(t *testing.T, sql string, args ...any) string { return h.Value(t, renamed(sql), args...) }
	return in
}

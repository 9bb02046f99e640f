package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/admin"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// sinkRow is a sink and what it owes of one table.
type sinkRow struct {
	operate.Debt
	Server string `json:"server"` // "": no setting names the sink
	Paused bool   `json:"paused"`
	// Unserved says that the sink owes something that no relay serves.
	Unserved bool   `json:"unserved"`
	Down     string `json:"down,omitempty"` // why, as a relay that is alive has told
}

func (a *application) sinks() *cobra.Command {
	mapping := config.Mapping()
	cmd := command("sinks", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		return a.onDatabase(cmd.Context(), func(c config.Config, db app.Database) error {
			rows, troubles, err := sinkRows(cmd.Context(), c, db)
			if err != nil {
				return err
			}
			a.printTroubles(c.Output, troubles)
			for _, r := range rows {
				if of := (outbox.Debtor{Table: r.Table, Sink: r.Sink}); r.Unserved && !of.OfGroup() && c.Output != "json" {
					fmt.Fprintf(a.Err, "no relay serves what %s owes of %s: start one with a sink "+
						"of that name, or see outbox sinks move|forget\n", r.Sink, r.Table)
				}
			}
			head := "SINK,SERVER,TABLE,OWED,OLDEST,RETRYING,DEAD,PAUSED,UNSERVED"
			return list[sinkRow]{items: rows, head: head, cells: func(r sinkRow) []any {
				return []any{r.Sink, r.Server, r.Table, r.Owed, seconds(r.Oldest), r.Retrying,
					r.Dead, r.Paused, r.Unserved}
			}}.print(a, c.Output)
		}, mapping)
	})
	cmd.Flags().AddFlagSet(mapping)
	cmd.AddCommand(a.forgetDebts(), a.moveDebts())
	return cmd
}

func sinkRows(
	ctx context.Context, c config.Config, db app.Database,
) (rows []sinkRow, troubles []operate.Trouble, err error) {
	debts, err := db.Debts(ctx)
	if err != nil {
		return nil, nil, err
	}
	debtors, err := db.Debtors(ctx)
	if err != nil {
		return nil, nil, err
	}
	pauses, err := admin.AllPauses(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	pauses = slices.DeleteFunc(pauses, func(p operate.Pause) bool { return p.Topic != "" || p.Destination != "" })
	troubles = admin.TroublesOf(ctx, db, "")
	servers := map[string]string{}
	for _, s := range c.AllSinks() {
		servers[s.Name] = s.Masked()
	}
	for _, d := range withSilent(debts, pauses, servers) {
		row := sinkRow{Debt: d, Server: servers[d.Sink]}
		row.Paused = d.Table != "" && slices.ContainsFunc(pauses, func(p operate.Pause) bool {
			return p.Table == d.Table && (p.To == "" || p.To == d.Sink)
		})
		row.Unserved = slices.Contains(debtors, outbox.Debtor{Table: d.Table, Sink: d.Sink})
		for _, t := range troubles {
			row.Down = cmp.Or(row.Down, t.Sinks[d.Sink])
		}
		rows = append(rows, row)
	}
	return rows, troubles, nil
}

// withSilent adds to the debts the sinks that owe nothing: those that are paused all the same, and
// those of the settings. It sorts them.
func withSilent(debts []operate.Debt, pauses []operate.Pause, servers map[string]string) []operate.Debt {
	add := func(silent operate.Debt) {
		owes := func(d operate.Debt) bool {
			return d.Sink == silent.Sink && (silent.Table == "" || d.Table == silent.Table)
		}
		if silent.Sink != "" && !slices.ContainsFunc(debts, owes) {
			debts = append(debts, silent)
		}
	}
	for _, p := range pauses {
		add(operate.Debt{Sink: p.To, Table: p.Table})
	}
	for name := range servers {
		add(operate.Debt{Sink: name})
	}
	slices.SortFunc(debts, func(a, b operate.Debt) int {
		return cmp.Or(cmp.Compare(a.Sink, b.Sink), cmp.Compare(a.Table, b.Table))
	})
	return debts
}

// debtEnded is what outbox sinks forget and move print with -o json, a table each.
type debtEnded struct {
	Sink   string `json:"sink"`
	Table  string `json:"table"`
	To     string `json:"to,omitempty"`
	Events int    `json:"events"`
	Had    int    `json:"had,omitempty"` // of those that the other sink had already
	DryRun bool   `json:"dryRun,omitempty"`
}

// ending is a command that ends what a sink owes.
type ending struct {
	consent
	by        operatorFlags
	table, to string
	will, did string // what becomes of the events; of a To it is named
	// end does it for one table. In a dry run it only says what hinders it.
	end func(ctx context.Context, c config.Config, db app.Database, one *debtEnded, by operate.Skip) error
}

// command makes cmd the command.
func (e *ending) command(a *application, cmd *cobra.Command) *cobra.Command {
	mapping := config.Mapping()
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case !e.dryRun && e.by.unreasoned():
			return usagef("--reason is required: say why what %s owes need not wait for it", args[0])
		case e.to == "" && cmd.Flags().Lookup("to") != nil:
			return usagef("--to is required: which sink is to have what %s owes?", oneLine(args[0]))
		case e.to == args[0]:
			return usagef("--to %s: that is the sink that owes it", oneLine(e.to))
		}
		return a.onDatabase(cmd.Context(), func(c config.Config, db app.Database) error {
			preview, err := e.each(cmd.Context(), c, db, args[0], true)
			if err != nil {
				return err
			}
			plan := page[debtEnded]{Items: preview}
			sure, err := e.confirm(cmd.Context(), a, c.Output, plan, e.say(preview, e.will))
			if err != nil || !sure {
				return err
			}
			ended, err := e.each(cmd.Context(), c, db, args[0], false)
			return cmp.Or(a.printResult(c.Output, page[debtEnded]{Items: ended}, "%s", e.say(ended, e.did)), err)
		}, mapping)
	}
	cmd.Flags().StringVar(&e.table, "table", "", "`name` of the table (default: all)")
	e.by.addTo(cmd.Flags(), " (required)")
	e.destroy(a, cmd)
	cmd.Flags().AddFlagSet(mapping)
	return cmd
}

// each ends what a sink owes, table by table.
func (e *ending) each(
	ctx context.Context, c config.Config, db app.Database, name string, dryRun bool,
) (ended []debtEnded, err error) {
	if e.table != "" {
		t, err := c.Find(e.table)
		if err != nil {
			return nil, err
		}
		e.table = t.Layout.Table
	}
	by, err := e.by.skip()
	if err != nil {
		return nil, err
	}
	debts, err := db.Debts(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range debts {
		if d.Sink != name || d.Owed == 0 || e.table != "" && !admin.SameTable(d.Table, e.table) {
			continue
		}
		one := debtEnded{Sink: name, Table: d.Table, To: e.to, Events: d.Owed, DryRun: dryRun}
		if err := e.end(ctx, c, db, &one, by); err != nil {
			return ended, err
		}
		ended = append(ended, one)
	}
	if len(ended) == 0 {
		return nil, fmt.Errorf("sink %s owes nothing: see outbox sinks", oneLine(name))
	}
	return ended, nil
}

// say tells what becomes of the events, a line a table.
func (e *ending) say(ended []debtEnded, what string) string {
	var lines []string
	for _, one := range ended {
		becomes, had := what, ""
		if one.To != "" {
			becomes = fmt.Sprintf(what, oneLine(one.To))
		}
		if one.Had > 0 {
			had = fmt.Sprintf(", of which it had %d already", one.Had)
		}
		lines = append(lines, fmt.Sprintf("%s of %s that %s owes %s%s",
			counted(one.Events, "event"), one.Table, one.Sink, becomes, had))
	}
	return strings.Join(lines, "\n")
}

func (a *application) forgetDebts() *cobra.Command {
	e := ending{will: "will become dead letters of it",
		did: "became dead letters: see outbox dlq list --error 'skipped by'"}
	e.end = func(ctx context.Context, _ config.Config, db app.Database, one *debtEnded, by operate.Skip) error {
		if one.DryRun {
			return nil
		}
		b, err := db.Browser(ctx, outbox.DeliveriesOf(one.Table, one.Sink))
		if err == nil {
			one.Events, err = b.Skip(ctx, operate.Selection{All: true}, by, one.Events)
		}
		return err
	}
	return e.command(a, command("sinks forget", nil, nil))
}

func (a *application) moveDebts() *cobra.Command {
	e := ending{will: "will go to %s", did: "are %s's now"}
	e.end = func(ctx context.Context, c config.Config, db app.Database, one *debtEnded, by operate.Skip) error {
		if err := movable(ctx, c, db, *one); err != nil || one.DryRun {
			return err
		}
		move := operate.DebtMove{Table: one.Table, Sink: one.Sink, To: one.To, Skip: by}
		total := one.Events
		for one.Events = 0; one.Events < total && ctx.Err() == nil; {
			done, err := db.MoveDebt(context.WithoutCancel(ctx), move, min(moveEvents, total-one.Events))
			if err != nil || done == (operate.DebtMoved{}) {
				return err
			}
			one.Events, one.Had = one.Events+done.Moved+done.Had, one.Had+done.Had
		}
		return ctx.Err()
	}
	cmd := command("sinks move", nil, nil)
	cmd.Flags().StringVar(&e.to, "to", "", "`name` of the other sink (required)")
	return e.command(a, cmd)
}

// movable refuses to give events to a sink that nobody knows, and to take them from one that a
// relay serves.
func movable(ctx context.Context, c config.Config, db app.Database, one debtEnded) error {
	if err := admin.KnownSink(ctx, c, db, admin.Of{Table: one.Table, Sink: one.To}); err != nil {
		return err
	}
	debtors, err := db.Debtors(ctx)
	if err != nil {
		return err
	}
	if slices.Contains(debtors, outbox.Debtor{Table: one.Table, Sink: one.Sink, Served: true}) {
		return fmt.Errorf("a relay serves what %s owes of %s, and may be delivering it: stop it, "+
			"or take the sink out of its settings (a killed relay's lease ends after --lease-ttl)", one.Sink, one.Table)
	}
	return nil
}

const moveEvents = 500 // a transaction of outbox sinks move

// skip is who skips events, in one action.
func (f *operatorFlags) skip() (operate.Skip, error) {
	run, err := outbox.NewID()
	by := f.operator()
	return operate.Skip{Actor: by.Actor, Reason: by.Reason, Run: run}, err
}

// compareDebts says which sinks the database has deliveries for and the settings have not. Of all
// others the relay serves what they owe, whatever its routes.
func (a *application) compareDebts(ctx context.Context, c config.Config) {
	var debts []operate.Debt
	err := withDatabase(ctx, c, func(db app.Database) (err error) {
		debts, err = db.Debts(ctx)
		return err
	})
	if _, old := errors.AsType[*outbox.SchemaError](err); old {
		return // no sink can owe anything
	}
	if err != nil {
		fmt.Fprintf(a.Err, "what sinks are owed was not compared: %v\n", err)
	}
	for _, d := range debts {
		if d.Owed > 0 && !admin.HasSink(c, d.Sink) {
			fmt.Fprintf(a.Err, "sink %s is owed %s of %s, and these settings have no such sink: "+
				"it waits until a relay has one (outbox sinks)\n", d.Sink, counted(d.Owed, "event"), d.Table)
		}
	}
}

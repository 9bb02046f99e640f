package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox"
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
	cmd := &cobra.Command{
		Use:   "sinks",
		Short: "Show what each sink has still to take",
		Long: `sinks shows the sinks of the settings and, for tables with routes, what each has not taken yet: OWED deliveries
wait in outbox_deliveries, of them RETRYING for another attempt; OLDEST is the age of the first one's event. DEAD
ones have a pending dead letter, see outbox dlq list. A sink that takes everything at once owes nothing.

A sink without a server is none of the settings given here. UNSERVED says that no relay is there for what the sink
owes: it waits until one has a sink of that name, whatever its routes, or until forget or move ends it. Of tables
without routes outbox lanes shows the backlog. A sink that a relay cannot reach, and why, is the first line, as in the
relay's /readyz.

outbox pause --table TABLE --to NAME lets what goes to a sink wait.`,
		Example: `  outbox sinks --config outbox.yaml
  outbox sinks -o json | jq '.items[] | select(.owed > 0)'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.settings(config.Database, mapping)
			if err != nil {
				return err
			}
			rows, troubles, err := sinkRows(cmd.Context(), c)
			if err != nil {
				return err
			}
			a.printTroubles(c.Output, troubles)
			if c.Output == "json" {
				return printPage(a.Out, rows, "")
			}
			var lines [][]string
			for _, r := range rows {
				lines = append(lines, []string{r.Sink, r.Server, r.Table, strconv.Itoa(r.Owed), seconds(r.Oldest),
					strconv.Itoa(r.Retrying), strconv.Itoa(r.Dead), yes(r.Paused), yes(r.Unserved)})
				if r.Unserved {
					fmt.Fprintf(a.Err, "no relay serves what %s owes of %s: start one with a sink of that name, or see "+
						"outbox sinks move|forget\n", r.Sink, r.Table)
				}
			}
			return printTable(a.Out,
				[]string{"SINK", "SERVER", "TABLE", "OWED", "OLDEST", "RETRYING", "DEAD", "PAUSED", "UNSERVED"}, lines)
		},
	}
	cmd.Flags().AddFlagSet(mapping)
	cmd.AddCommand(a.forgetDebts(), a.moveDebts())
	return cmd
}

func sinkRows(ctx context.Context, c config.Config) (rows []sinkRow, troubles []operate.Trouble, err error) {
	db, err := app.OpenDatabase(ctx, c.Database)
	if err != nil {
		return nil, nil, err
	}
	defer db.Close()
	debts, debtors, pauses, err := owedAndPaused(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	pauses = slices.DeleteFunc(pauses, func(p operate.Pause) bool { return p.Topic != "" || p.Destination != "" })
	for _, p := range pauses {
		owes := slices.ContainsFunc(debts, func(d operate.Debt) bool { return d.Sink == p.To && d.Table == p.Table })
		if p.To != "" && !owes { // it is paused all the same
			debts = append(debts, operate.Debt{Sink: p.To, Table: p.Table})
		}
	}
	servers := map[string]string{}
	for _, s := range c.AllSinks() {
		servers[s.Name] = s.Masked()
		if !slices.ContainsFunc(debts, func(d operate.Debt) bool { return d.Sink == s.Name }) {
			debts = append(debts, operate.Debt{Sink: s.Name})
		}
	}
	slices.SortFunc(debts, func(a, b operate.Debt) int {
		return cmp.Or(cmp.Compare(a.Sink, b.Sink), cmp.Compare(a.Table, b.Table))
	})
	rows, troubles = make([]sinkRow, len(debts)), troublesOf(ctx, db, "")
	for i, d := range debts {
		rows[i] = sinkRow{Debt: d, Server: servers[d.Sink], Paused: slices.ContainsFunc(pauses, func(p operate.Pause) bool {
			return d.Table != "" && p.Table == d.Table && (p.To == "" || p.To == d.Sink)
		}), Unserved: slices.Contains(debtors, outbox.Debtor{Table: d.Table, Sink: d.Sink})}
		for _, t := range troubles {
			rows[i].Down = cmp.Or(rows[i].Down, t.Sinks[d.Sink])
		}
	}
	return rows, troubles, nil
}

func owedAndPaused(
	ctx context.Context, db app.Database,
) (debts []operate.Debt, debtors []outbox.Debtor, pauses []operate.Pause, err error) {
	debts, err = db.Debts(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	debtors, err = db.Debtors(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	pauses, err = allPauses(ctx, db)
	if err != nil {
		return nil, nil, nil, err
	}
	return debts, debtors, pauses, nil
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return ""
}

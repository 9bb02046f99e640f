package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/migration"
)

// printPlan is the answer to --plan. Problems are in it, and make the command fail as up would.
func (a *application) printPlan(plan migration.Adoption, output string) error {
	switch {
	case output == "json":
		if err := printJSON(a.Out, plan); err != nil {
			return err
		}
	case plan.Empty():
		fmt.Fprintln(a.Out, "no table exists that up would have to adopt")
	default:
		showPlan(a.Out, plan)
	}
	if len(plan.Problems) > 0 {
		return fmt.Errorf("%s: up would refuse, and change nothing", counted(len(plan.Problems), "problem"))
	}
	return nil
}

// showPlan writes what up does to tables that exist, nothing where there is none.
func showPlan(w io.Writer, plan migration.Adoption) {
	for _, t := range plan.Tables {
		was := ""
		if t.Was != "" {
			was = ", now called " + t.Was
		}
		fmt.Fprintf(w, "%s exists%s: %d rows, %s\n", t.Name, was, t.Rows, t.Size)
		for i, step := range t.Steps {
			fmt.Fprintf(w, "%3d. %s\n", i+1, step)
		}
	}
	for _, note := range plan.Notes {
		fmt.Fprintln(w, "note: "+note)
	}
	for _, problem := range plan.Problems {
		fmt.Fprintln(w, "problem: "+problem)
	}
}

// takeOver makes what another tool has applied up's.
func (a *application) takeOver(ctx context.Context, c config.Config, plan bool) error {
	if plan {
		return usagef("--plan and --take-over contradict each other: one changes nothing, the other begins to")
	}
	database, err := able[app.TakeOverMigrations](c, app.TakeOver)
	if err != nil {
		return err
	}
	return database.TakeOver(ctx)
}

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/backoff"
	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// exitCode is how a command ends that has done its work and found something.
type exitCode int

func (exitCode) Error() string { return "" }

// The exit codes of status, doctor and verify for the worst finding. Advice is no reason to stop a
// deployment.
const (
	foundWarning  exitCode = 3
	foundCritical exitCode = 4
	foundUnknown  exitCode = 5
)

func (a *application) doctor() *cobra.Command {
	var which condition.Selection
	var watch time.Duration
	settings := every()
	cmd := command("doctor", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		if err := which.Check(); err != nil {
			return usageError{err}
		}
		if watch != 0 && watch < time.Second {
			return usagef("--watch is %s, want at least 1s", watch)
		}
		// Not a.settings, which warns of what are conditions here.
		c, err := config.Load(a.kinds, a.environ, a.global, settings)
		if err != nil {
			return err
		}
		if err := c.Check(config.Database); err != nil {
			return err
		}
		for {
			report, err := app.Examine(cmd.Context(), c, condition.Usual, which, condition.Canary{})
			if cmd.Context().Err() != nil {
				return nil
			}
			if err != nil && report.Asked == 0 {
				return err
			}
			if err = cmp.Or(a.printReport(c.Output, report), err); err != nil || watch == 0 {
				return cmp.Or(err, verdict(report))
			}
			if !backoff.Wait(cmd.Context(), watch) {
				return nil
			}
		}
	})
	cmd.Flags().StringSliceVar(&which.Only, "only", nil, "`names` of conditions or categories to check")
	cmd.Flags().StringSliceVar(&which.Skip, "skip", nil, "`names` of conditions or categories to leave out")
	cmd.Flags().BoolVar(&which.Pre, "pre", false, "conditions to check before the first start, and no others")
	cmd.Flags().DurationVar(&watch, "watch", 0, "interval of repeated checks; 0: one check")
	cmd.Flags().AddFlagSet(settings)
	return cmd
}

func (a *application) verify() *cobra.Command {
	var topic string
	var within time.Duration
	settings := every()
	cmd := command("verify", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		c, err := a.settings(config.Database, settings)
		if err != nil {
			return err
		}
		var canary condition.Canary
		if topic != "" {
			if canary, err = a.sendCanary(cmd.Context(), c, topic); err != nil {
				return err
			}
		}
		// The canary alone is waited for: the rest reads whole tables.
		which := condition.Selection{Audit: true, Only: []string{condition.CanaryLost}}
		for began := time.Now(); topic != "" && time.Since(began) < within; time.Sleep(200 * time.Millisecond) {
			report, err := app.Examine(cmd.Context(), c, condition.Usual, which, canary)
			if err != nil {
				return err
			}
			if report.Worst == 0 {
				break
			}
		}
		report, err := app.Examine(cmd.Context(), c, condition.Usual, condition.Selection{Audit: true}, canary)
		if err != nil && report.Asked == 0 {
			return err
		}
		return cmp.Or(err, a.printReport(c.Output, report), verdict(report))
	})
	cmd.Flags().StringVar(&topic, "canary", "", "`name` of the topic of an event that must arrive")
	cmd.Flags().DurationVar(&within, "within", 30*time.Second, "time for the canary to arrive")
	cmd.Flags().AddFlagSet(settings)
	return cmd
}

// sendCanary writes an event that is to be delivered.
func (a *application) sendCanary(ctx context.Context, c config.Config, topic string) (condition.Canary, error) {
	var sent condition.Canary
	err := withDatabase(ctx, c, func(db app.Database) error {
		w, err := db.Writing(ctx, outbox.WriterConfig{Table: outbox.OutboxEvents().Table})
		if err != nil {
			return err
		}
		defer w.Close()
		e, err := w.Prepare(ctx, outbox.Event{Topic: topic, AggregateType: "Canary", AggregateID: "outbox verify",
			Source: "outbox verify", Payload: json.RawMessage(`{"canary":true}`)})
		if err != nil {
			return err
		}
		sent = condition.Canary{Table: outbox.OutboxEvents().Table, ID: e.ID}
		_, err = w.Commit(ctx, []outbox.Event{e}, nil)
		return err
	})
	return sent, err
}

func verdict(r condition.Report) error {
	switch r.Worst {
	case condition.Critical:
		return foundCritical
	case condition.Uncertain:
		return foundUnknown
	case condition.Warning:
		return foundWarning
	}
	return nil
}

// printReport prints the findings, the worst first, and then what could not be looked at.
func (a *application) printReport(form string, r condition.Report) error {
	if form == "json" {
		return printJSON(a.Out, r)
	}
	if err := a.printFindings(r); err != nil {
		return err
	}
	counts := map[condition.Severity]int{}
	for _, f := range r.Findings {
		counts[f.Severity]++
	}
	unknown := 0
	for _, u := range r.Unseen {
		if u.State == operate.Unknown {
			unknown++
		}
	}
	summary := fmt.Sprintf("%d conditions checked: ", r.Asked)
	switch {
	case unknown > 0:
		summary += fmt.Sprintf("%d unknown, %d critical, %s", unknown, counts[condition.Critical],
			counted(counts[condition.Warning], "warning"))
	case len(r.Findings) == 0:
		summary += "healthy"
	default:
		summary += fmt.Sprintf("%d critical, %s, %d advice", counts[condition.Critical],
			counted(counts[condition.Warning], "warning"), counts[condition.Advice])
	}
	_, err := fmt.Fprintln(a.Out, summary)
	return err
}

// printFindings prints each finding with its remedy, and to stderr what could not be looked at.
func (a *application) printFindings(r condition.Report) error {
	for _, f := range r.Findings {
		_, err := fmt.Fprintf(a.Out, "%-8s  %s  %s\n          do: %s\n          see %s\n", f.Severity, f.ID, oneLine(f.Says),
			oneLine(f.Remedy), f.See)
		if err != nil {
			return fmt.Errorf("print result: %w", err)
		}
	}
	for _, u := range r.Unseen {
		fmt.Fprintf(a.Err, "%s  %s: %s\n", strings.TrimSpace(u.State+"  "+u.ID), u.Name, oneLine(u.Why))
	}
	return nil
}

func (a *application) why() *cobra.Command {
	var table, tenant string
	var position int64
	settings := every()
	cmd := command("why", cobra.MaximumNArgs(1), func(cmd *cobra.Command, args []string) error {
		which, err := oneEvent(args, position)
		if err != nil {
			return err
		}
		c, err := a.settings(config.Database, settings)
		if err != nil {
			return err
		}
		if table != "" {
			if _, err := c.Find(table); err != nil {
				return err
			}
		}
		why, err := app.Why(cmd.Context(), c, table, tenant, which)
		switch {
		case errors.Is(err, operate.ErrNoEvent):
			return fmt.Errorf("no table of the settings has event %s, or this role may not see it", which)
		case errors.Is(err, operate.ErrFilter):
			return usageError{err}
		case err != nil:
			return err
		case c.Output == "json":
			return printJSON(a.Out, why)
		}
		text := fmt.Sprintf("event %s (%s) is %s in "+
			"%s\n", why.Event.ID, oneLine(why.Event.Topic), why.Event.Status, why.Table)
		for _, s := range why.Says {
			text += "  - " + oneLine(s) + "\n"
		}
		if _, err := io.WriteString(a.Out, text); err != nil {
			return fmt.Errorf("print result: %w", err)
		}
		return nil
	})
	positionFlag(cmd.Flags(), &position)
	cmd.Flags().StringVar(&table, "table", "", "`name` of the table of the event (default: any)")
	cmd.Flags().StringVar(&tenant, "tenant", "", "`name` of the tenant, where row-level security requires it")
	cmd.Flags().AddFlagSet(settings)
	return cmd
}

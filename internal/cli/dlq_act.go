package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/admin"
	"github.com/outboxrelay/outbox/internal/app"
)

// cleared is what `outbox dlq discard`, `purge` and `collect` print with -o json.
type cleared struct {
	Letters int  `json:"letters"`
	DryRun  bool `json:"dryRun,omitempty"`
}

// printCleared says how many letters were changed, also when err stopped it half way.
func (a *application) printCleared(form, text string, done cleared, err error) error {
	if err = interrupted(err, done.Letters); err != nil && done.Letters == 0 {
		return err
	}
	return cmp.Or(a.printResult(form, done, text, counted(done.Letters, "letter")), err)
}

// interrupted says how to go on after Ctrl-C.
func interrupted(err error, letters int) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted after %s: the same command goes on from there", counted(letters, "letter"))
	}
	return err
}

func (a *application) discardLetters(mapping *pflag.FlagSet) *cobra.Command {
	var f selectionFlags
	var by operatorFlags
	var ask consent
	cmd := command("dlq discard", cobra.ArbitraryArgs, func(cmd *cobra.Command, args []string) error {
		selection, err := f.selection(args)
		if err != nil {
			return err
		}
		if by.unreasoned() && !ask.dryRun {
			return usagef("--reason is required: say why these need not arrive")
		}
		return a.onLetters(cmd, mapping, func(d letters) error {
			n, err := d.Count(cmd.Context(), selection)
			if err == nil && n > 0 {
				sure, err := ask.confirm(cmd.Context(), a, d.c.Output, cleared{n, true},
					counted(n, "dead letter")+" will be discarded")
				if err != nil || !sure {
					return err
				}
				n, err = deadletter.Discard(cmd.Context(), d, selection, by.operator())
				if err != nil {
					return a.printCleared(d.c.Output, "discarded %s", cleared{Letters: n}, err)
				}
			}
			named := len(selection.IDs)
			switch {
			case err == nil && n < named:
				err = fmt.Errorf("%d of %s not discarded: there is no such letter, or it was "+
					"replayed or discarded already: see outbox dlq show ID", named-n, counted(named, "letter"))
			case err == nil && n == 0:
				err = f.none(a, d.c, "no pending dead letters are chosen")
			}
			return a.printCleared(d.c.Output, "discarded %s", cleared{n, ask.dryRun}, err)
		})
	})
	f.addTo(cmd.Flags())
	by.addTo(cmd.Flags(), " (required)")
	ask.destroy(a, cmd)
	return cmd
}

func (a *application) purgeLetters(mapping *pflag.FlagSet) *cobra.Command {
	var by operatorFlags
	var purge deadletter.Purge
	var ask consent
	cmd := command("dlq purge", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		return a.onLetters(cmd, mapping, func(d letters) error {
			n, err := d.Purgeable(cmd.Context(), purge)
			if err != nil {
				return err
			}
			sure, err := ask.confirm(cmd.Context(), a, d.c.Output, cleared{n, true},
				counted(n, "dead letter")+" will be deleted")
			if err != nil || !sure {
				return err
			}
			n, err = purge.Run(cmd.Context(), d, by.operator())
			return a.printCleared(d.c.Output, "deleted %s", cleared{Letters: n}, err)
		})
	})
	ageFlag(cmd.Flags(), &purge.OlderThan, "older-than", "30d", 0, "time since the replay, such as 30d or 12h")
	cmd.Flags().BoolVar(&purge.Discarded, "discarded", false, "discarded dead letters of that age, too")
	cmd.Flags().StringVar(&purge.Tenant, "tenant", "", "`name` of the tenant (default: all)")
	by.addTo(cmd.Flags(), "")
	ask.destroy(a, cmd)
	return cmd
}

func (a *application) collectLetters(mapping *pflag.FlagSet) *cobra.Command {
	var by operatorFlags
	var table string
	cmd := command("dlq collect", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		return a.onLetters(cmd, mapping, func(d letters) error {
			names := []string{table}
			switch {
			case table == "":
				names = []string{admin.Deliveries}
				for _, t := range d.c.Known() {
					names = append(names, t.Name())
				}
			case table != admin.Deliveries:
				if _, err := d.c.Find(table); err != nil {
					return err
				}
			}
			var done cleared
			var failed error
			for _, name := range names {
				n, err := deadletter.Collect(cmd.Context(), d, name, by.operator())
				if done.Letters += n; err != nil {
					failed = err
					break
				}
			}
			return a.printCleared(d.c.Output, "wrote %s", done, failed)
		})
	})
	cmd.Flags().StringVar(&table, "table", "", "`name` of the table with the dead rows (default: all)")
	by.addTo(cmd.Flags(), "")
	return cmd
}

// replayFlags are the flags of outbox dlq replay.
type replayFlags struct {
	selectionFlags
	consent
	by        operatorFlags
	discarded bool
	rate      int
	payload   string
	window    time.Duration
	steps     []int
	stopAt    float64
}

func (a *application) replayLetters(mapping *pflag.FlagSet) *cobra.Command {
	var f replayFlags
	cmd := command("dlq replay", cobra.ArbitraryArgs, func(cmd *cobra.Command, args []string) error {
		o, err := f.options(cmd.Context(), a, args)
		if err != nil {
			return err
		}
		return a.onLetters(cmd, mapping, func(d letters) error {
			n, err := d.Count(cmd.Context(), o.Selection)
			if err == nil && n == 0 && len(args) == 0 {
				err = f.none(a, d.c, "no pending dead letters are chosen")
			}
			if err != nil {
				return err
			}
			return a.replay(cmd.Context(), d, o, f)
		})
	})
	f.selectionFlags.addTo(cmd.Flags())
	cmd.Flags().BoolVar(&f.discarded, "discarded", false, "discarded dead letters among the ids, too")
	countFlag(cmd.Flags(), &f.rate, "rate", 0, 0, 0, "maximum dead letters per second; 0: no limit")
	cmd.Flags().StringVar(&f.payload, "payload", "", "`file` with another payload for a single id; - for stdin")
	cmd.Flags().DurationVar(&f.window, "dedup-window", 2*time.Minute, "--dedup-window of the relay, for --dry-run")
	isFilter(cmd.Flags().Lookup("dedup-window"))
	cmd.Flags().IntSliceVar(&f.steps, "steps", nil, "sizes of the first steps, such as 1,10,100")
	cmd.Flags().Float64Var(&f.stopAt, "stop-at", 0.1, "share of a step that may fail before the replay stops")
	f.by.addTo(cmd.Flags(), "")
	f.consent.addTo(a, cmd)
	return cmd
}

// options checks the command line.
func (f *replayFlags) options(
	ctx context.Context, a *application, args []string,
) (o deadletter.ReplayOptions, err error) {
	if o.Selection, err = f.selection(args); err != nil {
		return o, err
	}
	o.Selection.Discarded, o.Rate = f.discarded, f.rate
	o.Operator = f.by.operator()
	if err := f.check(args); err != nil {
		return o, err
	}
	switch {
	case f.payload == "-":
		o.Payload, err = readAll(ctx, a.In, 16*outbox.DefaultMaxPayload)
	case f.payload != "":
		o.Payload, err = os.ReadFile(f.payload)
	}
	if err != nil {
		return o, fmt.Errorf("read payload: %w", err)
	}
	if o.Payload = bytes.TrimSpace(o.Payload); f.payload != "" && len(o.Payload) == 0 {
		return o, usagef("--payload %s is empty: it would replay the payload that failed", f.payload)
	}
	return o, nil
}

func (f *replayFlags) check(args []string) error {
	switch {
	case f.stopAt < 0 || f.stopAt > 1:
		return usagef("--stop-at is %g, want a share from 0 to 1", f.stopAt)
	case slices.ContainsFunc(f.steps, func(n int) bool { return n < 1 }):
		return usagef("--steps: a step has at least one letter")
	case f.window < 0:
		return usagef("--dedup-window is %s, must not be negative", f.window)
	case f.discarded && len(args) == 0:
		return usagef("--discarded needs the ids of the letters")
	case f.payload != "" && len(args) != 1:
		return usagef("--payload needs the id of a single letter")
	case !f.yes && !f.dryRun && f.payload == "-":
		return usagef("stdin is the payload and cannot answer a question: add --yes or --dry-run")
	}
	return nil
}

func (a *application) replay(ctx context.Context, d letters, o deadletter.ReplayOptions, f replayFlags) error {
	if f.dryRun || !f.yes {
		preview, err := d.Preview(ctx, o.Selection, f.window)
		if err != nil {
			return err
		}
		if f.dryRun || preview.Letters > 0 {
			sure, err := f.confirm(ctx, a, d.c.Output, preview, sayPreview(preview, f.window))
			if err != nil || !sure {
				return err
			}
		}
	}
	total, err := d.Count(ctx, o.Selection)
	if err != nil {
		return err
	}
	wake := newWaker(ctx, d.db)
	defer wake.close()
	bar := newProgress(a.Err)
	o.Progress = func(sum deadletter.Replayed, page deadletter.ReplayPage) {
		for table := range page.Replayed {
			wake.wake(table)
		}
		bar.show("%s %d of %s, %d skipped", gauge(sum.Letters+sum.Skipped, total), sum.Letters,
			counted(total, "letter"),
			sum.Skipped)
	}
	sum, err := f.run(ctx, d, o, bar)
	bar.done()
	err = interrupted(err, sum.Letters)
	return cmp.Or(a.printReplayed(d.c.Output, sum), err)
}

// run replays, in steps if that was asked for.
func (f replayFlags) run(
	ctx context.Context, d letters, o deadletter.ReplayOptions, bar *progress,
) (deadletter.Replayed, error) {
	if f.steps == nil {
		return deadletter.Replay(ctx, d, o)
	}
	set, err := deadletter.Freeze(ctx, d, o.Selection, "")
	if err != nil {
		return deadletter.Replayed{}, err
	}
	return deadletter.ReplaySteps(ctx, d, set, o, deadletter.Steps{Sizes: f.steps, StopAt: f.stopAt},
		func(sum deadletter.Replayed, at deadletter.Stepped) {
			bar.show("%s step %d: of %s, %d wait, %d fail, %d are dead "+
				"again", gauge(sum.Letters+sum.Skipped, len(set.Letters)),
				at.Step, counted(at.Letters, "letter"), at.Waiting, at.Failing, at.Dead)
		})
}

func sayPreview(p deadletter.Preview, window time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s will be replayed\n", counted(p.Letters, "dead letter"))
	for _, t := range p.Tables {
		name := t.Table
		if name == "" {
			name = "(jobs)"
		}
		fmt.Fprintf(&b, "  %s: %d", name, t.Letters)
		if t.Stuck > 0 {
			fmt.Fprintf(&b, ", %d of them cannot be put back now", t.Stuck)
		}
		fmt.Fprintln(&b)
		for _, k := range []struct {
			keys deadletter.Keys
			says string
		}{
			{t.Overtaken, "out of order: a later event of the key was delivered"},
			{t.Racing, "perhaps out of order: a later event of the key is waiting, and a relay " +
				"may have read it already"},
			{t.LeftBehind, "out of order: an earlier letter of the key is not among these"},
		} {
			if k.keys.Count > 0 {
				first := strings.Join(k.keys.First, ", ")
				if k.keys.Count > len(k.keys.First) {
					first += ", …"
				}
				fmt.Fprintf(&b, "    %s %s: %s\n", counted(k.keys.Count, "key"), k.says, oneLine(first))
			}
		}
	}
	if p.OutsideWindow > 0 {
		fmt.Fprintf(&b, "%d died longer ago than the sink's duplicate window of %s\n", p.OutsideWindow, window)
	}
	if p.Letters > 0 {
		fmt.Fprintln(&b, "No sink refuses a replayed event as a copy: a subscriber that did "+
			"receive one before receives it again, under the same event id.")
	}
	return b.String()
}

// printReplayed says what was done and where to look. Letters that were named and all skipped are a
// failure.
func (a *application) printReplayed(form string, sum deadletter.Replayed) error {
	err := a.printResult(form, sum, "replayed %s, skipped %d", counted(sum.Letters, "letter"), sum.Skipped)
	if err != nil {
		return err
	}
	for _, s := range sum.Reasons {
		if form != "json" {
			fmt.Fprintf(a.Out, "  %d skipped, first %s: %s\n", s.Count, s.First[0], oneLine(s.Why))
		}
	}
	for _, table := range slices.Sorted(maps.Keys(sum.Tables)) {
		if table == "" {
			continue
		}
		look := "outbox events --table " + table
		if table == admin.Deliveries {
			look = "outbox sinks, outbox events --table TABLE --sink SINK"
		}
		fmt.Fprintf(a.Err, "%s of %s due now: see %s, and outbox dlq list for those that die again\n",
			counted(sum.Tables[table], "event"), table, look)
	}
	if sum.Letters == 0 && sum.Skipped > 0 {
		return errors.New("none of the letters could be replayed")
	}
	return nil
}

// waker tells the relays of several tables that there is something to deliver.
type waker struct {
	notifier   app.Notifier // nil: there is none, and relays poll anyway
	stop       context.CancelFunc
	background sync.WaitGroup
}

func newWaker(ctx context.Context, db app.Database) *waker {
	w := &waker{}
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	if n, err := db.Notifier(); err == nil {
		w.notifier = n
		w.background.Go(func() { _ = n.Run(ctx) }) // it returns nil
	}
	return w
}

func (w *waker) wake(table string) {
	if w.notifier != nil {
		w.notifier.Wake(table)
	}
}

// close sends the last wake-ups.
func (w *waker) close() {
	w.stop()
	w.background.Wait()
}

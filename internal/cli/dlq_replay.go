package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
)

// replayFlags are the flags of outbox dlq replay.
type replayFlags struct {
	selectionFlags
	operatorFlags
	discarded, dryRun, yes bool
	rate                   int
	payload                string
	window                 time.Duration
}

func (a *application) replayLetters(mapping *pflag.FlagSet) *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay (ID... | filter flags | --all)",
		Short: "Put dead letters back to be delivered",
		Long: `replay puts events back into their tables under their own ids, for the destinations that they did not
reach and no others, with a fresh set of attempts; a relay delivers them. The letters of a key go in the order
of its events.

It works in transactions of up to 500 letters. Interrupted, it finishes the one it is at; the same command goes
on from there, since what was replayed is no longer pending. What cannot be put back is left as it is and named
with the reason.

--dry-run says how many letters there are and which keys are out of order: later events of a key were delivered
while this one was dead, and a replay cannot undo that. A replay counts as a new generation of its event, or the
sink would refuse it as a copy; so a subscriber that did receive the event (its confirmation was lost) receives
it again, under the same event id.

Letters of jobs can be replayed by the program that runs the jobs. On a terminal it shows the dry run and asks,
unless --yes.`,
		Example: `  outbox dlq replay 01890a5d-ac96-774b-bcce-b302099a8057
  outbox dlq replay --fingerprint 3f2a9c01d4e5 --dry-run
  outbox dlq replay --table outbox_events --since 2h --rate 200 --yes
  outbox dlq show ID -o json | jq '.items[0].payload | .total = 12' > fixed.json
  outbox dlq replay ID --payload fixed.json --reason 'total was a text'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.options(cmd.Context(), a, args)
			if err != nil {
				return err
			}
			c, err := a.settings(config.Database, mapping)
			if err != nil {
				return err
			}
			return a.openLetters(cmd.Context(), c, func(db app.Database, d deadletter.Store) error {
				n, err := d.Count(cmd.Context(), o.Selection)
				if err == nil && n == 0 && len(o.Selection.IDs) == 0 {
					err = f.none(a, c, "no pending dead letters are chosen")
				}
				if err != nil {
					return err
				}
				return a.replay(cmd.Context(), db, d, c.Output, o, f)
			})
		},
	}
	f.selectionFlags.addTo(cmd.Flags())
	cmd.Flags().BoolVar(&f.discarded, "discarded", false, "also letters that were discarded, among those named by id")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "change nothing, say what would be done")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	cmd.Flags().IntVar(&f.rate, "rate", 0, "`letters` a second (default: as fast as it goes)")
	cmd.Flags().StringVar(&f.payload, "payload", "",
		"`file` with a payload instead of the letter's, for a single ID; - for stdin")
	cmd.Flags().DurationVar(&f.window, "dedup-window", 2*time.Minute, "the relay's --dedup-window, for --dry-run")
	f.operatorFlags.addTo(cmd.Flags(), "")
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
	o.Operator = f.operator()
	if err := f.check(a, args); err != nil {
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

func (f *replayFlags) check(a *application, args []string) error {
	switch {
	case f.rate < 0:
		return usagef("--rate is %d, must be positive", f.rate)
	case f.window < 0:
		return usagef("--dedup-window is %s, must not be negative", f.window)
	case f.discarded && len(args) == 0:
		return usagef("--discarded needs the ids of the letters")
	case f.payload != "" && len(args) != 1:
		return usagef("--payload needs the id of a single letter")
	case !f.yes && !f.dryRun && (!isTerminal(a.In) || f.payload == "-"):
		return usagef("there is no terminal to ask on: add --yes, or see with --dry-run what would be done")
	}
	return nil
}

func (a *application) replay(
	ctx context.Context, db app.Database, d deadletter.Store, form string, o deadletter.ReplayOptions, f replayFlags,
) error {
	if f.dryRun || !f.yes {
		preview, err := d.Preview(ctx, o.Selection, f.window)
		if err != nil {
			return err
		}
		if f.dryRun && form == "json" {
			return printJSON(a.Out, preview)
		}
		if f.dryRun {
			return printPreview(a.Out, preview, f.window)
		}
		if err := printPreview(a.Err, preview, f.window); err != nil || preview.Letters == 0 {
			return err
		}
		if !a.confirmed(ctx, "Replay them? [y/N] ") {
			return errors.New("nothing was replayed")
		}
	}
	total, err := d.Count(ctx, o.Selection)
	if err != nil {
		return err
	}
	wake := newWaker(ctx, db)
	defer wake.close()
	bar := newProgress(a.Err)
	o.Progress = func(sum deadletter.Replayed, page deadletter.ReplayPage) {
		for table := range page.Replayed {
			wake.wake(table)
		}
		bar.show("%s %d of %s, %d skipped", gauge(sum.Letters+sum.Skipped, total), sum.Letters, counted(total, "letter"),
			sum.Skipped)
	}
	sum, err := deadletter.Replay(ctx, d, o)
	bar.done()
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("interrupted after %s: the same command goes on from there", counted(sum.Letters, "letter"))
	}
	return firstOf(a.printReplayed(form, sum), err)
}

// gauge draws how much is done.
func gauge(done, total int) string {
	const width = 20
	full := width
	if total > 0 {
		full = min(width*done/total, width)
	}
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}

// confirmed asks on the terminal.
func (a *application) confirmed(ctx context.Context, question string) bool {
	fmt.Fprint(a.Err, question)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.Err)
		return false
	case answer := <-readLines(ctx, a.In):
		switch strings.ToLower(strings.TrimSpace(string(answer.text))) {
		case "y", "yes":
			return true
		}
		return false
	}
}

func printPreview(w io.Writer, p deadletter.Preview, window time.Duration) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s would be replayed\n", counted(p.Letters, "letter"))
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
			{t.Racing, "perhaps out of order: a later event of the key is waiting, and a relay may have read it already"},
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
		fmt.Fprintln(&b,
			"No sink refuses a replayed event as a copy: a subscriber that did receive one before receives it again, under "+
				"the same event id.")
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}

// printReplayed says what was done and where to look. Letters that were named and all skipped are a failure.
func (a *application) printReplayed(form string, sum deadletter.Replayed) error {
	if form == "json" {
		if err := printJSON(a.Out, sum); err != nil {
			return err
		}
	} else {
		if _, err := fmt.Fprintf(a.Out, "replayed %s, skipped %d\n", counted(sum.Letters, "letter"),
			sum.Skipped); err != nil {
			return fmt.Errorf("print result: %w", err)
		}
		for _, s := range sum.Reasons {
			fmt.Fprintf(a.Out, "  %d skipped, first %s: %s\n", s.Count, s.First[0], oneLine(s.Why))
		}
	}
	for _, table := range slices.Sorted(maps.Keys(sum.Tables)) {
		if table == "" {
			continue
		}
		look := "outbox events --table " + table
		if table == outbox.DeliveriesOf("", "").Table {
			look = "outbox sinks, outbox events --table TABLE --to SINK"
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
	n, err := db.Notifier()
	if err != nil {
		return w
	}
	w.notifier = n
	w.background.Go(func() { _ = n.Run(ctx) }) // it returns nil
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

package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/server/crawl"
)

func (a *application) listRuns(client *pflag.FlagSet) *cobra.Command {
	var status, app, after string
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List runs, the newest first",
		Long: `list prints runs, the newest first. EVENTS is how many each has so far. Where there are more runs, it
prints how to see the next page. A run is PENDING, RUNNING, COMPLETED, FAILED or CANCELLED.`,
		Example: `  outbox runs list
  outbox runs list --status FAILED --app shop.example -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > 500 {
				return usagef("--limit is %d, must be between 1 and 500", limit)
			}
			c, gateway, err := a.asking(client)
			if err != nil {
				return err
			}
			query := url.Values{"limit": {strconv.Itoa(limit)}}
			for name, value := range map[string]string{"status": strings.ToUpper(status), "appPackage": app, "cursor": after} {
				if value != "" {
					query.Set(name, value)
				}
			}
			var answer struct {
				Items      []json.RawMessage `json:"items"` // with -o json they are printed as they came
				NextCursor string            `json:"nextCursor"`
			}
			if err := gateway.call(cmd.Context(), http.MethodGet, "/v1/runs?"+query.Encode(), nil, nil, &answer); err != nil {
				return err
			}
			if c.Output == "json" {
				return printPage(a.Out, answer.Items, answer.NextCursor)
			}
			var rows [][]string
			for _, item := range answer.Items {
				var r crawl.Run
				if err := json.Unmarshal(item, &r); err != nil {
					return fmt.Errorf("read the answer of %s: %w", c.Server, err)
				}
				rows = append(rows, []string{r.ID.String(), string(r.Status), r.AppPackage, r.Crawler, fmt.Sprint(r.LastSeq),
					moment(&r.CreatedAt), moment(r.StartedAt), moment(ended(r)), cut(r.Error, 60)})
			}
			if err := printTable(a.Out, []string{"RUN", "STATUS", "APP", "CRAWLER", "EVENTS", "CREATED", "STARTED", "ENDED",
				"ERROR"}, rows); err != nil {
				return err
			}
			switch {
			case len(rows) == 0:
				fmt.Fprintln(a.Err, "no such runs")
			case answer.NextCursor != "":
				fmt.Fprintf(a.Err, "there are more: add --after %s\n", answer.NextCursor)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&status, "status", "", "`status` of the runs to show (default: any)")
	cmd.Flags().StringVar(&app, "app", "", "`package` of the application whose runs to show")
	cmd.Flags().IntVar(&limit, "limit", 50, "`runs` a page")
	cmd.Flags().StringVar(&after, "after", "", "`place` where the previous page ended, as it was printed under it")
	cmd.Flags().SortFlags = false
	return cmd
}

// ended is when a run ended.
func ended(r crawl.Run) *time.Time {
	if r.CancelledAt != nil {
		return r.CancelledAt
	}
	return r.CompletedAt
}

// lastEvents is how many of a run's events show prints.
const lastEvents = 10

func (a *application) showRun(client *pflag.FlagSet) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Print one run and its last events",
		Long: `show prints everything about one run, and the last ten of its events. With -o json it prints the run
alone: outbox runs follow ID -o json prints the events.`,
		Example: `  outbox runs show 01890a5d-ac96-774b-bcce-b302099a8057
  outbox runs show 01890a5d-ac96-774b-bcce-b302099a8057 -o json | jq -r .status`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.oneRun(cmd.Context(), client, args[0], http.MethodGet, "", func(gateway *api, run crawl.Run) error {
				var page struct {
					Items []crawl.Event `json:"items"`
				}
				path := runPath(run.ID, fmt.Sprintf("/events?after=%d&limit=%d", max(run.LastSeq-lastEvents, 0), lastEvents))
				if err := gateway.call(cmd.Context(), http.MethodGet, path, nil, nil, &page); err != nil {
					return err
				}
				return a.printRun(run, page.Items)
			})
		},
	}
}

func (a *application) printRun(r crawl.Run, last []crawl.Event) error {
	var lines []detail
	for i, e := range last {
		lines = append(lines, detail{"", eventLine(e)})
		if i == 0 {
			lines[0].name = "last events"
		}
	}
	return a.printDetails(slices.Concat([]detail{
		{"run", r.ID.String()}, {"status", string(r.Status)}, {"tenant", r.Tenant}, {"app", r.AppPackage},
		{"crawler", r.Crawler}, {"goal", r.Goal},
		{"device", string(r.DeviceConfig)}, {"most steps", fmt.Sprint(r.MaxSteps)}, {"created", moment(&r.CreatedAt)},
		{"started", moment(r.StartedAt)},
		{"completed", moment(r.CompletedAt)}, {"cancelled", moment(r.CancelledAt)}, {"error", r.Error},
		{"events", fmt.Sprint(r.LastSeq)},
	}, lines))
}

// eventLine is one event for people: short, so that a screen shows what happens and not one screenshot's description.
func eventLine(e crawl.Event) string {
	return fmt.Sprintf("%s  %5d  %-19s  %s", moment(&e.CreatedAt), e.Seq, oneLine(e.Type),
		cut(oneLine(string(e.Payload)), 120))
}

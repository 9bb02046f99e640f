package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/server/crawl"
)

func (a *application) runs() *cobra.Command {
	client := config.Client()
	cmd := group("runs", a.createRun(client), a.listRuns(client), a.showRun(client),
		a.followRun(client), a.cancelRun(client))
	cmd.PersistentFlags().AddFlagSet(client)
	return cmd
}

// asking returns the gateway that the settings name.
func (a *application) asking(client *pflag.FlagSet) (config.Config, *api, error) {
	c, err := a.settings(config.Asking, client)
	return c, newAPI(c), err
}

// newRun is the body of POST /v1/runs.
type newRun struct {
	AppPackage   string          `json:"appPackage"`
	DeviceConfig json.RawMessage `json:"deviceConfig,omitempty"`
	MaxSteps     *int            `json:"maxSteps,omitempty"` // nil: not given
	Goal         string          `json:"goal,omitempty"`
	Crawler      string          `json:"crawler,omitempty"`
}

func (a *application) createRun(client *pflag.FlagSet) *cobra.Command {
	var n newRun
	var device, key string
	var follow bool
	var steps int
	cmd := command("runs create", cobra.NoArgs, func(cmd *cobra.Command, _ []string) (err error) {
		if n.AppPackage == "" {
			return usagef("--app is required")
		}
		if n.DeviceConfig, err = parseDevice(device); err != nil {
			return err
		}
		if cmd.Flags().Changed("max-steps") {
			n.MaxSteps = &steps
		}
		c, gateway, err := a.asking(client)
		if err != nil {
			return err
		}
		header := http.Header{}
		if key != "" {
			header.Set("Idempotency-Key", key)
		}
		var made struct {
			crawl.Run
			StreamURL string `json:"streamUrl"`
		}
		answer, err := gateway.ask(cmd.Context(), http.MethodPost, "/v1/runs", header, n, &made)
		switch {
		case err != nil:
			return err
		case follow:
			fmt.Fprintf(a.Err, "run %s\n", made.ID)
			return a.follow(cmd.Context(), gateway, c.Output, made.ID, 0)
		case c.Output == "json":
			return printJSON(a.Out, answer)
		}
		fmt.Fprintf(a.Err, "see what happens in it: outbox runs follow %s\n", made.ID)
		return a.printDetails(detail{"run", made.ID}, detail{"status", made.Status}, detail{"created", made.CreatedAt},
			detail{"stream", made.StreamURL})
	})
	cmd.Flags().StringVar(&n.AppPackage, "app", "", "`name` of the application's package (required)")
	cmd.Flags().StringVar(&n.Crawler, "crawler", "", "`name` of the crawler (default: external)")
	cmd.Flags().StringVar(&n.Goal, "goal", "", "goal of the run")
	cmd.Flags().IntVar(&steps, "max-steps", 0, "maximum number of visited nodes (default: 100)")
	cmd.Flags().StringVar(&device, "device", "", "device configuration: `json` object, or a file with one")
	cmd.Flags().StringVar(&key, "idempotency-key", "", "identifier of repeated requests")
	cmd.Flags().BoolVar(&follow, "follow", false, "output of the run's events until it ends")
	return cmd
}

// parseDevice reads --device, which is JSON if it begins like an object.
func parseDevice(text string) (raw json.RawMessage, err error) {
	if text == "" {
		return nil, nil
	}
	raw = json.RawMessage(text)
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		if raw, err = os.ReadFile(text); err != nil {
			return nil, fmt.Errorf("read --device, which is neither a JSON object nor a file: %w", err)
		}
	}
	if !json.Valid(raw) {
		return nil, usagef("--device: want a JSON object, or a file with one")
	}
	return raw, nil
}

func (a *application) listRuns(client *pflag.FlagSet) *cobra.Command {
	var status, app, after string
	var limit int
	cmd := command("runs list", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		c, gateway, err := a.asking(client)
		if err != nil {
			return err
		}
		query := url.Values{"limit": {strconv.Itoa(limit)}}
		for name, value := range map[string]string{"status": strings.ToUpper(status),
			"appPackage": app, "cursor": after} {
			if value != "" {
				query.Set(name, value)
			}
		}
		var runs page[crawl.Run]
		answer, err := gateway.ask(cmd.Context(), http.MethodGet, "/v1/runs?"+query.Encode(), nil, nil, &runs)
		if err != nil {
			return err
		}
		if c.Output == "json" {
			var asTheyCame page[json.RawMessage]
			if err := json.Unmarshal(answer, &asTheyCame); err != nil {
				return fmt.Errorf("read the answer of %s: %w", c.Server, err)
			}
			return printPage(a.Out, asTheyCame.Items, text(asTheyCame.NextCursor))
		}
		return list[crawl.Run]{runs.Items, text(runs.NextCursor), "no such runs",
			"RUN,STATUS,APP,CRAWLER,EVENTS,CREATED,STARTED,ENDED,ERROR", runCells}.print(a, c.Output)
	})
	cmd.Flags().StringVar(&status, "status", "", "`name` of the status (default: any)")
	cmd.Flags().StringVar(&app, "app", "", "`name` of the application's package")
	pageFlags(cmd.Flags(), &limit, &after, 500, "runs")
	return cmd
}

func runCells(r crawl.Run) []any {
	ended := r.CompletedAt
	if r.CancelledAt != nil {
		ended = r.CancelledAt
	}
	return []any{r.ID, r.Status, r.AppPackage, r.Crawler, r.LastSeq, r.CreatedAt, r.StartedAt, ended, cut(r.Error, 60)}
}

// lastEvents is how many of a run's events show prints.
const lastEvents = 10

func (a *application) showRun(client *pflag.FlagSet) *cobra.Command {
	return command("runs show", cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		return a.oneRun(cmd.Context(), client, args, http.MethodGet, "", func(gateway *api, run crawl.Run) error {
			var events page[crawl.Event]
			path := runPath(run.ID, fmt.Sprintf("/events?after=%d&limit=%d",
				max(run.LastSeq-lastEvents, 0), lastEvents))
			if _, err := gateway.ask(cmd.Context(), http.MethodGet, path, nil, nil, &events); err != nil {
				return err
			}
			return a.printRun(run, events.Items)
		})
	})
}

func (a *application) cancelRun(client *pflag.FlagSet) *cobra.Command {
	return command("runs cancel", cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		return a.oneRun(cmd.Context(), client, args, http.MethodPost, "/cancel",
			func(_ *api, run crawl.Run) error { return a.printRun(run, nil) })
	})
}

func parseRun(args []string) (uuid.UUID, error) {
	ids, err := parseIDs(args, "id of a run: it is a UUID, outbox runs list shows them")
	if err != nil {
		return uuid.Nil, err
	}
	return ids[0], nil
}

func runPath(id uuid.UUID, rest string) string { return "/v1/runs/" + id.String() + rest }

// oneRun asks a gateway for something that a run is the answer to. With -o json it prints that as
// it came, else it calls print.
func (a *application) oneRun(
	ctx context.Context, client *pflag.FlagSet, args []string, method, path string, print func(*api, crawl.Run) error,
) error {
	id, err := parseRun(args)
	if err != nil {
		return err
	}
	c, gateway, err := a.asking(client)
	if err != nil {
		return err
	}
	var r crawl.Run
	answer, err := gateway.ask(ctx, method, runPath(id, path), nil, nil, &r)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return printJSON(a.Out, answer)
	}
	return print(gateway, r)
}

func (a *application) printRun(r crawl.Run, last []crawl.Event) error {
	var lines []string
	for _, e := range last {
		lines = append(lines, eventLine(e))
	}
	return a.printDetails(slices.Concat([]detail{
		{"run", r.ID}, {"status", r.Status}, {"tenant", r.Tenant}, {"app", r.AppPackage}, {"crawler", r.Crawler},
		{"goal", r.Goal}, {"device", r.DeviceConfig}, {"most steps", r.MaxSteps}, {"created", r.CreatedAt},
		{"started", r.StartedAt}, {"completed", r.CompletedAt}, {"cancelled", r.CancelledAt}, {"error", r.Error},
		{"events", r.LastSeq},
	}, under("last events", lines))...)
}

// eventLine is one event for people: short, so that a screen shows what happens and not one
// screenshot's description.
func eventLine(e crawl.Event) string {
	return fmt.Sprintf("%s  %5d  %-19s  %s", text(e.CreatedAt), e.Seq, oneLine(e.Type),
		cut(oneLine(string(e.Payload)), 120))
}

func (a *application) followRun(client *pflag.FlagSet) *cobra.Command {
	var after int
	cmd := command("runs follow", cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		id, err := parseRun(args)
		if err != nil {
			return err
		}
		c, gateway, err := a.asking(client)
		if err != nil {
			return err
		}
		return a.follow(cmd.Context(), gateway, c.Output, id, int64(after))
	})
	countFlag(cmd.Flags(), &after, "after", 0, 0, 0, "number of the last event that was printed")
	return cmd
}

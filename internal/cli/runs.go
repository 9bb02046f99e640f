package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/server/crawl"
)

func (a *application) runs() *cobra.Command {
	client := config.Client()
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "Create crawl runs, watch and cancel them",
		Long: `runs asks a gateway, outbox serve, for runs of a crawler.

    outbox runs create --app shop.example --crawler demo --follow    make one and see what happens
    outbox runs list --status RUNNING                       which there are
    outbox runs show ID                                     one, and its last events
    outbox runs follow ID                                   its events, from the first on, as they commit
    outbox runs cancel ID                                   stop it

The gateway is named by --server or OUTBOX_SERVER, and the token that it wants (outbox token create) by
OUTBOX_TOKEN. A token sees the runs of its tenant only.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usagef("say what to do: create, list, show, follow or cancel")
		},
	}
	cmd.PersistentFlags().AddFlagSet(client)
	cmd.AddCommand(a.createRun(client), a.listRuns(client), a.showRun(client), a.followRun(client), a.cancelRun(client))
	return cmd
}

// asking returns the gateway that the settings name.
func (a *application) asking(client *pflag.FlagSet) (config.Config, *api, error) {
	c, err := a.settings(config.Asking, client)
	return c, newAPI(c), err
}

func parseRun(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, usagef("%q is no id of a run: it is a UUID, outbox runs list shows them", text)
	}
	return id, nil
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
	cmd := &cobra.Command{
		Use:   "create --app PACKAGE",
		Short: "Create a run, and watch it",
		Long: `create makes a run of the application --app. --crawler says who crawls it: external (the default: your
own crawler, which speaks to the API), or one that the gateway's workers have, such as demo or script:checkout;
an unknown one is refused with the list of those there are.

With --follow it goes on as outbox runs follow does, until the run has ended. With --idempotency-key a second
create with the same key and the same content makes no second run: it answers with the first.`,
		Example: `  outbox runs create --app shop.example --crawler demo --follow
  outbox runs create --app shop.example --goal "buy a book" --max-steps 50 --device '{"model": "Pixel 8"}'
  outbox runs create --app shop.example --device device.json --idempotency-key order-4711 -o json | jq -r .runId`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
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
			var answer json.RawMessage
			if err := gateway.call(cmd.Context(), http.MethodPost, "/v1/runs", header, n, &answer); err != nil {
				return err
			}
			var made struct {
				crawl.Run
				StreamURL string `json:"streamUrl"`
			}
			if err := json.Unmarshal(answer, &made); err != nil {
				return fmt.Errorf("read the answer of %s: %w", c.Server, err)
			}
			if follow {
				fmt.Fprintf(a.Err, "run %s\n", made.ID)
				return a.follow(cmd.Context(), gateway, c.Output, made.ID, 0)
			}
			if c.Output == "json" {
				return printJSON(a.Out, answer)
			}
			if err := a.printDetails([]detail{{"run", made.ID.String()}, {"status", string(made.Status)},
				{"created", moment(&made.CreatedAt)}, {"stream", made.StreamURL}}); err != nil {
				return err
			}
			fmt.Fprintf(a.Err, "see what happens in it: outbox runs follow %s\n", made.ID)
			return nil
		},
	}
	cmd.Flags().StringVar(&n.AppPackage, "app", "", "`package` of the application to crawl (required)")
	cmd.Flags().StringVar(&n.Crawler, "crawler", "", "`name` of the crawler (default: external)")
	cmd.Flags().StringVar(&n.Goal, "goal", "", "`text` that says what the run is to reach")
	cmd.Flags().IntVar(&steps, "max-steps", 0, "most `nodes` that a worker visits (default: 100)")
	cmd.Flags().StringVar(&device, "device", "", "device configuration: `JSON` object, or a file with one")
	cmd.Flags().StringVar(&key, "idempotency-key", "", "`key` that makes a repeated create harmless")
	cmd.Flags().BoolVar(&follow, "follow", false, "print the run's events until it has ended")
	cmd.Flags().SortFlags = false
	return cmd
}

// parseDevice reads --device, which is JSON if it begins like an object.
func parseDevice(text string) (json.RawMessage, error) {
	if text == "" {
		return nil, nil
	}
	raw := []byte(text)
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		var err error
		if raw, err = os.ReadFile(text); err != nil {
			return nil, fmt.Errorf("read --device, which is neither a JSON object nor a file: %w", err)
		}
	}
	if !json.Valid(raw) {
		return nil, usagef("--device: want a JSON object, or a file with one")
	}
	return raw, nil
}

func (a *application) cancelRun(client *pflag.FlagSet) *cobra.Command {
	return &cobra.Command{
		Use:   "cancel ID",
		Short: "Stop a run",
		Long: `cancel makes a run CANCELLED that has not ended. A worker that crawls it stops within a second or so,
and none of its events come after. Cancelling it again changes nothing. The token needs the scope operate.`,
		Example: `  outbox runs cancel 01890a5d-ac96-774b-bcce-b302099a8057`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.oneRun(cmd.Context(), client, args[0], http.MethodPost, "/cancel",
				func(_ *api, run crawl.Run) error { return a.printRun(run, nil) })
		},
	}
}

func runPath(id uuid.UUID, rest string) string { return "/v1/runs/" + id.String() + rest }

// oneRun asks a gateway for something that a run is the answer to. With -o json it prints that as it came, else it
// calls print.
func (a *application) oneRun(
	ctx context.Context, client *pflag.FlagSet, run, method, path string, print func(*api, crawl.Run) error,
) error {
	id, err := parseRun(run)
	if err != nil {
		return err
	}
	c, gateway, err := a.asking(client)
	if err != nil {
		return err
	}
	var answer json.RawMessage
	if err := gateway.call(ctx, method, runPath(id, path), nil, nil, &answer); err != nil {
		return err
	}
	if c.Output == "json" {
		return printJSON(a.Out, answer)
	}
	var r crawl.Run
	if err := json.Unmarshal(answer, &r); err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.Server, err)
	}
	return print(gateway, r)
}

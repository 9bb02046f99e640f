package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/config"
)

// readyWithin is below what supervisors of containers let a probe take.
const readyWithin = 4 * time.Second

// ready asks the process beside it, for images that have neither a shell nor curl.
func (a *application) ready() *cobra.Command {
	var part string
	settings := pflag.NewFlagSet("ready", pflag.ContinueOnError)
	settings.AddFlag(config.Relay().Lookup("listen"))
	cmd := command("ready", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		// No check of the rest: what is wrong there the process beside has found.
		c, err := config.Load(a.kinds, a.environ, a.global, settings)
		if err != nil {
			return err
		}
		host, port, err := net.SplitHostPort(c.Listen)
		if err != nil || port == "0" {
			return usagef("listen is %q, want the address of the relay or gateway on this machine: set --listen", c.Listen)
		}
		if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
			host = "127.0.0.1"
		}
		at := url.URL{Scheme: "http", Host: net.JoinHostPort(host, port), Path: "/readyz"}
		if part != "" {
			at = *at.JoinPath(part)
		}
		if err := askReady(cmd.Context(), at.String()); err != nil {
			return err
		}
		return a.printResult(c.Output, map[string]bool{"ready": true}, "ready")
	})
	cmd.Flags().AddFlagSet(settings)
	cmd.Flags().StringVar(&part, "part", "", "`name` of the part: gateway, relay or worker (default: all)")
	return cmd
}

func askReady(ctx context.Context, at string) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{}} // past the proxy of the environment: it is this machine
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask whether it is ready: %w", err)
	}
	defer func() { _ = answer.Body.Close() }() // nothing is written
	var report struct{ Reason string }
	if err := json.NewDecoder(io.LimitReader(answer.Body, 1<<20)).Decode(&report); err != nil {
		return fmt.Errorf("read the answer of %s, status %d: %w", at, answer.StatusCode, err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", oneLine(report.Reason))
	}
	return nil
}

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// troublesOf returns what hinders the relays of a table, or all relays. Who may not see the relays, or has an older
// database, has none to show.
func troublesOf(ctx context.Context, db app.Database, table string) []operate.Trouble {
	all, err := db.Troubles(ctx)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(t operate.Trouble) bool { return table != "" && !t.Concerns(table) })
}

// printTroubles says what is wrong before anything else is shown: a reason is one line, whoever has it.
func (a *application) printTroubles(form string, all []operate.Trouble) {
	to := a.Out
	if form == "json" {
		to = a.Err
	}
	var reasons []string
	first, relays := map[string]operate.Trouble{}, map[string][]string{}
	for _, t := range all {
		for _, r := range t.Reasons() {
			if seen, ok := first[r]; !ok {
				reasons, first[r] = append(reasons, r), t
			} else if t.Since != nil && seen.Since != nil && t.Since.Before(*seen.Since) {
				first[r] = t
			}
			if t.Relay != "" && !slices.Contains(relays[r], t.Relay) {
				relays[r] = append(relays[r], t.Relay)
			}
		}
	}
	for _, r := range reasons {
		line := "NOT READY: " + oneLine(r)
		if len(relays[r]) > 0 {
			line += fmt.Sprintf(" (relay %s, since %s)", strings.Join(relays[r], ", "), moment(first[r].Since))
		}
		fmt.Fprintln(to, line)
	}
}

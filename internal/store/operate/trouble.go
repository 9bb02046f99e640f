package operate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Trouble is what hinders a relay, as it has told the database, or the database itself if Relay is empty.
type Trouble struct {
	Relay string            `json:"relay,omitempty"`
	Since *time.Time        `json:"since,omitempty"`
	Of    string            `json:"table,omitempty"` // by its name in leases
	Why   string            `json:"reason,omitempty"`
	Sinks map[string]string `json:"sinks,omitempty"` // reasons by name
}

// tell takes over what a relay has told (outbox.LeaseRequest has its form).
func (t *Trouble) tell(health []byte) error {
	var told struct {
		Table string
		Sinks map[string]string
	}
	if err := json.Unmarshal(health, &told); err != nil {
		return fmt.Errorf("read what relay %s has told of %s: %w", t.Relay, t.Of, err)
	}
	t.Why, t.Sinks = told.Table, told.Sinks
	return nil
}

// Reasons are what it says, in the words of /readyz.
func (t Trouble) Reasons() (all []string) {
	for name, why := range t.Sinks {
		all = append(all, "sink "+name+": "+why)
	}
	slices.Sort(all)
	switch {
	case t.Why != "" && t.Relay == "":
		all = append(all, t.Why)
	case t.Why != "":
		all = append(all, t.Of+": "+t.Why)
	}
	return all
}

// Concerns tells whether it hinders a table, or what one of its sinks owes.
func (t Trouble) Concerns(table string) bool {
	of, _ := TableAndSink(t.Of)
	return t.Of == "" || of == table || strings.HasSuffix(of, "."+table) || strings.HasSuffix(table, "."+of)
}

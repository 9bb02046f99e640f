package crawl

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// Limits in characters. Those of text columns without a length are this package's.
const (
	MaxAppPackage     = 255
	MaxTenant         = 64 // as that of an outbox.Event
	MaxCrawler        = 150
	MaxIdempotencyKey = 255
	MaxEventType      = 50
	MaxGoal           = 10_000
	MaxError          = 10_000
)

// MaxDeviceConfig is how many bytes of JSON a device configuration may have, with its numbers
// spelled out.
const MaxDeviceConfig = 16 << 10

// checkRun reports everything about a new run that cannot be accepted.
func (s *Service) checkRun(tenant string, n NewRun) error {
	problems := []error{
		checkText("tenant", tenant, MaxTenant, true),
		checkText("appPackage", n.AppPackage, MaxAppPackage, true),
		checkText("goal", n.Goal, MaxGoal, false),
		checkText("idempotencyKey", n.IdempotencyKey, MaxIdempotencyKey, false),
	}
	if n.DeviceConfig != nil {
		err := checkJSON("deviceConfig", n.DeviceConfig, MaxDeviceConfig)
		if err == nil && !bytes.HasPrefix(bytes.TrimSpace(n.DeviceConfig), []byte("{")) {
			err = &FieldError{Field: "deviceConfig", Problem: "is not a JSON object"}
		}
		problems = append(problems, err)
	}
	if n.MaxSteps < 1 || n.MaxSteps > s.cfg.MaxMaxSteps {
		problems = append(problems, &FieldError{Field: "maxSteps",
			Problem: fmt.Sprintf("is %d, must be between 1 and %d", n.MaxSteps, s.cfg.MaxMaxSteps)})
	}
	if known := s.Crawlers(); !slices.Contains(known, n.Crawler) {
		problems = append(problems, &FieldError{Field: "crawler",
			Problem: fmt.Sprintf("%.50q is unknown: choose one of %s", n.Crawler, strings.Join(known, ", "))})
	}
	return errors.Join(problems...)
}

// howTo names the way to an event that a change of the run appends: it must not be in the log
// without the change.
var howTo = map[string]string{
	RunStarted:   "start the run",
	RunCompleted: "complete the run",
	RunFailed:    "fail the run",
	RunCancelled: "cancel the run",
}

// complete fills in ids and payloads that were left out, in place, and reports everything about the
// events that cannot be accepted.
func complete(events []NewEvent, maxPayload int) error {
	var problems []error
	first := make(map[uuid.UUID]int, len(events))
	for i := range events {
		e := &events[i]
		field := func(name string) string { return fmt.Sprintf("events[%d].%s", i, name) }
		if len(e.Payload) == 0 {
			e.Payload = []byte("{}")
		}
		problems = append(problems, checkType(field("type"), e.Type), checkJSON(field("payload"), e.Payload, maxPayload))
		if e.ID == uuid.Nil {
			continue
		}
		if before, twice := first[e.ID]; twice {
			problems = append(problems, &FieldError{Field: field("id"), Problem: fmt.Sprintf("is that of events[%d]", before)})
		} else {
			first[e.ID] = i
		}
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	return identify(events)
}

func checkType(field, t string) error {
	problem := ""
	switch {
	case t == "":
		problem = "is required"
	case howTo[t] != "":
		problem = fmt.Sprintf("%s cannot be appended: %s, which appends it", t, howTo[t])
	case strings.Trim(t, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "":
		problem = "must be of A-Z, 0-9 and _"
	case len(t) > MaxEventType:
		problem = fmt.Sprintf("has %d characters, the limit is %d", len(t), MaxEventType)
	default:
		return nil
	}
	return &FieldError{Field: field, Problem: problem}
}

// checkText reports why PostgreSQL would refuse s in a column of so many characters.
func checkText(field, s string, maxChars int, required bool) error {
	problem := ""
	switch n := utf8.RuneCountInString(s); {
	case s == "" && required:
		problem = "is required"
	case !utf8.ValidString(s):
		problem = "is not valid UTF-8"
	case strings.ContainsRune(s, 0):
		problem = "contains NUL, which PostgreSQL text cannot hold"
	case n > maxChars:
		problem = fmt.Sprintf("has %d characters, the limit is %d", n, maxChars)
	default:
		return nil
	}
	return &FieldError{Field: field, Problem: problem}
}

// checkJSON reports why jsonb would refuse b. The rules are package outbox's: an event of a run
// goes out through it, so they are asked for there.
func checkJSON(field string, b []byte, maxBytes int) error {
	probe := outbox.Event{Topic: field, Source: Source, Payload: b}
	err := probe.Validate(maxBytes)
	if refused, ok := errors.AsType[*outbox.FieldError](err); ok {
		return &FieldError{Field: field, Problem: refused.Problem}
	}
	return err
}

// bound applies the rule of configurations: zero is the default, negative no limit (but what the
// column holds).
func bound(v, def int) int {
	switch {
	case v == 0:
		return def
	case v < 0:
		return math.MaxInt32
	}
	return v
}

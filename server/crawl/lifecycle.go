package crawl

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// The events that the changes of a run append by themselves, and what is in them:
//
//	RUN_STARTED    {"appPackage", "maxSteps", "crawler"}
//	NODE_START     {"node", "step"}           by a Worker; step counts the visits of nodes from 1
//	NODE_COMPLETE  {"node", "step"}           by a Worker
//	ERROR          {"node", "step", "error"}  by a Worker, right before its RUN_FAILED
//	RUN_COMPLETED  {"reason"}                 ReasonFinished or ReasonMaxSteps
//	RUN_FAILED     {"error"}
//	RUN_CANCELLED  {"reason"}                 ReasonRequested
//
// A crawler that works from outside puts into its own NODE_START and the others what it likes.

// Why a run ended without an error.
const (
	ReasonFinished  = "finished"
	ReasonMaxSteps  = "max_steps" // a budget that is used up is no failure
	ReasonRequested = "requested"
)

type reason struct {
	Reason string `json:"reason"`
}

type failure struct {
	Error string `json:"error"`
}

// nodeVisit is one visit of a node. Error is that of an ERROR event.
type nodeVisit struct {
	Node  string `json:"node"`
	Step  int    `json:"step"`
	Error string `json:"error,omitempty"`
}

func newEvent(eventType string, payload any) NewEvent {
	b, err := json.Marshal(payload)
	if err != nil {
		// Strings and numbers of this package always marshal.
		panic(fmt.Sprintf("marshal the payload of %s: %v", eventType, err))
	}
	return NewEvent{Type: eventType, Payload: b}
}

func startedEvent(r Run) NewEvent {
	return newEvent(RunStarted, struct {
		AppPackage string `json:"appPackage"`
		MaxSteps   int    `json:"maxSteps"`
		Crawler    string `json:"crawler"`
	}{r.AppPackage, r.MaxSteps, r.Crawler})
}

// identify gives the events that have no id one of their own, so that a change whose reply was lost
// can be made again.
func identify(events []NewEvent) error {
	for i := range events {
		if events[i].ID != uuid.Nil {
			continue
		}
		id, err := outbox.NewID()
		if err != nil {
			return err
		}
		events[i].ID = id
	}
	return nil
}

// errorText makes any text one that the column and jsonb take: nodes report what a device or a
// server told them.
func errorText(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if utf8.RuneCountInString(s) > MaxError {
		s = string([]rune(s)[:MaxError-1]) + "…"
	}
	return s
}

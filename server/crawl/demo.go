package crawl

import (
	"context"
	"encoding/json"
	"time"

	"github.com/outboxrelay/outbox/internal/backoff"
)

// Demo is the demonstration of the system around the seeds: Start → Process → Finish. Process takes
// the time given; 0: 2 s, negative: none.
func Demo(process time.Duration) Crawler {
	if process == 0 {
		process = 2 * time.Second
	}
	process = max(process, 0)
	type action struct {
		Action     string `json:"action"`
		AppPackage string `json:"appPackage"`
	}
	return Crawler{Name: "demo", First: "Start", Nodes: map[string]Node{
		"Start": NodeFunc(func(_ context.Context, r Run, _ json.RawMessage) (Result, error) {
			return Result{Events: []NewEvent{newEvent(ActionExecuted, action{"launch", r.AppPackage})}, Next: "Process"}, nil
		}),
		"Process": NodeFunc(func(ctx context.Context, _ Run, _ json.RawMessage) (Result, error) {
			if !backoff.Wait(ctx, process) {
				return Result{}, ctx.Err()
			}
			return Result{Events: []NewEvent{newEvent(Processing, struct {
				Milliseconds int64 `json:"milliseconds"`
			}{process.Milliseconds()})}, Next: "Finish"}, nil
		}),
		"Finish": NodeFunc(func(_ context.Context, r Run, _ json.RawMessage) (Result, error) {
			return Result{Events: []NewEvent{newEvent(ActionExecuted, action{"close", r.AppPackage})}}, nil
		}),
	}}
}

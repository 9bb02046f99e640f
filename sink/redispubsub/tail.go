package redispubsub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/outboxrelay/outbox/internal/backoff"
	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
	"github.com/outboxrelay/outbox/sink"
)

// tail subscribes to channels, those with a * as patterns, until ctx ends or t.Message returns an
// error. A connection that breaks is made again; one that cannot be made in the first place is an
// error. Of several hosts the first is taken: every node of a Cluster passes all messages on.
func tail(ctx context.Context, url string, channels []string, t sink.Tail) error {
	logging.Disable()
	server, err := urls.Parse(url)
	if err != nil {
		return err
	}
	client := redis.NewClient(server.Options)
	defer func() { _ = client.Close() }()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("connect to Redis %s: %w", sinkurl.Mask(url), server.Hide(err))
	}
	channels = slices.Compact(slices.Sorted(slices.Values(channels))) // the server confirms each once
	var names, patterns []string
	for _, c := range channels {
		if strings.Contains(c, "*") {
			patterns = append(patterns, otherSigns.Replace(c))
		} else {
			names = append(names, c)
		}
	}
	subscription := client.Subscribe(ctx)
	defer func() { _ = subscription.Close() }()
	if len(names) > 0 {
		err = subscription.Subscribe(ctx, names...)
	}
	if len(patterns) > 0 && err == nil {
		err = subscription.PSubscribe(ctx, patterns...)
	}
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	// Go-redis does not look at ctx while it waits for a message.
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })()
	return passOn(ctx, subscription, channels, t)
}

// otherSigns mean something in a pattern of Redis, in which here only * does.
var otherSigns = strings.NewReplacer(`\`, `\\`, "?", `\?`, "[", `\[`)

// passOn passes on what arrives.
func passOn(ctx context.Context, subscription *redis.PubSub, channels []string, t sink.Tail) error {
	pending := len(channels) // subscriptions that the server has not confirmed yet
	for {
		event, err := subscription.Receive(ctx) // connects and subscribes again after an error
		if ctx.Err() != nil {
			return nil
		}
		switch e := event.(type) {
		case *redis.Subscription:
			if pending--; pending == 0 {
				t.Subscribed(channels)
			}
		case *redis.Message:
			if err := t.Message(e.Channel, e.Payload); err != nil {
				return err
			}
		}
		var refused redis.Error
		if errors.As(err, &refused) { // NOPERM, NOAUTH: trying again gives the same answer
			return fmt.Errorf("subscribe to %s: %w", strings.Join(channels, ", "), err)
		}
		if err == nil {
			continue
		}
		if pending == 0 {
			t.Lost(err)
		}
		pending = len(channels)
		if !backoff.Wait(ctx, 500*time.Millisecond) {
			return nil
		}
	}
}

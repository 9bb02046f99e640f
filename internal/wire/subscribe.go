package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/outboxrelay/outbox/internal/config"
)

// Message is what arrived on a Redis channel.
type Message struct {
	Channel string
	Payload string
}

// Subscriber is told what happens to a subscription. An error from Message ends it.
type Subscriber struct {
	Subscribed func(channels []string)
	Lost       func(error) // the connection; what is published until Subscribed is called again is missed
	Message    func(Message) error
}

// Subscribe subscribes to channels, those with a * as patterns, until ctx ends or s.Message returns an error, which it
// returns as it is. A connection that breaks is made again; one that cannot be made in the first place is an error.
func Subscribe(ctx context.Context, redisURL string, channels []string, s Subscriber) error {
	options, err := subscriberOptions(redisURL)
	if err != nil {
		return err
	}
	logging.Disable() // as in Relay
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	if err := client.Ping(ctx).Err(); err != nil {
		if options.Password != "" && strings.Contains(err.Error(), options.Password) {
			// Some repeat a command they do not know, and its arguments.
			err = errors.New("the server's answer contains the password and is not shown")
		}
		return fmt.Errorf("connect to Redis %s: %w", config.MaskRedis(redisURL), err)
	}
	channels = slices.Compact(slices.Sorted(slices.Values(channels))) // the server confirms each once
	var names, patterns []string
	for _, c := range channels {
		if strings.Contains(c, "*") {
			patterns = append(patterns, c)
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
	return receive(ctx, subscription, channels, s)
}

// receive passes on what arrives.
func receive(ctx context.Context, subscription *redis.PubSub, channels []string, s Subscriber) error {
	pending := len(channels) // subscriptions that the server has not confirmed yet
	for {
		event, err := subscription.Receive(ctx) // connects and subscribes again after an error
		if ctx.Err() != nil {
			return nil
		}
		switch e := event.(type) {
		case *redis.Subscription:
			if pending--; pending == 0 {
				s.Subscribed(channels)
			}
		case *redis.Message:
			if err := s.Message(Message{e.Channel, e.Payload}); err != nil {
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
			s.Lost(err)
		}
		pending = len(channels)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// subscriberOptions parses the URL as the sink does. The error is a *config.Error. Of several hosts the first is taken:
// every node of a Cluster passes all messages on.
func subscriberOptions(redisURL string) (*redis.Options, error) {
	at := strings.LastIndexByte(redisURL, '@') + 1
	if comma := strings.IndexByte(redisURL[at:], ','); comma >= 0 {
		rest := redisURL[at+comma:]
		redisURL = redisURL[:at+comma]
		if end := strings.IndexAny(rest, "/?"); end >= 0 {
			redisURL += rest[end:]
		}
	}
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		return nil,
			&config.Error{Problems: []string{"redis: is no valid URL (not shown, it may hold a password): want " +
				"redis://user:password@host:6379/0, rediss:// for TLS, or unix://: give --redis, or set OUTBOX_REDIS_URL or " +
				"REDIS_URL"}}
	}
	options.MaxRetries, options.DialerRetries = -1, 1 // a command says at once that it cannot connect
	return options, nil
}

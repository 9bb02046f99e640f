package redisstream

import (
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/redisscript"
)

//go:embed xadd.lua
var source string

// shards is how many sets a hash tag has in a Cluster. One would grow too large to be freed at
// once, see the package comment of sink/redispubsub; one a lane would cost a call of many streams
// more than the entries.
const shards = 8

// memory is what follows Prefix in the names of the sets: channels and streams of one name on one
// Redis do not refuse each other's events.
const memory = "stream:"

// xadd is XADD, with a memory for each lane on a single server, and for some shards of each hash
// tag in a Cluster.
func xadd(cfg Config) func(prefix string, cluster bool) redisscript.Command {
	return func(prefix string, cluster bool) redisscript.Command {
		c := redisscript.Command{
			Source: source, Arguments: trimming(cfg), Target: "stream", Refusal: refusal, Scattered: cluster,
			Append: func(dst []byte, d *outbox.Delivery) []byte { return appendFields(dst, d, cfg) },
		}
		prefix += memory
		if cluster {
			c.Place = func(d *outbox.Delivery) (string, int, error) {
				if err := checkName(d.Destination); err != nil {
					return "", 0, err
				}
				tag, err := hashTag(d.Destination)
				return tag, int(uint16(d.Lane) % shards), err
			}
			c.Key = func(tag string, shard int) any { return prefix + "{" + tag + "}:" + strconv.Itoa(shard) }
			return c
		}
		var keys [outbox.LaneCount]any // boxed once
		for lane := range keys {
			keys[lane] = prefix + "{" + strconv.Itoa(lane) + "}"
		}
		c.Place = func(d *outbox.Delivery) (string, int, error) {
			return "", int(uint16(d.Lane) % outbox.LaneCount), checkName(d.Destination)
		}
		c.Key = func(_ string, lane int) any { return keys[lane] }
		return c
	}
}

// trimming is what ARGV ends with, see xadd.lua.
func trimming(cfg Config) []any {
	create, strategy, exactness, bound := "", "", "~", int64(0)
	if cfg.Create {
		create = "1"
	}
	switch {
	case cfg.MaxLen > 0:
		strategy, bound = "MAXLEN", cfg.MaxLen
	case cfg.MaxAge > 0:
		strategy, bound = "MINID", cfg.MaxAge.Milliseconds()
	}
	if cfg.Exact {
		exactness = "="
	}
	return []any{create, strategy, exactness, bound}
}

// checkName refuses the name that no stream has.
func checkName(stream string) error {
	if stream == "" {
		return outbox.Permanent(errors.New("append to a stream: the destination is empty"))
	}
	return nil
}

// hashTag returns the text that decides the slot of a stream (Redis Cluster specification, "Hash
// tags"). It is what is between the first { and the next }, if that is not empty, or the whole
// name. A whole name with a } cannot be made the tag of another key.
func hashTag(stream string) (string, error) {
	if _, after, found := strings.Cut(stream, "{"); found {
		if tag, _, found := strings.Cut(after, "}"); found && tag != "" {
			return tag, nil
		}
	}
	if strings.Contains(stream, "}") {
		return "", outbox.Permanent(fmt.Errorf("append to stream %q: in a Cluster a name with } needs a hash tag before it, "+
			"such as {orders}: nothing else can be made to share the stream's slot", stream))
	}
	return stream, nil
}

// refusal classes the error of one XADD. What is not known to be about this stream or entry (no
// right to XADD at all, no memory, a stale replica) is not the event's fault.
func refusal(stream, text string) error {
	switch {
	case text == "NOSTREAM":
		return fmt.Errorf("append to stream %q: it does not exist. XGROUP CREATE %s GROUP $ MKSTREAM makes it with a "+
			"consumer group, and create=true in the sink's URL has the sink make streams", stream, stream)
	case strings.HasPrefix(text, "WRONGTYPE"):
		return fmt.Errorf("append to stream %q: the key of that name holds something else. Rename or delete it, "+
			"or give the events another destination: %s", stream, text)
	// "can't access at least one of the keys" (Redis 6.2, 7.0), "no permissions to access the 'x'
	// key" (7.2). In a Cluster, "access a non local key" is about a slot that is moving.
	case strings.Contains(text, "access") && strings.Contains(text, "key") && !strings.Contains(text, "non local"):
		return fmt.Errorf("append to stream %q: the user of the sink's URL may not. ACL SETUSER with ~%s lets it: %s",
			stream, stream, text)
	case strings.Contains(text, "exhausted the last possible ID"), strings.Contains(text, "too large"),
		strings.HasPrefix(text, "FIELDS "):
		return fmt.Errorf("append to stream %q: %s", stream, text)
	}
	return outbox.Unavailable(fmt.Errorf("append to stream %q: %s", stream, text))
}

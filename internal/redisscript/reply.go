package redisscript

import (
	"errors"

	"github.com/outboxrelay/outbox"
)

// answer answers the deliveries of c as the script has. An error is that of the whole call.
func (c *call) answer(batch []outbox.Delivery, results []outbox.Result, refusal Refusal) error {
	reply, err := c.reply.Result()
	if err != nil {
		return err
	}
	return answer(reply, c.deliveries, batch, results, refusal)
}

// What the script says of a delivery that it did not publish, unless it is an error's text.
const (
	copyRefused = 0
	heldBack    = 1
)

// answer reads the script's reply, see script.lua, about the given deliveries of batch. An error means that the reply
// makes no sense, and that results are not to be relied on.
func answer(
	reply any, deliveries []int, batch []outbox.Delivery, results []outbox.Result, refusal Refusal,
) error {
	list, ok := reply.([]any)
	if !ok || len(list)%2 != 1 || list[0] != int64(len(deliveries)) {
		return errUnknownReply
	}
	last := int64(0)
	for e := 1; e < len(list); e += 2 {
		n, ok := list[e].(int64)
		if !ok || n <= last || n > int64(len(deliveries)) {
			return errUnknownReply
		}
		last = n
		i := deliveries[n-1]
		switch what := list[e+1].(type) {
		case string:
			results[i].Err = refusal(batch[i].Destination, what)
		case int64:
			switch what {
			case copyRefused:
				results[i].Duplicate = true
			case heldBack:
				results[i].Err = outbox.ErrNotAttempted
			default:
				return errUnknownReply
			}
		default:
			return errUnknownReply
		}
	}
	return nil
}

var errUnknownReply = errors.New("the reply is not what the script answers")

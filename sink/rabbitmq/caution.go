package rabbitmq

import "sync"

// rememberedAddresses bounds what caution remembers: past it, it begins anew.
const rememberedAddresses = 1000

// caution knows what must go alone, because it may close the channel and take along whatever else
// is in flight there. It outlives connections: what closed a channel does so on the next one.
type caution struct {
	mu      sync.Mutex
	alone   map[address]bool // each closed a channel on which it was alone
	suspect map[string]int   // exchanges with something that closed a channel: how many messages still go one by one
}

// wants tells whether a message to the address must go alone.
func (c *caution) wants(a address) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.alone[a] || c.suspect[a.exchange] > 0
}

// suspectExchange is called when a channel was closed and it is not known by which of several
// messages.
func (c *caution) suspectExchange(exchange string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.suspect == nil {
		c.suspect = map[string]int{}
	}
	c.suspect[exchange] = maxInFlight
}

// found is called when a message that was alone has closed its channel.
func (c *caution) found(a address) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.alone == nil || len(c.alone) == rememberedAddresses {
		c.alone = map[address]bool{}
	}
	c.alone[a] = true
	delete(c.suspect, a.exchange)
}

// harmless is called when a message that went alone has left its channel open.
func (c *caution) harmless(a address) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.alone, a)
	switch left := c.suspect[a.exchange]; {
	case left > 1:
		c.suspect[a.exchange] = left - 1
	case left == 1:
		delete(c.suspect, a.exchange)
	}
}

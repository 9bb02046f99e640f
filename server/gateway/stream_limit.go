package gateway

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/server/stream"
)

// connections are the open streams of the process.
type connections struct {
	cfg StreamConfig

	mu       sync.Mutex
	open     map[*connection]struct{}
	tenants  map[string]int
	runs     map[uuid.UUID]int
	topics   map[string]map[string]int // of each tenant: how many streams follow each
	followed int                       // topics of all tenants
	draining bool
	empty    chan struct{} // closed when draining and the last one has gone
	emptied  func()        // closes it; while draining more may come and go
}

func newConnections(cfg StreamConfig) *connections {
	empty := make(chan struct{})
	return &connections{
		cfg: cfg, open: map[*connection]struct{}{}, tenants: map[string]int{}, runs: map[uuid.UUID]int{},
		topics: map[string]map[string]int{},
		empty:  empty, emptied: sync.OnceFunc(func() { close(empty) }),
	}
}

// admit counts a connection, or says which limit it would pass.
func (c *connections) admit(conn *connection, tenant string, sources []stream.Start) (refused string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) >= c.cfg.MaxConnections {
		return fmt.Sprintf("this server has %d streams open, which is its limit", len(c.open))
	}
	if n := c.tenants[tenant]; n >= c.cfg.MaxPerTenant {
		return fmt.Sprintf("%d streams are open, which is the limit", n)
	}
	for _, s := range sources {
		if n := c.runs[s.Run]; s.Run != uuid.Nil && n >= c.cfg.MaxPerRun {
			return fmt.Sprintf("run %s has %d streams open, which is the limit", s.Run, n)
		}
	}
	if refused := c.refuseTopics(tenant, sources); refused != "" {
		return refused
	}
	c.open[conn] = struct{}{}
	c.tenants[tenant]++
	for _, s := range sources {
		if s.Run != uuid.Nil {
			c.runs[s.Run]++
			continue
		}
		if c.topics[tenant] == nil {
			c.topics[tenant] = map[string]int{}
		}
		if c.topics[tenant][s.Topic]++; c.topics[tenant][s.Topic] == 1 {
			c.followed++
		}
	}
	if c.draining {
		conn.end()
	}
	return ""
}

// refuseTopics counts the topics of sources that nobody of the tenant follows yet. mu is held.
func (c *connections) refuseTopics(tenant string, sources []stream.Start) (refused string) {
	followed := c.topics[tenant]
	added := 0
	for _, s := range sources { // each is there once
		if s.Run == uuid.Nil && followed[s.Topic] == 0 {
			added++
		}
	}
	switch {
	case added == 0:
		return ""
	case len(followed)+added > c.cfg.MaxTopicsPerTenant:
		return fmt.Sprintf("%d different topics are followed, and %d more would pass the limit of %d",
			len(followed), added, c.cfg.MaxTopicsPerTenant)
	case c.followed+added > c.cfg.MaxTopicsFollowed:
		return fmt.Sprintf("this server follows %d different topics, and %d more would pass its limit of %d",
			c.followed, added, c.cfg.MaxTopicsFollowed)
	}
	return ""
}

func (c *connections) gone(conn *connection, tenant string, sources []stream.Start) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
	if c.tenants[tenant]--; c.tenants[tenant] == 0 {
		delete(c.tenants, tenant)
	}
	for _, s := range sources {
		if s.Run == uuid.Nil {
			if c.topics[tenant][s.Topic]--; c.topics[tenant][s.Topic] == 0 {
				delete(c.topics[tenant], s.Topic)
				c.followed--
			}
			continue
		}
		if c.runs[s.Run]--; c.runs[s.Run] == 0 {
			delete(c.runs, s.Run)
		}
	}
	if len(c.topics[tenant]) == 0 {
		delete(c.topics, tenant)
	}
	if c.draining && len(c.open) == 0 {
		c.emptied()
	}
}

func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// drain ends all connections at moments spread over the window and waits until they have gone, or
// ctx ends.
func (c *connections) drain(ctx context.Context) {
	c.mu.Lock()
	if c.draining {
		c.mu.Unlock()
		return
	}
	c.draining = true
	if len(c.open) == 0 {
		c.emptied()
	}
	window := c.cfg.drainWindow(len(c.open))
	for conn := range c.open {
		time.AfterFunc(rand.N(window), conn.end)
	}
	c.mu.Unlock()
	select {
	case <-c.empty:
	case <-ctx.Done():
	}
}

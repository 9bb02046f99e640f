package crawl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Crawler is a way to crawl an application: a graph of nodes that a Worker visits one after the
// other.
type Crawler struct {
	Name  string // that runs name, for instance "demo"
	First string // node with which a run begins
	Nodes map[string]Node
}

// Node is one kind of step. Any number of runs are at it at the same time.
//
// Visit does the step, and must return when ctx ends. Then the run was cancelled, the worker is
// stopping or has lost the run, or the time for a node is over. It is begun again if its worker
// dies, so what it does to the world should bear repeating. state is what the visit before
// returned, nil at first. An error or a panic fails the run.
type Node interface {
	Visit(ctx context.Context, run Run, state json.RawMessage) (Result, error)
}

// NodeFunc is a function as a Node.
type NodeFunc func(ctx context.Context, run Run, state json.RawMessage) (Result, error)

// Visit calls f.
func (f NodeFunc) Visit(ctx context.Context, run Run, state json.RawMessage) (Result, error) {
	return f(ctx, run, state)
}

// Result is what a visit came to. All of it is committed together, or nothing is.
type Result struct {
	Events []NewEvent      // under the rules of Service.Append
	Next   string          // node to visit then; "": the run is complete
	State  json.RawMessage // for the next visit; nil: none
}

// nodeNames returns the crawler's nodes in order, for messages.
func (c *Crawler) nodeNames() string { return strings.Join(slices.Sorted(maps.Keys(c.Nodes)), ", ") }

func (c *Crawler) check() error {
	if err := checkText("Name", c.Name, MaxCrawler, true); err != nil {
		return err
	}
	if c.Name == External {
		return fmt.Errorf("Name is %s, which says that no worker crawls", External)
	}
	if c.Nodes[c.First] == nil {
		return fmt.Errorf("First is %q, which is none of its nodes (%s)", c.First, c.nodeNames())
	}
	for name, node := range c.Nodes {
		if node == nil || name == "" {
			return fmt.Errorf("Nodes[%q] needs a name and a node", name)
		}
	}
	return nil
}

// find returns a node, or an error that says which there are.
func (c *Crawler) find(name string) (Node, error) {
	if node := c.Nodes[name]; node != nil {
		return node, nil
	}
	return nil, fmt.Errorf("there is no node %.100q in crawler %s, which has %s", name, c.Name, c.nodeNames())
}

// crawlersByName checks crawlers and reports every problem.
func crawlersByName(crawlers []Crawler) (map[string]Crawler, error) {
	byName := make(map[string]Crawler, len(crawlers))
	var problems []error
	if len(crawlers) == 0 {
		problems = append(problems, errors.New("there is no crawler"))
	}
	for i, c := range crawlers {
		if err := c.check(); err != nil {
			problems = append(problems, fmt.Errorf("crawlers[%d] (%s): %w", i, c.Name, err))
		} else if _, twice := byName[c.Name]; twice {
			problems = append(problems, fmt.Errorf("crawlers[%d] (%s): there is another of that name", i, c.Name))
		}
		byName[c.Name] = c
	}
	return byName, errors.Join(problems...)
}

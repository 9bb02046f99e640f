package store

import (
	"testing"

	"github.com/outboxrelay/outbox/server/crawl"
)

// What a page is bounded by is known after it has been read: after large events fewer are asked
// for, and after small ones soon more again.
func TestPageSize(t *testing.T) {
	t.Parallel()
	var p pageSize
	if asked := p.ask(crawl.PageBytes); asked < 1000 {
		t.Errorf("at first %d are asked for", asked)
	}
	p.saw(300 << 10)
	if asked := p.ask(crawl.PageBytes); asked != 6 {
		t.Errorf("after events of 300 KB %d are asked for at once", asked)
	}
	for range 12 {
		p.saw(100)
	}
	if asked := p.ask(crawl.PageBytes); asked < 1000 {
		t.Errorf("after small ones %d are asked for", asked)
	}
	if asked := p.ask(0); asked != 1 {
		t.Errorf("without room %d are asked for", asked)
	}
}

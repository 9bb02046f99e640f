package crawl

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

// The reply to A's result is lost, and the worker is told to stop before it can ask again. The
// result was committed: who goes on must not begin A again.
func TestStopInDoubtKeepsProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		run := m.has(t, "chain")
		var visits atomic.Int32
		crawler := chain(takes(time.Second, &visits), quick)
		lost := make(chan struct{})
		stop := start(t, &doubtful{memory: m, lost: sync.OnceFunc(func() { close(lost) })}, WorkerConfig{}, crawler)
		<-lost
		stop()
		if r := m.get(run); r.at.Node != "B" || r.at.Steps != 1 || !r.expires.IsZero() {
			t.Errorf("after the stop: %+v, leased until %s", r.at, r.expires)
		}
		start(t, m, WorkerConfig{}, crawler)
		pass(time.Second)
		want := `RUN_STARTED NODE_START{"node":"A","step":1} PROCESSING NODE_COMPLETE{"node":"A","step":1} ` +
			`NODE_START{"node":"B","step":2} NODE_COMPLETE{"node":"B","step":2} RUN_COMPLETED{"reason":"finished"}`
		if got := m.history(run.ID); got != want || visits.Load() != 1 {
			t.Errorf("%d visits of A\ngot  %s\nwant %s", visits.Load(), got, want)
		}
	})
}

// doubtful makes the first node's change and loses the reply.
type doubtful struct {
	*memory
	lost func()
}

func (d *doubtful) Change(ctx context.Context, tenant string, run uuid.UUID, c Change) (Changed, error) {
	changed, err := d.memory.Change(ctx, tenant, run, c)
	if err == nil && c.Progress.Steps == 1 {
		d.lost()
		return Changed{}, errors.New("unexpected EOF")
	}
	return changed, err
}

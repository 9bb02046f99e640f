package tracetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/outboxtest"
)

// asked is what one of three processes asks about a lane, and told what it is told.
type (
	asked struct {
		owner int
		lane  int16
		gives bool  // it gives the lane up, which it has at
		epoch int64 // this epoch
	}
	told struct {
		holds bool
		epoch int64
	}
	held struct {
		owner int
		epoch int64
		free  bool // nobody's; owner gave it up last, or has it still, where its row was locked
	}
)

// lane is a lane's lease as one place that each call reads and writes at one moment. No lease
// lapses here.
var lane = porcupine.Model{
	Partition: func(history []porcupine.Operation) (lanes [][]porcupine.Operation) {
		by := map[int16][]porcupine.Operation{}
		for _, o := range history {
			by[o.Input.(asked).lane] = append(by[o.Input.(asked).lane], o)
		}
		for _, of := range by {
			lanes = append(lanes, of)
		}
		return lanes
	},
	Init: func() any { return held{owner: -1, free: true} },
	Step: func(state, input, output any) (bool, any) {
		is, in, out := state.(held), input.(asked), output.(told)
		last := is.owner == in.owner
		switch {
		case in.gives:
			is.free = is.free || last && is.epoch == in.epoch
			return true, is
		case !out.holds:
			return is.free || !last, is
		case last && out.epoch == is.epoch:
			is.free = false
			return true, is
		}
		return is.free && out.epoch == is.epoch+1, held{owner: in.owner, epoch: out.epoch}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
}

// Leases has three processes take lanes and give them up, all at once, and fails unless some order
// of their calls explains what each was told.
func Leases(t *testing.T, open func(t *testing.T) outboxtest.StoreHarness) {
	h := open(t)
	const rounds = 60
	var mu sync.Mutex
	var history []porcupine.Operation
	moved := map[int64]bool{}
	note := func(owner int, began, ended int64, in asked, out told) {
		in.owner = owner
		history = append(history, porcupine.Operation{ClientId: owner, Input: in, Call: began, Output: out, Return: ended})
	}
	start := time.Now()
	var processes sync.WaitGroup
	for owner := range 3 {
		store, id := h.Table(t, outbox.OutboxEvents()), uuid.New()
		processes.Go(func() {
			for round := range rounds {
				began := time.Since(start).Nanoseconds()
				leased, err := store.Lease(t.Context(), outbox.LeaseRequest{Owner: id, Name: fmt.Sprint(owner), TTL: time.Hour})
				ended := time.Since(start).Nanoseconds()
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				got := map[int16]told{}
				for _, l := range leased.Lanes {
					got[l.Number] = told{true, l.Epoch}
					moved[l.Epoch] = true
				}
				for n := range int16(outbox.LaneCount) {
					note(owner, began, ended, asked{lane: n}, got[n])
				}
				mu.Unlock()
				if round%3 != owner || len(leased.Lanes) == 0 {
					continue
				}
				gives := leased.Lanes[:1+len(leased.Lanes)/2]
				began = time.Since(start).Nanoseconds()
				err = store.Release(t.Context(), id, gives)
				ended = time.Since(start).Nanoseconds()
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, l := range gives {
					note(owner, began, ended, asked{lane: l.Number, gives: true, epoch: l.Epoch}, told{})
				}
				mu.Unlock()
			}
		})
	}
	processes.Wait()
	if len(moved) < 5 {
		t.Errorf("lanes changed hands %d times at most, too few to say anything", len(moved))
	}
	if result := porcupine.CheckOperationsTimeout(lane, history, time.Minute); result != porcupine.Ok {
		t.Errorf("no order of the calls explains what the processes were told of %d leases: %s", len(history), result)
	}
}

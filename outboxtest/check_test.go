package outboxtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// counts is a Report without its sentences.
type counts struct{ lost, invented, duplicated, outOfOrder, stale int }

func countsOf(r Report) counts {
	return counts{r.Lost.Count, r.Invented.Count, r.Duplicated.Count, r.OutOfOrder.Count, r.Stale.Count}
}

func TestCheckFindsEachViolation(t *testing.T) {
	t.Parallel()
	start := time.Now()
	wrote := func(id string, order int64, outcome Outcome, destinations ...string) Written {
		return Written{ID: id, Key: "k", Order: order, Outcome: outcome, Destinations: destinations, At: start}
	}
	got := func(id string) Received { return Received{ID: id, At: start.Add(time.Second)} }
	gotAt := func(id, destination string) Received { return Received{ID: id, Destination: destination} }
	for name, c := range map[string]struct {
		History
		want counts
		says string
	}{
		"clean": {History{Written: []Written{wrote("a", 1, Acknowledged), wrote("b", 2, Acknowledged)},
			Received: []Received{got("a"), got("b")}}, counts{}, ""},
		"unknown, arrived": {History{Written: []Written{wrote("a", 1, Unknown)}, Received: []Received{got("a")}},
			counts{}, ""},
		"unknown, not":     {History{Written: []Written{wrote("a", 1, Unknown)}}, counts{}, ""},
		"rolled back, not": {History{Written: []Written{wrote("a", 1, RolledBack)}}, counts{}, ""},
		"lost": {History{Written: []Written{wrote("a", 1, Acknowledged)}}, counts{lost: 1},
			`lost: event a, number 1 of key "k", was acknowledged and never arrived`},
		"rolled back": {History{Written: []Written{wrote("a", 1, RolledBack)}, Received: []Received{got("a")}},
			counts{invented: 1}, "invented: event a arrived (message 0, no destination named) and was rolled back"},
		"never written": {History{Received: []Received{got("a")}}, counts{invented: 1}, "and was never written"},
		"wrong key": {History{Written: []Written{wrote("a", 1, Unknown)},
			Received: []Received{{ID: "a", Key: "other"}}}, counts{invented: 1}, `under key "other", its key is "k"`},
		"twice": {History{Written: []Written{wrote("a", 1, Acknowledged)},
			Received: []Received{got("a"), got("a"), got("a")}}, counts{duplicated: 2},
			"duplicated: event a arrived again (message 1"},
		"unknown twice": {History{Written: []Written{wrote("a", 1, Unknown)},
			Received: []Received{got("a"), got("a")}}, counts{duplicated: 1}, ""},
		"two destinations": {History{Written: []Written{wrote("a", 1, Acknowledged)},
			Received: []Received{gotAt("a", "x"), gotAt("a", "y")}}, counts{duplicated: 1}, ""},
		"order": {History{Written: []Written{wrote("a", 1, Acknowledged), wrote("b", 2, Acknowledged)},
			Received: []Received{got("b"), got("a")}}, counts{outOfOrder: 1},
			`out of order: event a, number 1 of key "k", arrived (message 1, no destination named) after number 2`},
		"equal order": {History{Written: []Written{wrote("a", 1, Acknowledged), wrote("b", 1, Acknowledged)},
			Received: []Received{got("b"), got("a")}}, counts{}, ""},
		"stale": {History{Written: []Written{wrote("a", 1, Acknowledged)}, Received: []Received{got("a")},
			MaxAge: 999 * time.Millisecond}, counts{stale: 1},
			"stale: event a arrived (message 0, no destination named) 1s after it was acknowledged, the limit is 999ms"},
		"fresh": {History{Written: []Written{wrote("a", 1, Acknowledged)}, Received: []Received{got("a")},
			MaxAge: time.Second}, counts{}, ""},
		"repeated write": {History{Written: []Written{wrote("a", 1, Unknown), wrote("a", 1, Acknowledged),
			wrote("a", 1, RolledBack)}}, counts{lost: 1}, ""},
		"repeated, rolled": {History{Written: []Written{wrote("a", 1, RolledBack), wrote("a", 1, Unknown)},
			Received: []Received{got("a")}}, counts{}, ""},
		"each destination": {History{Written: []Written{wrote("a", 1, Acknowledged, "x", "y")},
			Received: []Received{gotAt("a", "x"), gotAt("a", "y")}}, counts{}, ""},
		"one destination lost": {History{Written: []Written{wrote("a", 1, Acknowledged, "x", "y")},
			Received: []Received{gotAt("a", "x")}}, counts{lost: 1}, "never arrived at y"},
		"destination twice": {History{Written: []Written{wrote("a", 1, Unknown, "x", "y")},
			Received: []Received{gotAt("a", "x"), gotAt("a", "x")}}, counts{duplicated: 1}, ""},
		"foreign destination": {History{Written: []Written{wrote("a", 1, Unknown, "x")},
			Received: []Received{gotAt("a", "z")}}, counts{invented: 1}, `at z, it was written for ["x"]`},
		"order at one place": {History{Written: []Written{wrote("a", 1, Acknowledged, "x", "y"),
			wrote("b", 2, Acknowledged, "x", "y")},
			Received: []Received{gotAt("a", "x"), gotAt("b", "x"), gotAt("b", "y"), gotAt("a", "y")}}, counts{outOfOrder: 1},
			"(message 3, at y)"},
		"dead": {History{Written: []Written{wrote("a", 1, Acknowledged)}, Dead: []DeadLetter{{ID: "a"}}}, counts{},
			""},
		"dead at one": {History{Written: []Written{wrote("a", 1, Acknowledged, "x", "y")},
			Received: []Received{gotAt("a", "x")}, Dead: []DeadLetter{{"a", "y"}}}, counts{}, ""},
		"dead at another": {History{Written: []Written{wrote("a", 1, Acknowledged, "x", "y")},
			Received: []Received{gotAt("a", "y")}, Dead: []DeadLetter{{"a", "y"}}}, counts{lost: 1}, "never arrived at x"},
		"replayed": {History{Written: []Written{wrote("a", 1, Acknowledged), wrote("b", 2, Acknowledged)},
			Received: []Received{got("b"), got("a")}, Dead: []DeadLetter{{ID: "a"}}}, counts{}, ""},
		"dead, invented": {History{Dead: []DeadLetter{{ID: "a"}}}, counts{invented: 1},
			"is a dead letter and was never written"},
		"dead, rolled": {History{Written: []Written{wrote("a", 1, RolledBack)}, Dead: []DeadLetter{{ID: "a"}}},
			counts{invented: 1}, "is a dead letter and was rolled back"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := Check(c.History)
			if got := countsOf(report); got != c.want {
				t.Errorf("found %+v, want %+v", got, c.want)
			}
			err := report.Err()
			if (err == nil) != (c.want == counts{}) {
				t.Fatalf("Err() = %v", err)
			}
			if err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("it says\n%v\nwant %s", err, c.says)
			}
		})
	}
}

func TestReportNamesTheFirstFew(t *testing.T) {
	t.Parallel()
	var h History
	for i := range 100 {
		h.Written = append(h.Written, Written{ID: fmt.Sprint(i)})
	}
	report := Check(h)
	if want := "acknowledged 100  rolled back 0  unknown 0  received 0  dead 0  lost 100  invented 0  duplicated 0  out " +
		"of order 0"; report.String() != want {
		t.Errorf("String() = %q\nwant       %q", report, want)
	}
	if got := strings.Count(report.Err().Error(), "\n"); got != maxExamples+1 ||
		!strings.HasSuffix(report.Err().Error(), "lost: 95 more") {
		t.Errorf("Err() has %d lines after the first:\n%v", got, report.Err())
	}
}

// FuzzCheck: a random clean history passes, and any single change to it is found for what it is.
func FuzzCheck(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, seed*7)
	}
	f.Fuzz(func(t *testing.T, a, b uint64) {
		rng := rand.New(rand.NewPCG(a, b))
		if report := Check(cleanHistory(rng)); report.Err() != nil {
			t.Fatalf("a clean history: %v", report.Err())
		}
		for name, change := range mutations {
			h := cleanHistory(rng)
			if want, ok := change(rng, &h); ok && countsOf(Check(h)) != want {
				t.Errorf("%s: found %+v, want %+v", name, countsOf(Check(h)), want)
			}
		}
	})
}

// cleanHistory has keys that advance independently, some events without a key, each outcome, one to
// three destinations, dead letters.
func cleanHistory(rng *rand.Rand) History {
	h := History{MaxAge: time.Minute}
	now := time.Unix(0, 0)
	waiting := map[string][]Received{} // by key: messages to come, in order
	for n := range 1 + rng.IntN(60) {
		w := Written{ID: fmt.Sprint("e", n), Order: int64(n), Outcome: Outcome(rng.IntN(3)), At: now}
		if k := rng.IntN(6); k > 0 {
			w.Key = fmt.Sprint("k", k)
		}
		for d := range rng.IntN(4) {
			w.Destinations = append(w.Destinations, fmt.Sprint("d", d))
		}
		h.Written = append(h.Written, w)
		if w.Outcome == RolledBack || w.Outcome == Unknown && rng.IntN(2) == 0 {
			continue
		}
		destinations := w.Destinations
		if len(destinations) == 0 {
			destinations = []string{"d0"}
		}
		for _, d := range destinations {
			if rng.IntN(10) == 0 {
				h.Dead = append(h.Dead, DeadLetter{w.ID, d})
				continue
			}
			waiting[w.Key] = append(waiting[w.Key], Received{ID: w.ID, Key: w.Key, Destination: d, At: now.Add(time.Second)})
		}
	}
	for len(waiting) > 0 {
		keys := make([]string, 0, len(waiting))
		for k := range waiting {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		k := keys[rng.IntN(len(keys))]
		h.Received = append(h.Received, waiting[k][0])
		if waiting[k] = waiting[k][1:]; len(waiting[k]) == 0 {
			delete(waiting, k)
		}
	}
	return h
}

// mutations change one thing and say what must be found; ok is false where a history has nothing to
// change.
var mutations = map[string]func(*rand.Rand, *History) (want counts, ok bool){
	"drop an acknowledged message": func(rng *rand.Rand, h *History) (counts, bool) {
		i, ok := pick(rng, h, Acknowledged)
		if ok {
			h.Received = slices.Delete(h.Received, i, i+1)
		}
		return counts{lost: 1}, ok
	},
	"repeat a message": func(rng *rand.Rand, h *History) (counts, bool) {
		if len(h.Received) == 0 {
			return counts{}, false
		}
		r := h.Received[rng.IntN(len(h.Received))]
		h.Received = append(h.Received, r)
		return counts{duplicated: 1}, true
	},
	"swap two neighbours of a key": func(_ *rand.Rand, h *History) (counts, bool) {
		last := map[lane]int{}
		for i, r := range h.Received {
			if r.Key == "" {
				continue
			}
			if j, ok := last[lane{r.Key, r.Destination}]; ok {
				h.Received[i], h.Received[j] = h.Received[j], h.Received[i]
				return counts{outOfOrder: 1}, true
			}
			last[lane{r.Key, r.Destination}] = i
		}
		return counts{}, false
	},
	"invent an event": func(_ *rand.Rand, h *History) (counts, bool) {
		h.Received = append(h.Received, Received{ID: "nobody's"})
		return counts{invented: 1}, true
	},
	"roll an arrived event back": func(rng *rand.Rand, h *History) (counts, bool) {
		i, ok := pick(rng, h, Acknowledged)
		if !ok {
			return counts{}, false
		}
		var want counts
		for j := range h.Written {
			if h.Written[j].ID == h.Received[i].ID {
				h.Written[j].Outcome = RolledBack
			}
		}
		for _, r := range h.Received {
			if r.ID == h.Received[i].ID {
				want.invented++
			}
		}
		for _, d := range h.Dead {
			if d.ID == h.Received[i].ID {
				want.invented++
			}
		}
		return want, true
	},
	"deliver late": func(rng *rand.Rand, h *History) (counts, bool) {
		i, ok := pick(rng, h, Acknowledged)
		if ok {
			h.Received[i].At = h.Received[i].At.Add(time.Hour)
		}
		return counts{stale: 1}, ok
	},
}

// pick returns a random message of an event with that outcome.
func pick(rng *rand.Rand, h *History, outcome Outcome) (int, bool) {
	has := map[string]bool{}
	for _, w := range h.Written {
		has[w.ID] = w.Outcome == outcome
	}
	var at []int
	for i, r := range h.Received {
		if has[r.ID] {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return 0, false
	}
	return at[rng.IntN(len(at))], true
}

func BenchmarkCheckMillion(b *testing.B) {
	const events, keys = 1_000_000, 10_000
	h := History{Written: make([]Written, events), Received: make([]Received, events)}
	for i := range events {
		id, key := fmt.Sprintf("%08d-0000-7000-8000-%012d", i, i), fmt.Sprint(i%keys)
		h.Written[i] = Written{ID: id, Key: key, Order: int64(i)}
		h.Received[i] = Received{ID: id, Key: key, Destination: "orders"}
	}
	for b.Loop() {
		if err := Check(h).Err(); err != nil {
			b.Fatal(err)
		}
	}
}

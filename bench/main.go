// Command bench measures the outbox beside the limit of the machine it runs on, on private servers with PostgreSQL's
// default durability. What it prints is ratios within one run: absolute figures drift with the machine.
//
//	go run . all        everything below but seeds and report
//	go run . peers      drain, latency and producer: beside the peers, and beside the least statements
//	go run . report     writes the tables and plots of docs/benchmarks.md from what is kept in results
//	go run . drain      a backlog to a subscribed Redis
//	go run . flat       the same with a large backlog, and with many delivered rows in the table
//	go run . sinks      each sink beside its own client and the table's limit; a slow endpoint; one of five sinks stopped
//	go run . load       20,000 events a second, ten a transaction, beside a relay and without one
//	go run . idle       what a relay of three tables, and of a log, costs while nothing happens
//	go run . batch      how the size of a batch matters
//	go run . latency    commit to subscriber at 1000 events a second over 50 keys
//	go run . producer   what writing an event costs a business transaction, at equal round trips
//	go run . scale      two relays beside one
//	go run . failing    what keys that cannot be delivered cost the others
//	go run . held       what one row that cannot be settled (locked, refused by a trigger or a policy) costs the others
//	go run . takeover   how long the keys of a relay stand still that was killed, or stopped
//	go run . fairness   what one tenant's flood costs another tenant's trickle
//	go run . stream     commit to browser, one stalled reader among 200, replay, idle connections, cancelling
//	go run . sqlite     the embedded store: a backlog to the memory sink, and what an event costs its producer
//	go run . waits      how long a producer waits for the write lock of an SQLite file beside 1, 2, 4 and 8 relays
//	go run . indexes    ADR-004's queries beside those on its own table, and what its indexes cost beside the lean ones
//	go run . fanout     an event to 2 and 5 sinks, with a row for what is not taken and with a row per delivery
//	go run . inbox      what remembering an id costs a consumer, beside many remembered ids, and the end of a window
//	go run . seeds      the queries of FR-006 and FR-007 beside the seeds' own limits
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	work := run
	if kind := os.Getenv(childVariable); kind != "" {
		work = func(ctx context.Context) error { return runChild(ctx, kind) }
	}
	if err := work(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	rows, backlog, delivered, rounds, seconds int
	writing                                   time.Duration
	out, comments, only                       string
}

// measuring is a bench.
type measuring func(context.Context, *servers, options) error

func run(ctx context.Context) error {
	var o options
	flag.IntVar(&o.rows, "rows", 100_000, "rows of a backlog")
	flag.IntVar(&o.backlog, "backlog", 1_000_000, "rows of the large backlog (flat, fairness)")
	flag.IntVar(&o.delivered, "delivered", 5_000_000, "delivered rows in the table (flat)")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds of each measurement; the median is printed")
	flag.IntVar(&o.seconds, "seconds", 60, "length of a line's latency runs, of all rounds together")
	flag.DurationVar(&o.writing, "writing", 4*time.Second, "length of each producer's round")
	flag.StringVar(&o.out, "out", "", "folder for the results as JSON; without one they are only printed")
	flag.StringVar(&o.comments, "comments", "", "what readers of the results should know: that the machine was busy")
	flag.StringVar(&o.only, "only", "", "drain, latency and producer: only lines whose name has this in it")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: bench [flags] all|peers|report|drain|sinks|flat|load|idle|batch|"+
			"latency|producer|scale|failing|held|takeover|fairness|stream|sqlite|waits|indexes|fanout|inbox|seeds")
		flag.PrintDefaults()
	}
	flag.Parse()
	type bench struct {
		name string
		run  measuring
	}
	peers := []bench{{"drain", drain}, {"latency", latency}, {"producer", producer}}
	others := []bench{
		{"sinks", sinks}, {"flat", flat}, {"load", load}, {"idle", idle}, {"batch", batches}, {"scale", scale}, {"failing", failing}, {"held", held},
		{"takeover", takeover}, {"fairness", fairness}, {"stream", streams}, {"sqlite", embedded}, {"waits", waits},
		{"indexes", indexes}, {"fanout", fanout}, {"inbox", remembers}, {"seeds", seeds},
	}
	for i, b := range others {
		others[i].run = printing(b.name, b.run)
	}
	benches := slices.Concat(peers, others)
	which := flag.Arg(0)
	switch which {
	case "report":
		return report()
	case "all":
		benches = benches[:len(benches)-1]
	case "peers":
		benches = peers
	default:
		benches = slices.DeleteFunc(benches, func(b bench) bool { return b.name != which })
	}
	if len(benches) == 0 {
		flag.Usage()
		os.Exit(2)
	}
	s, err := startServers(ctx)
	if err != nil {
		return err
	}
	defer s.stop()
	fmt.Printf("%d CPUs, %s, PostgreSQL %s (default durability), Redis %s\n", runtime.NumCPU(), runtime.Version(),
		s.postgresVersion, s.redisVersion)
	for _, b := range benches {
		fmt.Printf("\n== %s\n", b.name)
		if err := b.run(ctx, s, o); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
	}
	return nil
}

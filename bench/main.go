// Command bench measures the outbox beside the limit of the machine it runs on, on private servers with PostgreSQL's
// default durability. What it prints is ratios within one run: absolute figures drift with the machine.
//
//	go run . all        everything below but seeds
//	go run . drain      a backlog to a subscribed Redis, beside bare loops of the same and of the least statements
//	go run . flat       the same with a large backlog, and with many delivered rows in the table
//	go run . sinks      each sink beside its own client and the table's limit; a slow endpoint; one of five sinks stopped
//	go run . batch      how the size of a batch matters
//	go run . latency    commit to subscriber at 1000 events a second over 50 runs
//	go run . producer   what writing an event costs a business transaction
//	go run . scale      two relays beside one
//	go run . failing    what keys that cannot be delivered cost the others
//	go run . held       what one row that cannot be settled (locked, refused by a trigger or a policy) costs the others
//	go run . takeover   how long the keys of a relay stand still that was killed, or stopped
//	go run . fairness   what one tenant's flood costs another tenant's trickle
//	go run . stream     commit to browser, one stalled reader among 200, replay, idle connections, cancelling
//	go run . sqlite     the embedded store: a backlog to the memory sink beside the least statements, and what an event costs its producer
//	go run . waits      how long a producer waits for the write lock of an SQLite file beside 1, 2, 4 and 8 relays
//	go run . indexes    ADR-004's queries beside those on its own table, and what its indexes cost beside the lean ones
//	go run . fanout     an event to 2 and 5 sinks: rows, WAL and processor time of a row for what is not taken, and of a row per delivery
//	go run . seeds      the queries of FR-006 and FR-007 beside the seeds' own limits
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

func main() {
	if kind := os.Getenv(brokerVariable); kind != "" {
		if err := serveBroker(kind); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	rows, backlog, delivered, rounds, seconds int
}

func run(ctx context.Context) error {
	var o options
	flag.IntVar(&o.rows, "rows", 100_000, "rows of a backlog")
	flag.IntVar(&o.backlog, "backlog", 1_000_000, "rows of the large backlog (flat, fairness)")
	flag.IntVar(&o.delivered, "delivered", 5_000_000, "delivered rows in the table (flat)")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds of each measurement; the median is printed")
	flag.IntVar(&o.seconds, "seconds", 60, "length of the latency run")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(),
			"usage: bench [flags] "+
				"all|drain|sinks|flat|batch|latency|producer|scale|failing|held|takeover|fairness|stream|sqlite|waits|indexes|fanout|seeds")
		flag.PrintDefaults()
	}
	flag.Parse()
	type bench struct {
		name string
		run  func(context.Context, *servers, options) error
	}
	benches := []bench{{"drain", drain}, {"sinks", sinks}, {"latency", latency}, {"producer", producer}, {"flat", flat}, {"batch", batches},
		{"scale", scale}, {"failing", failing}, {"held", held}, {"takeover", takeover}, {"fairness", fairness},
		{"stream", streams}, {"sqlite", embedded}, {"waits", waits}, {"indexes", indexes}, {"fanout", fanout},
		{"seeds", seeds}}
	which := flag.Arg(0)
	if which == "all" {
		benches = benches[:len(benches)-1]
	} else {
		for _, b := range benches {
			if b.name == which {
				benches = []bench{b}
			}
		}
	}
	if len(benches) != 1 && which != "all" {
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

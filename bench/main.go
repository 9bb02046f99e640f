// Command bench measures the outbox beside the limit of the machine it runs on, on private servers
// with PostgreSQL's default durability. What it prints is ratios within one run: absolute figures
// drift with the machine.
//
//	go run . all        everything below but seeds and report
//	go run . peers      drain, latency and producer: beside the peers, and beside the least statements
//	go run . report     writes the tables and plots of docs/benchmarks.md from what is kept in results
//	go run . drain      a backlog to a subscribed Redis
//	go run . flat       the same with a large backlog, and with many delivered rows in the table
//	go run . sinks      each sink beside its own client and the table's limit; a slow endpoint; one of five sinks stopped
//	go run . idle       what a relay of three tables, and of a log, costs while nothing happens
//	go run . latency    commit to subscriber at 1000 events a second over 50 keys
//	go run . producer   what writing an event costs a business transaction, at equal round trips
//	go run . inbox      what remembering an id costs a consumer, beside many remembered ids, and the end of a window; how
//	                    fast a group handles a backlog
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
		fmt.Fprintln(flag.CommandLine.Output(),
			"usage: bench [flags] all|peers|report|drain|latency|producer|sinks|flat|idle|inbox")
		flag.PrintDefaults()
	}
	flag.Parse()
	type bench struct {
		name string
		run  func(context.Context, *servers, options, *figures) error
	}
	benches := []bench{{"drain", drain}, {"latency", latency}, {"producer", producer},
		{"sinks", sinks}, {"flat", flat}, {"idle", idle}, {"inbox", remembers}}
	switch which := flag.Arg(0); which {
	case "report":
		return report()
	case "all":
	case "peers":
		benches = benches[:3]
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
		found := newFigures(b.name, s, o)
		if err := b.run(ctx, s, o, found); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		if err := found.done(os.Stdout, o); err != nil {
			return err
		}
	}
	return nil
}

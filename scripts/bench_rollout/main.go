// Command bench_rollout drives the rollout path without a model: the client of vLLM, [rollout.Sampler] and the store
// against a server that answers after a fixed time. scripts/bench_rollout.sh and scripts/soak.sh run it.
//
//	bench_rollout workload MODEL FILE         writes the workload in the tokens of a model
//	bench_rollout serve    [flags] FILE       serves it until its standard input ends
//	bench_rollout run      [flags] FILE URL   keeps trajectories running and prints one JSON line
//	bench_rollout soak     [flags] FILE       rolls out against a faulty server and prints a table
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench_rollout: "+err.Error())
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	commands := map[string]func(context.Context, []string) error{"workload": write, "serve": serve, "run": measure, "soak": soak}
	if len(args) == 0 || commands[args[0]] == nil {
		return errors.New("name a command: workload, serve, run or soak")
	}
	return commands[args[0]](ctx, args[1:])
}

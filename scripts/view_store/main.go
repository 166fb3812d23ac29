// view_store makes a run folder of 100,000 trajectories and 10,000 steps, which was not trained, to try the page of `agentfly view` at that
// size: go run ./scripts/view_store FOLDER
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/agentfly/agentfly/view/viewtest"
)

func main() {
	steps := flag.Int("steps", 10000, "steps with metrics")
	only := flag.Int("sampled", 1250, "of these, those with 80 trajectories, the last ones")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "view_store: name the run folder to make")
		os.Exit(2)
	}
	size := viewtest.Size{Steps: *steps, Groups: 10, Each: 8, Only: *only, Seed: 1}
	if err := viewtest.Run(context.Background(), flag.Arg(0), size, &viewtest.Words{}); err != nil {
		fmt.Fprintln(os.Stderr, "view_store:", err)
		os.Exit(1)
	}
}

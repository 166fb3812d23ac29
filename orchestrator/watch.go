package orchestrator

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/orchestrator/job"
)

// Watch prints on out what a job waits for, and for whom, when nothing moved for quiet seconds (0: never), and at each signal of
// ask. The returned context is the one to run the job with; stop ends the watch.
func Watch(ctx context.Context, quiet float64, out io.Writer, ask <-chan os.Signal) (_ context.Context, stop func()) {
	board := watchdog.NewBoard()
	watch, cancel := context.WithCancel(context.WithoutCancel(ctx)) // what hangs after a signal is named too
	var joined sync.WaitGroup
	joined.Go(func() {
		board.Watch(watch, job.Seconds(quiet), ask, func(line string) { fmt.Fprintln(out, "agentfly: "+line) })
	})
	return board.On(ctx), func() {
		cancel()
		joined.Wait()
	}
}

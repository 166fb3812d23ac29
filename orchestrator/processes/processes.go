package processes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/orchestrator/job"
)

// A run of several processes. Rank 0 is the run: it samples, rewards, stores and saves; the others train their share of
// each step and have no folder, no engine and no data. They are started by torchrun, or by rank 0 itself on one machine.

// Group are the processes of a run as one of them sees it; the zero value is a process alone.
type Group struct {
	Config          cgo.GroupConfig
	Launched        bool           // by somebody else, as all the others are; not: this process starts them
	Group           *cgo.Group     // nil: alone, or not joined yet
	Neighbours      cgo.Neighbours // that compute each micro-batch with this process
	context, tensor int            // how many share its tokens, and its layers
	children        []*child
}

// Launch is what a process needs to start the other ranks itself.
type Launch struct {
	Ranks     int       // processes that train, which this one starts; torchrun's variables come before it. 0 and 1: one
	Arguments []string  // of the command line that starts this run
	ErrOut    io.Writer // of the processes; nil: standard error
}

// child is a rank that this process started.
type child struct {
	rank  int
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process is gone
}

// Of reads how many ranks a run has and which one this is: from torchrun's variables, or from the option.
func Of(j *job.Job, o Launch) (*Group, error) {
	config, launched, err := cgo.GroupFromEnv()
	if err != nil {
		return nil, job.InputError(fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "cgo: ")))
	}
	ok := launched
	if !ok && o.Ranks > 1 {
		config, ok = cgo.GroupConfig{World: o.Ranks, Address: "127.0.0.1", Serve: true}, true
		if config.Port, err = freePort(); err != nil {
			return nil, err
		}
	}
	if err := Together(j, max(config.World, 1)); err != nil {
		return nil, err
	}
	if !ok || config.World == 1 {
		return &Group{}, nil
	}
	config.Timeout = job.Seconds(j.Trainer.RankTimeout)
	config.Sharding = cgo.ShardingOf(j.Trainer.Shard)
	if devices := cgo.CUDADevices(); devices > 0 && (j.Device == "auto" || j.Device == "cuda") {
		if n := max(config.LocalRank+1, o.Ranks); n > devices {
			return nil, job.InputError(fmt.Errorf("ranks: %d processes on a machine with %d CUDA devices; start at most one a device, or set device: cpu", n, devices))
		}
		j.Device = fmt.Sprintf("cuda:%d", config.LocalRank)
	}
	if config.Device = "cpu"; strings.HasPrefix(j.Device, "cuda") {
		config.Device = j.Device
	}
	return &Group{Config: config, Launched: launched, context: j.Trainer.ContextParallel, tensor: j.Trainer.TensorParallel}, nil
}

// PerBatch is how many processes compute each micro-batch of a job together.
func PerBatch(j *job.Job) int {
	return max(1, j.Trainer.ContextParallel) * max(1, j.Trainer.TensorParallel)
}

// Together tells whether so many processes can compute a job's micro-batches together as it says; nil: they can.
func Together(j *job.Job, ranks int) error {
	const advice = "it is %d, which does not divide the number of training processes, %d; give a multiple of it with --ranks"
	n := PerBatch(j)
	switch {
	case ranks%n == 0:
		return nil
	case j.Trainer.TensorParallel <= 1:
		return j.Fail("trainer.context_parallel", advice, n, ranks)
	case j.Trainer.ContextParallel <= 1:
		return j.Fail("trainer.tensor_parallel", advice, n, ranks)
	}
	return j.Fail("trainer.tensor_parallel", "times trainer.context_parallel "+advice, n, ranks)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("orchestrator: ranks: %w", err)
	}
	defer l.Close() // nobody connected
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Join starts the other ranks where that is this process's duty, and waits for all of them. It may be called again.
func (r *Group) Join(ctx context.Context, o Launch) (err error) {
	if r.Config.World < 2 || r.Group != nil {
		return nil
	}
	if !r.Launched {
		if err := r.start(o); err != nil {
			return err
		}
	}
	type joined struct {
		group      *cgo.Group
		neighbours cgo.Neighbours
		err        error
	}
	done := make(chan joined, 1)
	go func() { // not joined when a rank ends first, or the run is interrupted: the wait in C++ ends at its deadline, the process before it
		g, err := cgo.NewGroup(r.Config)
		if err != nil {
			done <- joined{err: err}
			return
		}
		n, err := cgo.NewNeighbours(r.Config, r.context, r.tensor)
		if err != nil {
			g.Fail(err.Error())
			err = errors.Join(err, g.Close())
			g = nil
		}
		done <- joined{g, n, err}
	}()
	early := make(chan *child, len(r.children))
	for _, c := range r.children {
		go func() { <-c.ended; early <- c }() // ends with the child, see leave
	}
	select {
	case d := <-done:
		r.Group, r.Neighbours = d.group, d.neighbours
		return d.err
	case c := <-early:
		return fmt.Errorf("orchestrator: ranks: rank %d ended before the run began: %s", c.rank, c.cmd.ProcessState)
	case <-ctx.Done():
		return fmt.Errorf("orchestrator: ranks: waiting for the others: %w", ctx.Err())
	}
}

// start runs this program again for each further rank.
func (r *Group) start(o Launch) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("orchestrator: ranks: %w", err)
	}
	if len(o.Arguments) == 0 {
		return errors.New("orchestrator: ranks: the command line that starts a rank is missing")
	}
	var errOut io.Writer = os.Stderr
	if file, ok := o.ErrOut.(*os.File); ok {
		errOut = file // theirs too: they can say who is gone when this process is
	} else if o.ErrOut != nil {
		errOut = &lockedWriter{w: o.ErrOut}
	}
	for rank := 1; rank < r.Config.World; rank++ {
		c := &child{rank: rank, cmd: exec.Command(program, o.Arguments...), ended: make(chan struct{})}
		c.cmd.Stderr = errOut
		c.cmd.WaitDelay = time.Second // what it left behind may hold its standard error
		c.cmd.Env = append(os.Environ(), "RANK="+strconv.Itoa(rank), "LOCAL_RANK="+strconv.Itoa(rank), "WORLD_SIZE="+strconv.Itoa(r.Config.World),
			"MASTER_ADDR="+r.Config.Address, "MASTER_PORT="+strconv.Itoa(r.Config.Port))
		if os.Getenv("OMP_NUM_THREADS") == "" {
			c.cmd.Env = append(c.cmd.Env, "OMP_NUM_THREADS="+strconv.Itoa(r.threads()))
		}
		if err := c.cmd.Start(); err != nil {
			return fmt.Errorf("orchestrator: ranks: rank %d cannot be started: %w", rank, err)
		}
		go func() { // joined by leave through ended
			defer close(c.ended)
			_ = c.cmd.Wait() // its state says more than the error
		}()
		r.children = append(r.children, c)
	}
	return nil
}

// threads is an equal share of the machine for each rank that this process started.
func (r *Group) threads() int { return max(1, runtime.NumCPU()/r.Config.World) }

// Limit leaves the other ranks their share of the machine's processors during an update.
func (r *Group) Limit(ctx context.Context, w *cgo.Worker) error {
	if len(r.children) == 0 || os.Getenv("OMP_NUM_THREADS") != "" {
		return nil
	}
	return w.Do(ctx, func() error { cgo.SetThreads(r.threads()); return nil })
}

// Fail tells the other ranks why this one ends. Where one of them did before, that stays.
func (r *Group) Fail(err error) {
	r.Neighbours.Fail(err.Error())
	if r.Group != nil {
		r.Group.Fail(err.Error())
	}
}

// Leave ends the group, and waits a little for the ranks that this process started before it ends them.
func (r *Group) Leave() error {
	var errs []error
	wait, cancel := context.WithTimeout(context.Background(), 3*time.Second) // of all of them together
	defer cancel()
	for _, c := range r.children {
		select {
		case <-c.ended:
		case <-wait.Done():
			_ = c.cmd.Process.Kill() // already gone: fine
			<-c.ended
			continue
		}
		if status := c.cmd.ProcessState; !status.Success() && r.Group != nil {
			errs = append(errs, fmt.Errorf("orchestrator: ranks: rank %d ended: %s", c.rank, status))
		}
	}
	r.children = nil
	errs = append(errs, r.Neighbours.Close())
	if r.Group != nil {
		errs = append(errs, r.Group.Close())
	}
	return errors.Join(errs...)
}

// lockedWriter lets several processes' copiers write to one writer.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

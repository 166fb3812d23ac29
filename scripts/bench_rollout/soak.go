package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/internal/retry"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// soaker rolls out slowly for a long time while servers fail and trajectories are cancelled at random.
type soaker struct {
	*workload
	rollout *rollout.Sampler
	engine  *vllm.Engine
	db      *store.Store
	out     io.Writer
	faults  float64
	abort   float64 // share of the trajectories that are cancelled on the way
	pause   time.Duration

	next, finished, aborted, failed atomic.Int64
	mu                              sync.Mutex
	first                           string // failure
	rows                            []row
}

// row is one line of the table.
type row struct {
	minute                      int
	rss, heap                   float64 // MiB
	goroutines, files           int
	finished, cancelled, failed int64
}

const soakServers = 2

// soak rolls out for some minutes, then says whether memory, goroutines and open files stayed as they were.
func soak(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	minutes := flags.Int("minutes", 60, "how long")
	dir := flags.String("dir", "", "folder of the store")
	live := flags.Int("n", 16, "live trajectories")
	s := &soaker{out: os.Stdout}
	flags.Float64Var(&s.faults, "faults", 0.05, "share of the completions that fail")
	flags.Float64Var(&s.abort, "aborts", 0.1, "share of the trajectories that are cancelled")
	flags.DurationVar(&s.pause, "pause", time.Second, "between two trajectories of a place")
	every := flags.Duration("every", time.Minute, "between two rows")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if s.workload, err = read(flags.Arg(0)); err != nil {
		return err
	}
	before := runtime.NumGoroutine()
	if err := s.soak(ctx, flags.Arg(0), *dir, *live, *minutes, *every); err != nil {
		return err
	}
	for patience := 100; runtime.NumGoroutine() > before; patience-- { // those of closed connections end by themselves
		if patience == 0 {
			return fmt.Errorf("%d goroutines are left at the end, %d were there at the beginning", runtime.NumGoroutine(), before)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return s.verdict()
}

func (s *soaker) soak(ctx context.Context, file, dir string, live, minutes int, every time.Duration) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var urls []string
	for range soakServers {
		url, stop, err := startServer(ctx, file, s.faults)
		if err != nil {
			return err
		}
		defer stop()
		urls = append(urls, url)
	}
	if s.rollout, _, err = s.workload.rollout(); err != nil {
		return err
	}
	s.engine, err = vllm.New(ctx, vllm.Options{URLs: urls, AttemptTimeout: 2 * time.Second, Attempts: 20, HealthEvery: 250 * time.Millisecond})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.engine.Close()) }()
	s.rollout.Engine = s.engine
	if s.db, err = store.Open(filepath.Join(dir, "store.db")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.db.Close()) }()
	s.rollout.Record = s.db.AddTurn
	var all sync.WaitGroup
	for i := range live {
		all.Go(func() { s.work(ctx, rand.New(rand.NewPCG(1, uint64(i)))) })
	}
	err = s.sample(ctx, minutes, every)
	cancel()
	all.Wait()
	return errors.Join(err, s.recorded())
}

// work runs one trajectory after the other; some are cancelled at a random time.
func (s *soaker) work(ctx context.Context, random *rand.Rand) {
	for retry.Sleep(ctx, time.Duration(random.Int64N(int64(2*s.pause)))) == nil {
		i := int(s.next.Add(1))
		task := s.task("task-" + strconv.Itoa(i/8%tasks))
		within, cancel := context.WithCancel(ctx)
		var abort *time.Timer // not a deadline, which the client would know
		if random.Float64() < s.abort {
			abort = time.AfterFunc(time.Duration(random.Int64N(int64(700*time.Millisecond))), cancel)
		}
		t := s.rollout.Sample(within, rollout.Place{Phase: "train", Group: i / 8, Index: i % 8, Task: task})
		if abort != nil {
			abort.Stop()
		}
		cancel()
		switch {
		case t.StopReason == trajectory.StopCancelled:
			s.aborted.Add(1)
			s.db.Restart(t.ID) // its turns stay in the store, and nothing more comes
			continue
		case t.Failed():
			s.fail(t.Err)
		}
		if err := s.db.AddTrajectory(context.WithoutCancel(ctx), "train", task, t); err != nil {
			s.fail(err.Error())
			continue
		}
		s.finished.Add(1)
	}
}

func (s *soaker) fail(what string) {
	s.failed.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == "" {
		s.first = what
		fmt.Fprintln(os.Stderr, "the first failure: "+what)
	}
}

// sample prints a row each minute.
func (s *soaker) sample(ctx context.Context, minutes int, every time.Duration) error {
	fmt.Fprintln(s.out, "| minute | resident MiB | heap MiB | goroutines | open files | trajectories | cancelled | failed |\n|---|---|---|---|---|---|---|---|")
	for minute := 1; minute <= minutes; minute++ {
		if err := retry.Sleep(ctx, every); err != nil {
			return err
		}
		bytes, err := resident(os.Getpid())
		if err != nil {
			return err
		}
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return err
		}
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		r := row{minute, float64(bytes) / (1 << 20), float64(memory.HeapAlloc) / (1 << 20), runtime.NumGoroutine(), len(files), s.finished.Load(), s.aborted.Load(), s.failed.Load()}
		s.rows = append(s.rows, r)
		fmt.Fprintf(s.out, "| %d | %.1f | %.1f | %d | %d | %d | %d | %d |\n", r.minute, r.rss, r.heap, r.goroutines, r.files, r.finished, r.cancelled, r.failed)
	}
	return nil
}

// recorded holds the store against what finished.
func (s *soaker) recorded() error {
	n := int64(0)
	err := s.db.Reader.Select(context.Background(), store.Selection{}, func(store.Record) error { n++; return nil })
	if err == nil && n != s.finished.Load() {
		err = fmt.Errorf("%d trajectories were recorded, %d finished", n, s.finished.Load())
	}
	return err
}

// verdict fails when the last third needed more than the first.
func (s *soaker) verdict() error {
	const most = 1.1
	third := len(s.rows) / 3
	if third == 0 {
		return errors.New("a soak needs at least three rows")
	}
	var bad []string
	for _, f := range []struct {
		name string
		of   func(row) float64
	}{
		{"resident MiB", func(r row) float64 { return r.rss }},
		{"goroutines", func(r row) float64 { return float64(r.goroutines) }},
		{"open files", func(r row) float64 { return float64(r.files) }},
	} {
		first, last := 0.0, 0.0
		for i := range third {
			first += f.of(s.rows[i]) / float64(third)
			last += f.of(s.rows[len(s.rows)-1-i]) / float64(third)
		}
		fmt.Fprintf(s.out, "\n%s: %.1f in the first third, %.1f in the last: %.2f of it", f.name, first, last, last/first)
		if last > most*first {
			bad = append(bad, f.name)
		}
	}
	fmt.Fprintln(s.out)
	if s.first != "" {
		bad = append(bad, "trajectories failed, the first with: "+s.first)
	}
	if bad != nil {
		return fmt.Errorf("the soak failed: %s", strings.Join(bad, ", "))
	}
	return nil
}

// startServer runs serve as a process of its own, which ends when its standard input is closed.
func startServer(ctx context.Context, file string, faults float64) (url string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	c := exec.CommandContext(ctx, self, "serve", "-faults", fmt.Sprint(faults), file)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := c.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = in.Close()
		_ = c.Wait() // it is killed where ctx ended first
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("the server did not start: %w", err)
	}
	return strings.TrimSpace(line), stop, nil
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/internal/retry"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// tokenBytes is what a token of a sample takes: id, mask, logprob, version.
const tokenBytes = 4 + 1 + 4 + 4

// timed notes how long each completion took.
type timed struct {
	engines.Engine
	mu      sync.Mutex
	on      bool
	seconds []float64
}

func (e *timed) Generate(ctx context.Context, q engines.Request) (engines.Completion, error) {
	start := time.Now()
	c, err := e.Engine.Generate(ctx, q)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.on && err == nil {
		e.seconds = append(e.seconds, time.Since(start).Seconds())
	}
	return c, err
}

func (e *timed) count(on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.on = on
}

// measurement is what one line says.
type measurement struct {
	Client       string  `json:"client"`
	Concurrent   int     `json:"concurrent"`
	TurnsPerS    float64 `json:"turns_per_second"`
	ClientCPU    float64 `json:"client_cpu"` // cores
	ServerCPU    float64 `json:"server_cpu"`
	KiB          float64 `json:"kib_per_trajectory"` // growth of resident memory at its most, over the live trajectories
	TokenKiB     float64 `json:"token_kib"`          // of that, what the tokens of a trajectory take on average
	P99          float64 `json:"p99_seconds"`        // of a completion
	Seconds      float64 `json:"seconds"`
	Trajectories int     `json:"trajectories"` // recorded
	Failed       int     `json:"failed"`
}

type options struct {
	n            int
	warm, window time.Duration
	pid          int
	dir          string
	cpuProfile   string
	memProfile   string
}

func measure(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	flags.IntVar(&o.n, "n", 1000, "live trajectories")
	flags.DurationVar(&o.warm, "warm", 5*time.Second, "before what is measured")
	flags.DurationVar(&o.window, "take", 15*time.Second, "how long to measure")
	flags.IntVar(&o.pid, "server-pid", 0, "of the server, whose CPU is counted")
	flags.StringVar(&o.dir, "dir", "", "folder of the store")
	flags.StringVar(&o.cpuProfile, "cpuprofile", "", "file")
	flags.StringVar(&o.memProfile, "memprofile", "", "file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	w, err := read(flags.Arg(0))
	if err != nil {
		return err
	}
	b := &bench{workload: w, options: o}
	m, err := b.run(ctx, flags.Arg(1))
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(m)
}

// bench keeps n trajectories running until it is stopped.
type bench struct {
	*workload
	options
	rollout  *rollout.Sampler
	engine   *timed
	db       *store.Store
	turns    atomic.Int64
	next     atomic.Int64
	finished atomic.Int64
	failed   atomic.Int64
	errs     chan error // the first that stops everything
}

func (b *bench) open(ctx context.Context, url string) (err error) {
	r, _, err := b.workload.rollout()
	if err != nil {
		return err
	}
	e, err := vllm.New(ctx, vllm.Options{URLs: []string{url}})
	if err != nil {
		return err
	}
	b.engine = &timed{Engine: e}
	b.rollout, r.Engine = r, b.engine
	r.Tools, err = r.Tools.Select()
	if err == nil {
		err = r.Tools.Register(b.tool(func() { b.turns.Add(1) }))
	}
	if err == nil {
		b.db, err = store.Open(filepath.Join(b.dir, "store.db"))
	}
	if err != nil {
		return err
	}
	b.rollout.Record, b.errs = b.db.AddTurn, make(chan error, 1)
	return nil
}

func (b *bench) run(ctx context.Context, url string) (m measurement, err error) {
	if err := b.open(ctx, url); err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, b.engine.Close(), b.db.Close()) }()
	runtime.GC()
	debug.FreeOSMemory()
	before, err := resident(os.Getpid())
	if err != nil {
		return m, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	for range b.n {
		all.Go(func() { b.work(ctx) })
	}
	watch := newWatch()
	m, err = b.take(ctx)
	most := watch.stop()
	cancel()
	all.Wait()
	select {
	case failed := <-b.errs:
		err = errors.Join(err, failed)
	default:
	}
	if err != nil {
		return m, err
	}
	m.KiB = float64(most-before) / 1024 / float64(b.n)
	mean := promptTokens + (turns-1)*(sampledTokens+observed)/2 // a trajectory is as long in each of its turns
	m.TokenKiB = float64(mean*tokenBytes) / 1024
	m.Trajectories, m.Failed = int(b.finished.Load()), int(b.failed.Load())
	return m, b.verify()
}

// take waits and reads the counters twice.
func (b *bench) take(ctx context.Context) (m measurement, err error) {
	if err := retry.Sleep(ctx, b.warm); err != nil {
		return m, err
	}
	if b.cpuProfile != "" {
		f, err := os.Create(b.cpuProfile)
		if err != nil {
			return m, err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return m, err
		}
		defer pprof.StopCPUProfile()
	}
	pids := []int{os.Getpid(), b.pid}
	cpu := make([]float64, 2)
	for i, pid := range pids {
		if cpu[i], err = cpuSeconds(pid); err != nil {
			return m, err
		}
	}
	start, n := time.Now(), b.turns.Load()
	b.engine.count(true)
	if err := retry.Sleep(ctx, b.window); err != nil {
		return m, err
	}
	b.engine.count(false)
	took := time.Since(start).Seconds()
	m = measurement{Client: "agentfly", Concurrent: b.n, TurnsPerS: float64(b.turns.Load()-n) / took, Seconds: took}
	for i, pid := range pids {
		after, err := cpuSeconds(pid)
		if err != nil {
			return m, err
		}
		cpu[i] = (after - cpu[i]) / took
	}
	m.ClientCPU, m.ServerCPU = cpu[0], cpu[1]
	slices.Sort(b.engine.seconds)
	if n := len(b.engine.seconds); n > 0 {
		m.P99 = b.engine.seconds[n*99/100]
	}
	if b.memProfile != "" {
		var ms runtime.MemStats
		runtime.ReadMemStats(&ms)
		fmt.Fprintf(os.Stderr, "heap in use %d MiB, live %d, next %d, stacks %d MiB, sys %d, gcs %d, pause %v, goroutines %d\n", ms.HeapInuse>>20, ms.HeapAlloc>>20, ms.NextGC>>20, ms.StackInuse>>20, ms.Sys>>20, ms.NumGC, time.Duration(ms.PauseTotalNs), runtime.NumGoroutine())
		return m, b.profileMemory()
	}
	return m, nil
}

func (b *bench) profileMemory() error {
	f, err := os.Create(b.memProfile)
	if err != nil {
		return err
	}
	defer f.Close()
	return pprof.Lookup("heap").WriteTo(f, 0)
}

// tasks is how many there are; a group is eight trajectories of one.
const tasks = 512

// work runs one trajectory after the other.
func (b *bench) work(ctx context.Context) {
	for ctx.Err() == nil {
		i := int(b.next.Add(1))
		task := b.task("task-" + strconv.Itoa(i/8%tasks))
		t := b.rollout.Sample(ctx, rollout.Place{Phase: "train", Group: i / 8, Index: i % 8, Task: task})
		if t.StopReason == trajectory.StopCancelled {
			return
		}
		if t.Failed() {
			b.failed.Add(1)
			b.stop(errors.New(t.Err))
			return
		}
		if err := b.db.AddTrajectory(context.WithoutCancel(ctx), "train", task, t); err != nil {
			b.stop(err)
			return
		}
		b.finished.Add(1)
	}
}

func (b *bench) stop(err error) {
	select {
	case b.errs <- err:
	default:
	}
}

// verify reads back what was recorded: every finished trajectory once, token by token what the workload says.
func (b *bench) verify() error {
	n := 0
	want := slices.Clone(b.Prompt)
	for i := range turns {
		want = append(want, b.Completion...)
		if i < turns-1 {
			want = append(want, b.Observation...)
		}
	}
	err := b.db.Reader.Select(context.Background(), store.Selection{}, func(r store.Record) error {
		n++
		if s := r.Trajectory.Samples; len(s) != 1 || !slices.Equal(s[0].TokenIDs, want) || s[0].ResponseTokens() != turns*sampledTokens {
			return fmt.Errorf("trajectory %s was not recorded as it was sampled", r.Trajectory.ID)
		}
		return nil
	})
	if err == nil && n != int(b.finished.Load()) {
		err = fmt.Errorf("%d trajectories were recorded, %d finished", n, b.finished.Load())
	}
	return err
}

package scienceworld_test

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	pyenv "github.com/agentfly/agentfly/environments/python"
	"github.com/agentfly/agentfly/environments/scienceworld"
	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

// BenchmarkPool plays episodes of the same actions through a pool of 8 workers, and with the package alone in one process of Python. In each round
// every process plays as many episodes as every other one, so that Java has compiled as much in each: alone on a machine, a process is then as fast
// as it becomes. ratio is the pool's steps a second over those of the package alone, times the processors:
//
//   - ratio: the package does in a step what ours does (observation, score, end), with our options of Java, which make episodes repeat;
//   - as-is-ratio: the same with Java as the package starts it, whose episodes do not repeat (hash codes by chance order what is seen and measured);
//   - own-step-ratio: the package's own step with Java as it starts it, which lists all possible actions each time.
//
// cpu-ratio is the processor time of a step of ratio's package, Java included, over that of ours, the pool's processes and this one included. Other
// work on the machine hardly moves it; on an idle machine, ratio is cpu-ratio over alone-cores, the processors that the package alone keeps busy.
func BenchmarkPool(b *testing.B) {
	interpreter := os.Getenv("AGENTFLY_ENV_PYTHON")
	if interpreter == "" {
		b.Skip("AGENTFLY_ENV_PYTHON names no Python with scienceworld; make bench-env installs one")
	}
	const size, warm = 8, 40
	each, err := strconv.Atoi(cmp.Or(os.Getenv("BENCH_EPISODES"), "50")) // of every process in a round
	require.NoError(b, err)
	actions := []string{"look around", "open door to kitchen", "go to kitchen", "look around", "inventory", "open fridge", "look in fridge", "wait", "open door to hallway", "go to hallway"}
	shared := resources.New(resources.Options{})
	s, err := scienceworld.Kind().New(b.Context(), shared, map[string]any{"interpreter": interpreter, "tasks": []string{"find-plant"}})
	require.NoError(b, err)
	m, err := environments.Open(s, shared.Pools(), environments.Options{
		Kind: "scienceworld", StepTimeout: time.Minute, ResetTimeout: time.Minute, Pool: pool.Options{Size: size, Warm: size, MakeTime: 5 * time.Minute, Lease: time.Minute},
	})
	require.NoError(b, err)
	same := startBare(b, interpreter, actions, pyenv.Java(512)...)
	asIs := startBare(b, interpreter, actions)
	play := func(n int) (wall, cpu float64) {
		begun, used, next := time.Now(), processorTime(b, same.pid, asIs.pid), make(chan int)
		var all sync.WaitGroup
		for range 2 * size { // more than there are environments, as in a run
			all.Go(func() {
				for i := range next {
					e, err := m.Begin(b.Context(), pool.Owner{Name: strconv.Itoa(i)}, environments.Start{Task: trajectory.Task{Fields: map[string]any{"task": "find-plant", "variation": float64(i % 50)}}})
					if err != nil {
						b.Error(err)
						continue
					}
					for _, a := range actions {
						if _, err := e.Step(b.Context(), environments.Action{Text: a}); err != nil {
							b.Error(err)
						}
					}
					e.End()
				}
			})
		}
		for i := range n {
			next <- i
		}
		close(next)
		all.Wait()
		return time.Since(begun).Seconds(), processorTime(b, same.pid, asIs.pid) - used
	}
	play(size * warm)
	same.play(b, "lean", warm)
	asIs.play(b, "lean", warm)
	asIs.play(b, "own", 2)
	var pooled, poolCPU, alone, aloneCPU, plain, own float64
	few := max(1, each/20)
	rounds := 0.0
	for b.Loop() {
		w, c := same.play(b, "lean", each)
		alone, aloneCPU = alone+w, aloneCPU+c
		w, c = play(size * each)
		pooled, poolCPU = pooled+w, poolCPU+c
		w, _ = asIs.play(b, "lean", each)
		plain += w
		w, _ = asIs.play(b, "own", few)
		own += w * float64(each) / float64(few)
		rounds++
		b.Logf("round %.0f: ratio %.2f, cpu-ratio %.2f", rounds, alone*size/pooled/float64(runtime.NumCPU()), aloneCPU*size/poolCPU)
	}
	steps, cores := rounds*float64(each*len(actions)), float64(runtime.NumCPU())
	b.ReportMetric(steps*size/pooled, "pool-steps/s")
	b.ReportMetric(steps/alone, "alone-steps/s")
	b.ReportMetric(alone*size/pooled/cores, "ratio")
	b.ReportMetric(plain*size/pooled/cores, "as-is-ratio")
	b.ReportMetric(own*size/pooled/cores, "own-step-ratio")
	b.ReportMetric(aloneCPU*size/poolCPU, "cpu-ratio")
	b.ReportMetric(aloneCPU/alone, "alone-cores")
	b.ReportMetric(poolCPU/pooled, "pool-cores")
	require.NoError(b, m.Close())
	require.NoError(b, shared.Close())
}

// bare is the package alone, in a process that plays when it is told to.
type bare struct {
	pid int
	in  io.Writer
	out *bufio.Scanner
}

func startBare(b *testing.B, interpreter string, actions []string, variables ...string) *bare {
	cmd := exec.Command(interpreter, append([]string{"testdata/bare.py"}, actions...)...)
	cmd.Env, cmd.Stderr = append(os.Environ(), variables...), os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return &bare{cmd.Process.Pid, in, bufio.NewScanner(out)}
}

func (p *bare) play(b *testing.B, kind string, n int) (wall, cpu float64) {
	_, err := fmt.Fprintln(p.in, kind, n)
	require.NoError(b, err)
	require.True(b, p.out.Scan(), "the package alone has ended")
	_, err = fmt.Sscan(p.out.Text(), &wall, &cpu)
	require.NoError(b, err)
	return wall, cpu
}

// processorTime is what this process and those that it started have used, in seconds, without the trees of some.
func processorTime(b *testing.B, without ...int) float64 {
	var of func(pid int) float64
	of = func(pid int) (sum float64) {
		for _, one := range without {
			if pid == one {
				return 0
			}
		}
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		require.NoError(b, err)
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		for _, field := range fields[11:13] {
			ticks, err := strconv.ParseFloat(field, 64)
			require.NoError(b, err)
			sum += ticks / 100 // of a second, on Linux
		}
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		require.NoError(b, err)
		for _, list := range lists {
			data, _ := os.ReadFile(list) // of a thread that may have ended
			for _, child := range strings.Fields(string(data)) {
				n, err := strconv.Atoi(child)
				require.NoError(b, err)
				sum += of(n)
			}
		}
		return sum
	}
	return of(os.Getpid())
}

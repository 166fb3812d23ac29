package rollout_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/environments"
	pyenv "github.com/agentfly/agentfly/environments/python"
	"github.com/agentfly/agentfly/environments/scienceworld"
	"github.com/agentfly/agentfly/environments/textworldexpress"
	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// chaos is a run of many episodes through few environments, whose workers are killed, stopped for ever and stopped for a while at random.
type chaos struct {
	kind           environments.Kind
	params         map[string]any
	action         string
	episodes, pool int
	each           int64         // steps of environments between two disturbances: a machine that is slow is not disturbed more
	step, reset    time.Duration // deadlines
}

// Environments die, hang and are slow; every trajectory ends or fails by its environment, every lease comes back, and nothing is left.
func TestChaosOfEnvironments(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on PATH: apt-get install python3")
	}
	class, err := filepath.Abs("testdata/chaos.py")
	require.NoError(t, err)
	chaos{
		kind: pyenv.Kind(), params: map[string]any{"class": class + ":Chaotic"}, action: "on", episodes: 32, pool: 4, each: 8,
		step: 2 * time.Second, reset: 30 * time.Second,
	}.run(t)
}

// The same with the real packages, 256 episodes through 8 workers.
func TestChaosOfTextWorldExpress(t *testing.T) {
	chaos{
		kind: textworldexpress.Kind(), params: map[string]any{"game": "coin", "interpreter": envPython(t)}, action: "look around", episodes: 256, pool: 8, each: 20,
		step: 5 * time.Second, reset: time.Minute,
	}.run(t)
}

func TestChaosOfScienceWorld(t *testing.T) {
	chaos{
		kind: scienceworld.Kind(), params: map[string]any{"tasks": []string{"find-plant"}, "interpreter": envPython(t)}, action: "look around", episodes: 256, pool: 8, each: 20,
		step: 10 * time.Second, reset: time.Minute,
	}.run(t)
}

func envPython(t *testing.T) string {
	t.Helper()
	python := os.Getenv("AGENTFLY_ENV_PYTHON")
	if python == "" {
		t.Skip("AGENTFLY_ENV_PYTHON names no interpreter with the packages: make test-env")
	}
	if _, err := exec.LookPath("java"); err != nil {
		t.Skip("java is not on PATH: apt-get install default-jre-headless")
	}
	return python
}

func (c chaos) run(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	goroutines := runtime.NumGoroutine()
	shared := resources.New(resources.Options{})
	source, err := c.kind.New(t.Context(), shared, c.params)
	require.NoError(t, err)
	m, err := environments.Open(source, shared.Pools(), environments.Options{
		Kind: c.kind.Name, StepTimeout: c.step, ResetTimeout: c.reset,
		Pool: pool.Options{Size: c.pool, MakeTime: c.reset, CheckAfter: time.Second, Lease: time.Minute, Breaker: 50},
	})
	require.NoError(t, err)
	r := c.sampler(t, m)

	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ended := make(chan struct{})
	var disturbing sync.WaitGroup
	disturbances := 0
	disturbing.Go(func() {
		disturbances = c.disturb(rand.New(rand.NewPCG(seed, 0)), func() int64 { return m.Stats().Steps }, ended)
	})
	all := make([]*trajectory.Trajectory, c.episodes)
	var running sync.WaitGroup
	for i := range all {
		task := trajectory.Task{ID: fmt.Sprint("task", i/4), Prompt: []trajectory.Message{trajectory.Text("user", "Go.")}}
		running.Go(func() {
			all[i] = r.Sample(t.Context(), rollout.Place{Step: 1, Group: i / 4, Index: i % 4, Task: task, Phase: "train"})
		})
	}
	running.Wait()
	close(ended)
	disturbing.Wait()

	finished := 0
	for _, tr := range all {
		if tr.Err != "" {
			require.Equal(t, trajectory.OriginEnvironment, tr.ErrOrigin, tr.Err)
			require.Equal(t, trajectory.FailureInfrastructure, tr.Failure)
			require.Equal(t, trajectory.StopError, tr.StopReason)
			require.Contains(t, tr.Err, "environments: "+c.kind.Name+": ")
			require.Zero(t, tr.Reward)
			continue
		}
		finished++
		require.Contains(t, []trajectory.StopReason{trajectory.StopTerminated, trajectory.StopTruncated, trajectory.StopMaxTurns}, tr.StopReason)
		require.NotNil(t, tr.LastOutcome())
	}
	s := m.Stats()
	failures := int64(0)
	for _, n := range s.Failures {
		failures += n
	}
	t.Logf("%d of %d finished; %d disturbances, %d failures of environments; %d made, %d broken; waited p50 %s p99 %s", finished, c.episodes, disturbances, failures, s.Pool.Made, s.Pool.Broken, s.Pool.WaitP50, s.Pool.WaitP99)
	require.Positive(t, failures)
	require.Greater(t, finished, c.episodes/2)
	require.Zero(t, s.Pool.Lent)
	require.Zero(t, s.Pool.Waiting)
	require.LessOrEqual(t, s.Pool.Ready, c.pool)
	_ = m.Close()
	if err := shared.Close(); err != nil { // a worker that was stopped, or whose Java was killed, closes badly, and that is all
		require.ErrorContains(t, err, "did not close well")
	}
	require.Eventually(t, func() bool { return len(workersOf(os.Getpid())) == 0 }, 20*time.Second, 20*time.Millisecond, "processes are left")
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines+2 }, 10*time.Second, 20*time.Millisecond, "goroutines are left") // the engine's are closed later
}

// sampler does the same action in every turn.
func (c chaos) sampler(t *testing.T, m *environments.Manager) *rollout.Sampler {
	r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) {
		return rollouttest.Say("<action>" + c.action + "</action>")
	})
	stage := environments.NewStage(m)
	r.Tools = tools.NewRegistry(tools.Options{Timeout: 2*c.step + 5*time.Second, MaxTokens: 300, Tokenizer: rollouttest.Letters{}}) // the engine has 4,096 letters
	require.NoError(t, r.Tools.Register(stage.Tools()...))
	var err error
	r.Format, err = agents.NewFormat("action", r.Tools.Specs(), agents.FormatOptions{})
	require.NoError(t, err)
	r.Sampling.Stop = r.Format.Stops()
	r.World, r.MaxTurns, r.MaxTotal = &rollout.World{Stage: stage, Retries: 2}, 6, 1<<20
	own, err := rewards.Prebuilt().Builder(t.Context(), nil).Make("environment", nil)
	require.NoError(t, err)
	r.Reward, err = rewards.NewSum(time.Minute, rewards.Weighted{Reward: own, Weight: 1})
	require.NoError(t, err)
	return r
}

// disturb kills a worker or what it started, stops one for ever, or stops one for a while, until ended.
func (c chaos) disturb(random *rand.Rand, steps func() int64, ended <-chan struct{}) (n int) {
	var slow sync.WaitGroup
	defer slow.Wait()
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for next := c.each; ; {
		select {
		case <-ended:
			return n
		case <-t.C:
		}
		all := workersOf(os.Getpid())
		if done := steps(); done < next || len(all) == 0 {
			continue
		}
		next += c.each
		pid := all[random.IntN(len(all))]
		n++
		switch random.IntN(3) {
		case 0:
			_ = syscall.Kill(pid, syscall.SIGKILL)
		case 1:
			_ = syscall.Kill(pid, syscall.SIGSTOP)
		case 2:
			_ = syscall.Kill(pid, syscall.SIGSTOP)
			slow.Go(func() {
				select {
				case <-time.After(c.step / 3):
				case <-ended:
				}
				_ = syscall.Kill(pid, syscall.SIGCONT)
			})
		}
	}
}

// workersOf are the living processes that a process started, with theirs.
func workersOf(pid int) (all []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range tasks {
		text, _ := os.ReadFile(file)
		for _, word := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(word)
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
			if err != nil || len(stat) == 0 || slices.Contains(strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')'):]))[1:2], "Z") {
				continue
			}
			all = append(append(all, child), workersOf(child)...)
		}
	}
	return all
}

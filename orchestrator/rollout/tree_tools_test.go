package rollout_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/orchestrator/tree"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/sandbox"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/tools/calculator"
	"github.com/agentfly/agentfly/tools/code"
	"github.com/agentfly/agentfly/tools/files"
	"github.com/agentfly/agentfly/trajectory"
)

// diary is a calculator that remembers what it was asked in a trajectory, and tells all of it. It refuses "0+0".
type diary struct {
	tools.Tool
	mu    sync.Mutex
	pages map[string][]string
	calls atomic.Int64
	lies  func(trajectory string, page int) string // nil: it does not
	signs bool                                     // each answer ends with an address, another one each time
}

func newDiary() *diary { return &diary{Tool: calculator.New(), pages: map[string][]string{}} }

func (d *diary) Spec() tools.Spec {
	s := d.Tool.Spec()
	s.Stateful, s.Replays, s.Deterministic, s.Idempotent = true, true, false, false
	return s
}

func (d *diary) Call(_ context.Context, c tools.Call) (tools.Observation, error) {
	d.calls.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pages[c.Trajectory] = append(d.pages[c.Trajectory], string(c.Arguments))
	if d.lies != nil {
		d.pages[c.Trajectory][len(d.pages[c.Trajectory])-1] += d.lies(c.Trajectory, len(d.pages[c.Trajectory]))
	}
	text := strings.Join(d.pages[c.Trajectory], ";")
	if d.signs {
		text += fmt.Sprintf(" <diary at %#x>", 0x7f0000000000+d.calls.Load())
	}
	if strings.Contains(string(c.Arguments), "0+0") {
		return tools.Observation{}, fmt.Errorf("it does not remember %s", text)
	}
	return tools.Observation{Text: text, Info: map[string]any{"pages": len(d.pages[c.Trajectory])}}, nil
}

func (d *diary) End(trajectory string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.pages, trajectory)
}

// remembering has the calculator of a forest remember.
func remembering(t testing.TB, f *forest) *diary {
	d := newDiary()
	f.Tools = tools.NewRegistry(tools.Options{Timeout: time.Minute})
	require.NoError(t, f.Tools.Register(d))
	return d
}

// checkPages holds that a tool with state knew, at each call of a trajectory, the calls of that trajectory before it and no others. It returns how many
// calls of turns that others sampled a fork had to make again.
func checkPages(t *testing.T, tr *trajectory.Trajectory) (again int) {
	t.Helper()
	var pages []string
	for k, turn := range tr.Turns {
		for _, r := range turn.Results {
			if r.Cause != "" && r.Cause != trajectory.CauseRaised {
				continue
			}
			pages = append(pages, string(r.Call.Arguments))
			if r.Failed {
				require.Contains(t, r.Observation, strings.Join(pages, ";"))
			} else {
				require.Equal(t, strings.Join(pages, ";"), r.Observation, "turn %d of %s", k, tr.ID)
			}
			if k < tr.Forked {
				again++
			}
		}
	}
	return again
}

// A tool with state forks by its calls, which it is asked again, in their order: each leaf goes on from what the other one had there, and none sees what
// others did since. Nothing else runs twice.
func TestToolsForkByTheirCalls(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	replayed := 0
	for trial := range 100 {
		size := 2 + rng.IntN(10)
		f := newForest(t, anyTrees(rng, size))
		d := remembering(t, f)
		task := rollouttest.Task(fmt.Sprint("q", trial), "1+1?", "2")
		group, err := f.Grow(t.Context(), rollout.Place{Phase: "train", Step: trial}, task, size, nil, nil)
		require.NoError(t, err)
		checkTrees(t, group, size)
		calls := 0
		for _, tr := range group.Trajectories {
			require.Empty(t, tr.Err)
			again := checkPages(t, tr)
			replayed += again
			calls += again
			for _, turn := range tr.Turns[tr.Forked:] {
				for _, r := range turn.Results {
					if r.Cause == "" || r.Cause == trajectory.CauseRaised {
						calls++
					}
				}
			}
		}
		require.Equal(t, calls, int(d.calls.Load()), "each call once for its own leaf, and once for each that forks behind it")
		require.Empty(t, d.pages, "nothing is left of a trajectory")
	}
	require.Greater(t, replayed, 200)
}

// Of several calls in a turn those of tools with state come one after the other, so that a fork can make them again in that order. What was refused then
// is not asked.
func TestCallsOfATurnAreMadeAgainInTheirOrder(t *testing.T) {
	d := newDiary()
	registry := tools.NewRegistry(tools.Options{Timeout: time.Minute})
	require.NoError(t, registry.Register(d))
	format, err := agents.NewFormat("hermes", registry.Specs(), agents.FormatOptions{})
	require.NoError(t, err)
	r := rollouttest.New(t, func(q engines.Request) (engines.Completion, error) {
		turn := strings.Count(rollouttest.Letters{}.Decode(q.Prompt, false), "<|im_start|>assistant\n")
		if turn > 3 {
			return rollouttest.Say("done")
		}
		var said string
		for k := range 1 + hashed(q.Seed)%4 {
			said += fmt.Sprintf("<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"%d+%d\"}}\n</tool_call>\n", k, hashed(q.Seed, k)%2*k)
		}
		return rollouttest.Say(said)
	})
	r.Tools, r.Format, r.Sampling.Stop, r.MaxTurns, r.MaxTotal, r.Sampling.MaxTokens = registry, format, format.Stops(), 6, 6000, 800
	r.MaxAtOnce, r.MaxCalls, r.Timeout = 3, 8, time.Minute
	r.Trees = &rollout.Trees{Roots: 3, Rule: tree.StepRandom{Trees: 3, Nodes: 3, Rounds: 3}}
	replayed, refused, raised, calls := 0, 0, 0, 0
	for trial := range 20 {
		group, err := r.Grow(t.Context(), rollout.Place{Phase: "train", Step: trial}, rollouttest.Task("q", "?", "5"), 24, nil, nil)
		require.NoError(t, err)
		checkTrees(t, group, 24)
		for _, tr := range group.Trajectories {
			require.Empty(t, tr.Err)
			again := checkPages(t, tr)
			replayed, calls = replayed+again, calls+again
			for _, turn := range tr.Turns[tr.Forked:] {
				for _, result := range turn.Results {
					switch result.Cause {
					case "":
						calls++
					case trajectory.CauseRaised:
						calls, raised = calls+1, raised+1
					default:
						refused++
					}
				}
			}
		}
	}
	require.Equal(t, calls, int(d.calls.Load()))
	require.Greater(t, replayed, 500)
	require.Greater(t, refused, 50)
	require.Greater(t, raised, 50)
}

// A tool that answers a fork differently has no fork: the leaf fails, as data, and says what came and what was recorded; the others go on.
func TestAForkIsRefusedWhereAToolAnswersDifferently(t *testing.T) {
	f := newForest(t, rollout.Trees{Roots: 1, Rule: tree.StepRandom{Trees: 1, Nodes: 1, Rounds: 1}})
	d := remembering(t, f)
	d.lies = func(id string, page int) string {
		if page == 1 && strings.HasSuffix(id, ".0") {
			return "?"
		}
		return ""
	}
	group, err := f.Grow(t.Context(), rollout.Place{Phase: "train", Step: 1}, rollouttest.Task("q", "1+1?", "2"), 2, nil, nil)
	require.NoError(t, err)
	require.Empty(t, group.Trajectories[0].Err)
	bad := group.Trajectories[1]
	require.Equal(t, trajectory.OriginTool, bad.ErrOrigin)
	require.Equal(t, trajectory.StopError, bad.StopReason)
	said := string(group.Trajectories[0].Turns[0].Results[0].Call.Arguments)
	require.Equal(t, fmt.Sprintf("orchestrator: train-1-0-0.0 turn 0: its tool calculator answers %q, and %q was recorded", said+"?", said), bad.Err)
	require.Empty(t, bad.Turns)
}

// A Python session, a shell and files fork: variables and files are those of the leaf's own turns, and the workspace of a leaf is its own.
func TestSessionsAndWorkspacesFork(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	res := resources.New(resources.Options{Sandbox: sandbox.Auto})
	defer func() { require.NoError(t, res.Close()) }()
	if _, err := res.Sandbox(t.Context()); errors.Is(err, sandbox.ErrUnavailable) {
		t.Skip(err)
	}
	catalog := tools.NewCatalog()
	require.NoError(t, code.Add(catalog))
	require.NoError(t, files.Add(catalog))
	registry := tools.NewRegistry(tools.Options{Timeout: time.Minute})
	for _, name := range []string{"python", "shell", "file_create"} {
		made, err := catalog.Make(t.Context(), res, tools.Ref{Name: name})
		require.NoError(t, err)
		for _, tool := range made {
			require.True(t, tool.Spec().Stateful && tool.Spec().Replays, name)
		}
		require.NoError(t, registry.Register(made...))
	}
	format, err := agents.NewFormat("hermes", registry.Specs(), agents.FormatOptions{})
	require.NoError(t, err)
	say := func(name string, arguments map[string]string) (engines.Completion, error) {
		text, err := json.Marshal(map[string]any{"name": name, "arguments": arguments})
		if err != nil {
			return engines.Completion{}, err
		}
		return rollouttest.Say("<tool_call>\n" + string(text) + "\n</tool_call>")
	}
	r := rollouttest.New(t, func(q engines.Request) (engines.Completion, error) {
		step := int(hashed(q.Seed) % 9)
		switch strings.Count(rollouttest.Letters{}.Decode(q.Prompt, false), "<|im_start|>assistant\n") {
		case 1:
			return say("python", map[string]string{"code": fmt.Sprintf("x = [%d]\nopen('log', 'w').write('%d')\nx", step, step)})
		case 2:
			return say("file_create", map[string]string{"path": fmt.Sprintf("note%d", step), "content": "note"})
		case 3:
			return say("python", map[string]string{"code": fmt.Sprintf("x.append(%d)\nwith open('log', 'a') as f: f.write(str(x[-1]))\nprint(x)", step)})
		case 4:
			return say("shell", map[string]string{"command": "cat log; echo; ls"})
		}
		return rollouttest.Say("done")
	})
	r.Tools, r.Format, r.Sampling.Stop, r.MaxTurns, r.MaxTotal, r.Sampling.MaxTokens, r.Timeout = registry, format, format.Stops(), 5, 4000, 500, time.Minute
	r.Trees = &rollout.Trees{Roots: 2, Rule: tree.StepRandom{Trees: 2, Nodes: 3, Rounds: 2}}
	for trial := range 2 {
		group, err := r.Grow(t.Context(), rollout.Place{Phase: "train", Step: trial}, rollouttest.Task("q", "?", "5"), 10, nil, nil)
		require.NoError(t, err)
		checkTrees(t, group, 10)
		forks := map[int]int{}
		for _, tr := range group.Trajectories {
			require.Empty(t, tr.Err)
			forks[tr.Forked]++
			require.Len(t, tr.Turns, 5)
			step := func(turn int) int { return int(hashed(tr.Turns[turn].Seed) % 9) }
			require.Equal(t, fmt.Sprintf("[%d]", step(0)), tr.Turns[0].Results[0].Observation)
			require.Equal(t, fmt.Sprintf("[%d, %d]", step(0), step(2)), tr.Turns[2].Results[0].Observation, "%+v", tr.Turns[2].Results[0])
			require.Equal(t, fmt.Sprintf("%d%d\nlog\nnote%d", step(0), step(2), step(1)), tr.Turns[3].Results[0].Observation)
		}
		require.Greater(t, len(forks), 2)
	}
}

// An answer that names an object by its address is the same answer in another process.
func TestToolsForkWhoseAnswersHoldAddresses(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	forked := 0
	for trial := range 20 {
		size := 2 + rng.IntN(10)
		f := newForest(t, anyTrees(rng, size))
		remembering(t, f).signs = true
		group, err := f.Grow(t.Context(), rollout.Place{Phase: "train", Step: trial}, rollouttest.Task(fmt.Sprint("q", trial), "1+1?", "2"), size, nil, nil)
		require.NoError(t, err)
		for _, tr := range group.Trajectories {
			require.Empty(t, tr.Err)
			forked += tr.Forked
		}
	}
	require.Greater(t, forked, 20)
}

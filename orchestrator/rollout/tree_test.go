package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/orchestrator/tree"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/tools/calculator"
	"github.com/agentfly/agentfly/trajectory"
)

func hashed(parts ...any) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, parts...)
	return h.Sum64()
}

// forest is a sampler of trees whose model calls the calculator, one to three times, as its seeds say.
type forest struct {
	*rollout.Sampler
	asked   atomic.Int64
	sampled atomic.Int64                 // tokens
	fails   func(q engines.Request) bool // nil: none
	spoil   func(*trajectory.Trajectory) // what an earlier process recorded; nil: it stays as it is
}

func newForest(t testing.TB, trees rollout.Trees) *forest {
	f := &forest{}
	f.Sampler = rollouttest.New(t, func(q engines.Request) (engines.Completion, error) {
		f.asked.Add(1)
		if f.fails != nil && f.fails(q) {
			return engines.Completion{}, errors.New("the engine failed")
		}
		h := hashed(q.Seed)
		turns := strings.Count(rollouttest.Letters{}.Decode(q.Prompt, false), "<result>")
		said := fmt.Sprintf("<answer>%d</answer>", h%3)
		if turns == 0 || turns < 3 && h%4 > 0 {
			said = fmt.Sprintf("<calculator>%d+%d</calculator>", h%97, h%89)
		}
		said = goesOn(begunText(q), said)
		c, err := rollouttest.Say(said)
		c.Logprobs = make([]float32, len(c.TokenIDs))
		for i := range c.Logprobs {
			c.Logprobs[i] = -1 - float32(h>>i%8)/8
		}
		return c, err
	})
	f.Engine = counting{f.Engine, &f.sampled}
	f.Tools = tools.NewRegistry(tools.Options{Timeout: time.Minute}) // no call is late on a busy machine
	require.NoError(t, f.Tools.Register(calculator.New()))
	f.MaxTurns, f.Timeout, f.Trees = 5, time.Minute, &trees
	return f
}

// counting counts the tokens that an engine samples.
type counting struct {
	engines.Engine
	tokens *atomic.Int64
}

func (e counting) Generate(ctx context.Context, q engines.Request) (engines.Completion, error) {
	c, err := e.Engine.Generate(ctx, q)
	e.tokens.Add(int64(len(c.TokenIDs)))
	return c, err
}

// begunText is the beginning of a turn that a request goes on with.
func begunText(q engines.Request) string {
	text := rollouttest.Letters{}.Decode(q.Prompt, false)
	_, begun, _ := cutLast(text, "<|im_start|>assistant\n")
	return begun
}

func cutLast(text, mark string) (before, after string, ok bool) {
	at := strings.LastIndex(text, mark)
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+len(mark):], true
}

// goesOn is the rest of a call or an answer that was begun with other numbers.
func goesOn(begun, said string) string {
	switch call := "<calculator>"; {
	case begun == "":
		return said
	case strings.HasPrefix(begun, "<a"):
		return strings.TrimPrefix("<answer>1</answer>", begun[:min(len(begun), len("<answer>"))])
	case len(begun) < len(call):
		return call[len(begun):] + "1" + said[len(said)-len("2</calculator>"):]
	case !strings.Contains(begun, "+"):
		return fmt.Sprintf("%d+%d</calculator>", len(said), len(begun))
	}
	return fmt.Sprintf("%d</calculator>", len(said))
}

func anyTrees(rng *rand.Rand, size int) rollout.Trees {
	roots := 1 + rng.IntN(size)
	switch rng.IntN(3) {
	case 0:
		return rollout.Trees{Roots: roots, Within: true, Rule: tree.TokenNLL{Trees: roots, Tokens: 1 + rng.IntN(3), Branches: 1 + rng.IntN(2), Rounds: 1 + rng.IntN(3), Leaves: size / roots * rng.IntN(2)}}
	case 1:
		return rollout.Trees{Roots: roots, Rule: tree.StepRandom{Trees: roots, Nodes: 1 + rng.IntN(3), Rounds: 1 + rng.IntN(3)}}
	}
	return rollout.Trees{
		Roots: roots, Measure: true, Tokens: 1 + rng.IntN(8), Top: 5 * rng.IntN(2), Vocabulary: 258,
		Rule: tree.Entropy{Base: rng.Float64(), Weight: rng.Float64(), Vocabulary: 258, Lagged: rng.IntN(2) == 0, Penalty: rng.Float64() / 2},
	}
}

// checkTrees holds what is true of the trajectories of any tree, and returns the names of the turns that were sampled.
func checkTrees(t *testing.T, group trajectory.Group, size int) map[string]bool {
	t.Helper()
	require.Len(t, group.Trajectories, size)
	byID, sampled := map[string]*trajectory.Trajectory{}, map[string]bool{}
	for _, tr := range group.Trajectories {
		require.NotContains(t, byID, tr.ID, "no leaf comes twice")
		byID[tr.ID] = tr
	}
	for _, tr := range group.Trajectories {
		require.NoError(t, tr.Branch.Check())
		require.Equal(t, trajectory.Place{Phase: "train", Step: tr.Step, Group: tr.Group, Index: tr.Index, Branch: tr.Branch}.ID(), tr.ID)
		path, forks := tr.Branch.Parent()
		if forks && tr.Err == "" {
			parent := byID[trajectory.Place{Phase: "train", Step: tr.Step, Group: tr.Group, Index: tr.Index, Branch: path}.ID()]
			require.NotNil(t, parent)
			require.Empty(t, parent.Err, "nothing forks off what failed")
			require.Less(t, tr.Forked, len(parent.Turns))
			for k := range tr.Forked {
				is, was := tr.Turns[k], parent.Turns[k]
				require.Equal(t, rollouttest.Timeless(&trajectory.Trajectory{Turns: []trajectory.Turn{was}}), rollouttest.Timeless(&trajectory.Trajectory{Turns: []trajectory.Turn{is}}))
				require.True(t, tr.Samples[is.Sample].Prefix(is.ObservationEnd).Equal(parent.Samples[was.Sample].Prefix(was.ObservationEnd)), "the tokens up to the fork")
				require.Equal(t, parent.Samples[was.Sample].SamplingLogprobs[:was.ObservationEnd], tr.Samples[is.Sample].SamplingLogprobs[:is.ObservationEnd])
			}
			require.NotEqual(t, parent.Turns[tr.Forked].Seed, tr.Turns[tr.Forked].Seed)
			checkWithin(t, parent, tr)
		}
		for k, turn := range tr.Turns {
			owner := tr.ID
			if k < tr.Forked {
				owner = turn.SharedBy()
				require.NotEqual(t, tr.ID, owner)
				require.Contains(t, byID, owner, "a shared turn is of a leaf that is there")
			}
			require.Equal(t, trajectory.SharedName(owner, k), turn.Shared)
			sampled[turn.Shared] = true
			require.Equal(t, byID[owner].Turns[k].Begun, turn.Begun)
			for _, b := range turn.Begun {
				require.Contains(t, byID, strings.TrimSuffix(b.Shared, fmt.Sprint(":", k)))
			}
		}
	}
	return sampled
}

// checkWithin holds what is true of the turn that a trajectory forks within: it begins with what the other one sampled there, as that sampled it, and goes
// on by itself.
func checkWithin(t *testing.T, parent, tr *trajectory.Trajectory) {
	t.Helper()
	turn, was, n := tr.Turns[tr.Forked], parent.Turns[tr.Forked], tr.ForkedAt
	require.Equal(t, n, turn.BegunTokens())
	require.Equal(t, was.CompletionStart, turn.CompletionStart)
	require.Greater(t, turn.Sampled(), 0)
	if n == 0 {
		require.Empty(t, turn.Begun)
		return
	}
	require.Less(t, n, was.CompletionEnd-was.CompletionStart)
	a, b, from, to := tr.Samples[turn.Sample], parent.Samples[was.Sample], turn.CompletionStart, turn.CompletionStart+n
	require.True(t, a.Prefix(to).Equal(b.Prefix(to)), "the tokens up to the fork")
	require.Equal(t, b.SamplingLogprobs[from:to], a.SamplingLogprobs[from:to])
	require.Equal(t, b.PolicyVersion[from:to], a.PolicyVersion[from:to])
	require.NotContains(t, a.ResponseMask[from:turn.CompletionEnd], false, "all of it is sampled")
	require.Equal(t, rollouttest.Decode(a.TokenIDs[from:turn.CompletionEnd]), turn.Completion, "the text is that of the whole turn")
	begun := rollouttest.Decode(a.TokenIDs[from:to])
	for _, stop := range []string{"</calculator>", "</answer>"} {
		for k := 1; k < len(stop); k++ {
			require.False(t, strings.HasSuffix(begun, stop[:k]), "%q ends within %s", begun, stop)
		}
	}
	last := turn.Begun[len(turn.Begun)-1].Shared
	for i := range n { // whoever sampled it for the other one
		want := was.Shared
		for _, earlier := range was.Begun {
			if i < earlier.End {
				want = earlier.Shared
				break
			}
		}
		if i == n-1 {
			require.Equal(t, want, last)
		}
	}
}

// A trajectory that was recorded before its run had trees gave its turns no names: what forks off it names them, so that they count once.
func TestForksOfATrajectoryWithoutTrees(t *testing.T) {
	f := newForest(t, rollout.Trees{Roots: 1, Rule: tree.Entropy{Base: 1}})
	trees := f.Trees
	for group := range 20 {
		place := rollout.Place{Phase: "train", Group: group, Task: rollouttest.Task("q", "1+1?", "2")}
		f.Trees = nil
		root := f.Sample(t.Context(), place)
		require.Empty(t, root.Err)
		require.Empty(t, root.Turns[0].Shared)
		if len(root.Turns) < 2 {
			continue
		}
		f.Trees = trees
		f.Recovered = func(id string) (*trajectory.Trajectory, bool) {
			if id == root.ID {
				return root, true
			}
			return nil, false
		}
		g, err := f.Grow(t.Context(), place, place.Task, 2, []tree.Leaf{{}}, nil)
		require.NoError(t, err)
		child := g.Trajectories[1]
		require.Empty(t, child.Err)
		require.Equal(t, trajectory.SharedName(root.ID, 0), child.Turns[0].Shared)
		require.False(t, child.Owns(0))
		return
	}
	t.Fatal("no root has two turns")
}

// Every turn of a tree is sampled once and every call runs once, whatever shares it; a child has its parent's tokens up to the fork.
func TestSharedTurnsAreSampledOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	forks, within, twice := map[int]int{}, 0, 0 // by turn
	for trial := range 300 {
		size := 1 + rng.IntN(16)
		f := newForest(t, anyTrees(rng, size))
		task := rollouttest.Task(fmt.Sprint("q", trial), "1+1?", "2")
		group, err := f.Grow(t.Context(), rollout.Place{Phase: "train", Step: trial}, task, size, nil, nil)
		require.NoError(t, err)
		sampled := checkTrees(t, group, size)
		require.Equal(t, len(sampled), int(f.asked.Load()), "a request a turn")
		rewarded, own := 0, 0
		for _, tr := range group.Trajectories {
			require.Empty(t, tr.Err)
			if tr.Branch != "" {
				forks[tr.Forked]++
				if f.Trees.Measure {
					require.Positive(t, tr.Forked, "before a turn that reads a result")
				}
			}
			if tr.RewardParts != nil {
				rewarded++
			}
			for k := tr.Forked; k < len(tr.Turns); k++ {
				own += tr.Turns[k].Sampled()
			}
			if tr.ForkedAt > 0 {
				within++
				if len(tr.Turns[tr.Forked].Begun) > 1 {
					twice++
				}
			}
			if tree := f.Trees; tree.Measure {
				for _, turn := range tr.Turns {
					require.Positive(t, turn.Entropy)
				}
			}
		}
		require.Equal(t, size, rewarded, "a reward a leaf")
		require.Equal(t, int(f.sampled.Load()), own, "every sampled token is one trajectory's own")
		again := newForest(t, *f.Trees)
		same, err := again.Grow(t.Context(), rollout.Place{Phase: "train", Step: trial}, task, size, nil, nil)
		require.NoError(t, err)
		for i := range same.Trajectories {
			require.Equal(t, rollouttest.Timeless(group.Trajectories[i]), rollouttest.Timeless(same.Trajectories[i]))
		}
	}
	require.Greater(t, forks[1], 200)
	require.Greater(t, forks[2], 100)
	require.Greater(t, within, 200)
	require.Positive(t, twice)
}

// The entropy of a turn is the mean over its first tokens of the least that the likeliest tokens leave open, or of -log p of what was sampled; both from what
// Generate tells. Nothing else of a trajectory has the likeliest tokens, and an engine that tells too few fails the trajectory.
func TestEntropiesAreMeasured(t *testing.T) {
	for _, top := range []int{3, 0} {
		f := newForest(t, rollout.Trees{Roots: 1, Measure: true, Tokens: 4, Top: top, Vocabulary: 258, Rule: tree.Entropy{Vocabulary: 258}})
		fewer := false
		var want []float64
		f.Engine = altered{f.Engine, func(q engines.Request, c *engines.Completion) {
			require.Equal(t, top, q.Top)
			sum := 0.0
			for i := range c.TokenIDs {
				share := float32(i+1) / 20
				if c.Logprobs[i] = -share; top > 0 {
					c.Top[i] = []engines.Alternative{{ID: 1, Logprob: float32(math.Log(0.5))}, {ID: 2, Logprob: float32(math.Log(0.25))}, {ID: 3, Logprob: float32(math.Log(float64(share)))}}
				}
				if p := float64(share); i < 4 && top > 0 {
					sum -= 0.5*math.Log(0.5) + 0.25*math.Log(0.25) + p*math.Log(p) + (0.25-p)*math.Log(min(p, 0.25-p))
				} else if i < 4 {
					sum += p
				}
			}
			want = append(want, sum/4)
			if fewer {
				c.Top = c.Top[1:]
			}
		}}
		group, err := f.Grow(t.Context(), rollout.Place{Phase: "train"}, rollouttest.Task("q", "1+1?", "2"), 1, nil, nil)
		require.NoError(t, err)
		require.NotEmpty(t, want)
		for i, turn := range group.Trajectories[0].Turns {
			require.InDelta(t, want[i], turn.Entropy, 1e-5)
		}
		if fewer = top > 0; !fewer {
			continue
		}
		group, err = f.Grow(t.Context(), rollout.Place{Phase: "train", Step: 1}, rollouttest.Task("q", "1+1?", "2"), 1, nil, nil)
		require.NoError(t, err)
		require.Contains(t, group.Trajectories[0].Err, "places, which rollout.tree.top asks for, and sampled")
	}
	require.Equal(t, 257, (&rollout.Trees{Top: 300, Vocabulary: 258}).Likeliest(), "the last one's probability is known from the others")
}

// altered is an engine whose completions are changed.
type altered struct {
	engines.Engine
	change func(q engines.Request, c *engines.Completion)
}

func (e altered) Generate(ctx context.Context, q engines.Request) (engines.Completion, error) {
	c, err := e.Engine.Generate(ctx, q)
	if err == nil {
		e.change(q, &c)
	}
	return c, err
}

// process is one life of a run that grows a group into a store, which is killed after so many turns were recorded, or cancelled.
func process(t *testing.T, path string, f *forest, place rollout.Place, task trajectory.Task, size, kill int) (group trajectory.Group, killed bool) {
	db, err := store.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	log, err := db.Recover(t.Context(), 0)
	require.NoError(t, err)
	ended, partial := map[string]*trajectory.Trajectory{}, map[string]*trajectory.Trajectory{}
	var before []tree.Leaf
	if len(log.Outstanding) == 0 {
		require.NoError(t, db.Admit(t.Context(), store.Admission{Phase: "train", Step: place.Step, Size: size, Task: task}))
	} else {
		for i := range size {
			done, begun := log.Outstanding[0].Finished[i], log.Outstanding[0].Partial[i]
			require.False(t, done != nil && begun != nil)
			for _, tr := range []*trajectory.Trajectory{done, begun} {
				if tr != nil && f.spoil != nil {
					f.spoil(tr)
				}
				if tr != nil {
					before = append(before, tree.Leaf{Index: tr.Index, Branch: tr.Branch, Forked: tr.Forked, At: tr.ForkedAt})
				}
			}
			if done != nil && done.Err == "" {
				ended[done.ID] = done
			}
			switch {
			case begun != nil && f.Tools.KeepsState(): // as package recovery does
				db.Restart(begun.ID)
			case begun != nil:
				partial[begun.ID] = begun
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	records := 0
	var one sync.Mutex
	dead := func() bool { // nothing is written from then on
		one.Lock()
		defer one.Unlock()
		if records++; kill > 0 && records >= kill {
			killed = true
			cancel()
		}
		return killed
	}
	if f.External != nil {
		f.External.Forget = db.Restart
	}
	f.Record = func(ctx context.Context, tr *trajectory.Trajectory) error {
		if dead() {
			return errors.New("killed")
		}
		return db.AddTurn(ctx, tr)
	}
	f.Recovered = func(id string) (*trajectory.Trajectory, bool) {
		if done := ended[id]; done != nil {
			return done, true
		}
		return partial[id], false
	}
	group, err = f.Grow(ctx, place, task, size, before, func(tr *trajectory.Trajectory) error {
		one.Lock()
		gone := killed
		one.Unlock()
		if gone || ended[tr.ID] == tr || tr.StopReason == trajectory.StopCancelled {
			return nil
		}
		return db.AddTrajectory(context.WithoutCancel(ctx), "train", task, tr)
	})
	require.NoError(t, err)
	return group, killed
}

// 1,000 random trees that are killed at random moments, several times each, while engines fail at random: what was recorded is not sampled again,
// every turn is there once, and without failures the trees are those of a run that nothing interrupted, bit for bit.
func TestThousandTreesAreKilledAndGoOn(t *testing.T) {
	trials := 100 // of a thousand, which make test-long kills
	if os.Getenv("AGENTFLY_LONG") != "" {
		trials = 1000
	}
	var kills, failures atomic.Int64
	t.Run("trees", func(t *testing.T) {
		for shard := range 8 {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				for trial := shard; trial < trials; trial += 8 {
					killTree(t, trial, &kills, &failures)
				}
			})
		}
	})
	require.Greater(t, kills.Load(), int64(trials))
	require.Greater(t, failures.Load(), int64(trials/10))
}

func killTree(t *testing.T, trial int, kills, failures *atomic.Int64) {
	defer func() {
		if t.Failed() {
			t.Logf("trial %d", trial)
		}
	}()
	rng := rand.New(rand.NewPCG(uint64(trial), 7))
	size := 1 + rng.IntN(10)
	trees := anyTrees(rng, size)
	f := newForest(t, trees)
	stateful := rng.IntN(3) == 0
	if stateful {
		remembering(t, f)
	}
	guested := !stateful && rng.IntN(3) == 0
	posts := guested && rng.IntN(2) == 0
	failing := rng.IntN(2) == 0
	life := 0
	if failing { // each life fails elsewhere
		f.fails = func(q engines.Request) bool { return hashed(q.Seed, life)%12 == 0 }
	}
	place := rollout.Place{Phase: "train", Step: trial % 3}
	task := rollouttest.Task(fmt.Sprint("q", trial), "1+1?", "2")
	path := filepath.Join(t.TempDir(), "s.db")
	var group trajectory.Group
	for killed := true; killed; life++ {
		kill := 0
		if life < 3 {
			kill = 1 + rng.IntN(3*size)
		}
		if guested { // a process has a gateway of its own, which a late request of a killed agent does not reach
			programs(t, f).posts = posts
		}
		group, killed = process(t, path, f, place, task, size, kill)
		if killed {
			kills.Add(1)
		}
	}
	checkTrees(t, group, size)
	for _, tr := range group.Trajectories {
		if stateful {
			checkPages(t, tr)
		}
		if tr.Err != "" {
			failures.Add(1)
		}
	}
	db, err := store.OpenReader(path)
	require.NoError(t, err)
	stored, err := db.Groups(t.Context(), []store.GroupRef{{Step: place.Step}}, "")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.Len(t, stored[0].Trajectories, size)
	whole := newForest(t, trees)
	if stateful {
		remembering(t, whole)
	}
	if guested {
		programs(t, whole).posts = posts
	}
	want, err := whole.Grow(t.Context(), place, task, size, nil, nil)
	require.NoError(t, err)
	for i, tr := range group.Trajectories {
		require.Equal(t, rollouttest.Timeless(tr), rollouttest.Timeless(stored[0].Trajectories[i]), "what is stored is what was sampled")
		if !failing {
			require.Equal(t, rollouttest.Timeless(want.Trajectories[i]), rollouttest.Timeless(tr), "trial %d", trial)
		}
	}
}

//go:build torch

package trainer

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/wangkuiyi/gotorch"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/policy/policytest"
	"github.com/agentfly/agentfly/trajectory"
)

// rankJob is what a process of these tests does; rankResult what it found.
type rankJob struct {
	Kind     string // gradients, steps
	Block    string // of the algorithm
	Critic   bool   // the model has a value head
	Adapter  bool   // the model has an adapter
	Sharding cgo.Sharding
	Context  int    // neighbours that share the tokens of each micro-batch; 0: 1
	Tensor   int    // neighbours that share the layers; 0: 1
	BFloat16 bool   // the model computes in bfloat16
	Shared   bool   // rank 0's parameters are read behind a barrier after every write
	Lend     bool   // its device's memory is lent between all steps
	Stops    bool   // calls between the steps and the checkpoint are interrupted at one place after the other
	Cut      bool   // a completion is cut in every step, and such trajectories are left out
	Seed     uint64 // of the model; other ranks get another one, so that nothing works without rank 0's weights
	From, To int    // steps
	Load     string // folder with model/ and the trainer's state
	Save     string
	Bad      string        // how the loss misbehaves: see badLoss
	Alone    int           // rank whose loss fails, and no other's; 0: none
	Kill     int           // rank that kills itself in its first loss; 0: none
	Stop     int           // likewise, stopped
	Late     time.Duration // that rank 0 takes before it makes its trainer
	Timeout  time.Duration
}

type rankResult struct {
	Rank                   int
	Parameters             map[string][]float32
	Loaded                 map[string][]float32 // parameters after loading
	Gradients              map[string][]float32
	Moments, LoadedMoments []map[string][]float32
	Metrics                []Metrics
	Logprobs               []float32              // of the last batch, after the steps
	Written                []map[string][]float32 // what a reader behind the barrier sees
	Steps                  int64
	Err                    string
	ErrRank                bool
}

// TestRankProcess is not a test of its own: runRanks starts the test binary with it.
func TestRankProcess(t *testing.T) {
	text := os.Getenv("AGENTFLY_TEST_RANK_JOB")
	if text == "" {
		t.Skip("a helper process of the tests of ranks")
	}
	var j rankJob
	require.NoError(t, json.Unmarshal([]byte(text), &j))
	cgo.SetThreads(1)
	c, ok, err := cgo.GroupFromEnv()
	require.NoError(t, err)
	require.True(t, ok)
	c.Timeout, c.Sharding = j.Timeout, j.Sharding
	g, err := cgo.NewGroup(c)
	require.NoError(t, err)
	defer g.Close()
	n, err := cgo.NewNeighbours(c, j.Context, j.Tensor)
	require.NoError(t, err)
	defer n.Close()
	r := rankResult{Rank: g.Rank()}
	if err := j.run(t, g, n, &r); err != nil {
		r.Err, r.ErrRank = err.Error(), errors.Is(err, cgo.ErrRank)
	}
	var out bytes.Buffer
	require.NoError(t, gob.NewEncoder(&out).Encode(r))
	require.NoError(t, os.WriteFile(filepath.Join(os.Getenv("AGENTFLY_TEST_OUT"), strconv.Itoa(g.Rank())), out.Bytes(), 0o644))
}

func (j rankJob) run(t *testing.T, g *cgo.Group, together cgo.Neighbours, r *rankResult) error {
	seed := j.Seed
	if g.Rank() > 0 {
		seed += 100
	}
	p := policytest.Make(t, seed)
	if j.Load != "" && g.Rank() == 0 && !j.Adapter { // an adapter's base is its owner's
		p = policytest.Load(t, filepath.Join(j.Load, "model"))
	}
	if j.Critic {
		addCritic(t, p)
	}
	if j.Adapter {
		require.NoError(t, p.Model.AddAdapter(cgo.AdapterConfig{Rank: 2, Alpha: 8, Targets: []string{"q_proj", "down_proj"}, Seed: seed}))
	}
	if j.BFloat16 {
		require.NoError(t, p.Model.SetDType(cgo.BF16))
	}
	config := tinyConfig()
	if j.Shared && g.Rank() == 0 {
		config.Shared = true
		config.Barrier = func(ctx context.Context, write func(context.Context) error) error {
			err := write(ctx)
			r.Written = append(r.Written, trainedOf(t, p))
			return err
		}
	}
	config.Reference = FrozenModel{policytest.Make(t, 77).Model} // read only where kl asks for it
	config.Schedule = Schedule{LearningRate: 1e-2, Kind: "cosine", Warmup: 1, Total: 9}
	if g.Rank() > 0 { // rank 0's holds on all
		config.Schedule = Schedule{LearningRate: 1}
	}
	config.AdamW.WeightDecay = 0.1
	config.Group, config.Neighbours = g, together
	if g.Rank() == 0 {
		time.Sleep(j.Late)
	}
	spec := algorithms.LossSpec{Name: "ranked", New: func(algorithms.Settings) (algorithms.Loss, error) { return rankLoss{j, g.Rank()}, nil }}
	tr := makeTrainer(t, p, resolveBlock(t, j.Block, spec), config)
	if j.Kind == "gradients" {
		return j.gradients(t, g, tr, r)
	}
	if g.Rank() > 0 {
		err := tr.Follow(context.Background())
		if r.Steps = tr.Steps(); !j.BFloat16 || j.Sharding != cgo.FSDP {
			r.Parameters = trainedOf(t, p)
		}
		return err
	}
	if j.Load != "" {
		if err := tr.Load(j.Load); err != nil {
			return err
		}
		var err error
		r.Loaded = trainedOf(t, p)
		if r.LoadedMoments, err = allMoments(tr); err != nil {
			return err
		}
	}
	var samples []*trajectory.Sample // of the last batch
	for i := j.From; i < j.To; i++ {
		b := withTurns(someBatch(t, tr, uint64(20+i), 0.05))
		samples = nil
		for _, g := range b.Groups {
			for _, tj := range g.Trajectories {
				samples = append(samples, tj.Samples...)
			}
		}
		if j.Bad == "" {
			b.Step = i
		}
		b.Groups[0].Trajectories[1].Turns[0].Reward = new(float64)
		if j.Cut {
			b.FilterCut = true
			cut := b.Groups[1].Trajectories[2]
			cut.StopReason, cut.Turns[len(cut.Turns)-1].FinishReason = trajectory.StopMaxTokens, trajectory.FinishLength
		}
		if j.Bad != "" { // advantages 0.75 and -0.25, but g1/2's is 1.5
			for _, g := range b.Groups {
				for k, tj := range g.Trajectories {
					tj.Reward = 0
					if k == 2 {
						tj.Reward = 1
					}
				}
			}
			b.Groups[1].Trajectories[2].Reward = 2
		}
		if j.Lend {
			if err := tr.ReclaimMemory(context.Background()); err != nil {
				return err
			}
		}
		m, err := tr.Step(context.Background(), b)
		if err == nil && j.Lend {
			err = tr.LendMemory(context.Background())
		}
		if err != nil {
			g.Fail(err.Error())
			return err
		}
		r.Metrics = append(r.Metrics, m)
	}
	r.Parameters, r.Steps = trainedOf(t, p), tr.Steps()
	if j.Stops {
		if err := interrupt(tr, samples); err != nil {
			return err
		}
	}
	scores, err := tr.Logprobs(context.Background(), samples, 1)
	if err != nil {
		return err
	}
	for _, s := range scores {
		r.Logprobs = append(r.Logprobs, s.Logprobs...)
	}
	if r.Moments, err = allMoments(tr); err != nil {
		return err
	}
	if j.Save != "" {
		if err := p.SaveHF(filepath.Join(j.Save, "model"), "F32"); err != nil {
			return err
		}
		if err := tr.Save(j.Save); err != nil {
			return err
		}
	}
	return tr.Release()
}

// ending is a context that ends when it was asked so often whether it has.
type ending struct {
	context.Context
	left int
}

func (e *ending) Err() error {
	if e.left--; e.left < 0 {
		return context.Canceled
	}
	return nil
}

// interrupt ends calls of rank 0 before they begin and at each place where they look whether they are to end.
func interrupt(tr *Trainer, samples []*trajectory.Sample) error {
	after := 0
	for ; ; after++ {
		_, err := tr.Logprobs(&ending{context.Background(), after}, samples, 1)
		if err == nil {
			break
		}
		if !errors.Is(err, context.Canceled) {
			return fmt.Errorf("logprobs that end when they were asked %d times: %w", after, err)
		}
	}
	if after < 3 {
		return fmt.Errorf("%d places of logprobs: there are not several micro-batches", after)
	}
	for _, call := range []func(context.Context) error{tr.LendMemory, tr.ReclaimMemory} {
		for after := range 3 {
			if err := call(&ending{context.Background(), after}); err != nil && !errors.Is(err, context.Canceled) {
				return err
			}
		}
	}
	return tr.ReclaimMemory(context.Background())
}

// trainedOf is all that a step changes.
func trainedOf(t *testing.T, p *policy.Policy) map[string][]float32 {
	out := map[string][]float32{}
	for _, info := range p.Model.Trained() {
		values, err := p.Model.Parameter(info.Name)
		require.NoError(t, err)
		out[info.Name] = values
	}
	return out
}

func allMoments(tr *Trainer) (out []map[string][]float32, err error) {
	for _, m := range moments {
		all := map[string][]float32{}
		for _, info := range tr.model.Trained() {
			if all[info.Name], err = (shardedState{tr.optimizer, tr.ranks}).get(info.Name, m.moment); err != nil {
				return nil, err
			}
		}
		out = append(out, all)
	}
	return out, nil
}

// gradients sums what the ranks compute before the optimizer, as the step's own path does.
func (j rankJob) gradients(t *testing.T, g *cgo.Group, tr *Trainer, r *rankResult) error {
	alone := &Trainer{model: tr.model, worker: tr.worker, config: tr.config} // every rank makes the batch for itself
	r.Gradients = gradients(t, tr, someBatch(t, alone, 20, 0.05))
	for _, info := range tr.model.Trained() {
		if err := g.AllReduce(r.Gradients[info.Name]); err != nil {
			return err
		}
	}
	return nil
}

// rankLoss is REINFORCE that goes wrong on one rank as the job says.
type rankLoss struct {
	job  rankJob
	rank int
}

func (rankLoss) Name() string { return "ranked" }

func (l rankLoss) PerToken(in algorithms.LossInput) (gotorch.Tensor, error) {
	switch l.rank {
	case 0:
	case l.job.Alone:
		return gotorch.Tensor{}, errors.New("this rank alone refuses")
	case l.job.Kill:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case l.job.Stop:
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
	if l.job.Bad != "" {
		return badLoss{l.job.Bad}.PerToken(in)
	}
	return in.Neg(in.Mul(in.Current, in.Advantage)), in.Err()
}

// way names how the ranks share the work.
func (j rankJob) way() string {
	return fmt.Sprintf("context %d, tensor %d, %s", j.Context, j.Tensor, cgo.Shardings[j.Sharding])
}

func startRankJob(t *testing.T, j rankJob, world int) (cmds []*exec.Cmd, out string) {
	t.Helper()
	if j.Timeout == 0 {
		j.Timeout = 20 * time.Second
	}
	if j.Block == "" {
		j.Block = "{}"
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	text, err := json.Marshal(j)
	require.NoError(t, err)
	out = t.TempDir()
	for r := range world {
		cmd := exec.Command(os.Args[0], "-test.run=^TestRankProcess$")
		log, err := os.Create(filepath.Join(out, fmt.Sprintf("%d.log", r)))
		require.NoError(t, err)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.Env = append(os.Environ(), "AGENTFLY_TEST_RANK_JOB="+string(text), "AGENTFLY_TEST_OUT="+out, "RANK="+strconv.Itoa(r),
			"WORLD_SIZE="+strconv.Itoa(world), "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+strconv.Itoa(port), "OMP_NUM_THREADS=1")
		require.NoError(t, cmd.Start())
		cmds = append(cmds, cmd)
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); _ = log.Close() })
	}
	return cmds, out
}

// runRanks runs a job in so many processes and returns what each found; one that was killed left nothing.
func runRanks(t *testing.T, j rankJob, world int) []*rankResult {
	t.Helper()
	cmds, out := startRankJob(t, j, world)
	results := make([]*rankResult, world)
	for r, cmd := range cmds {
		results[r] = waitRank(t, cmd, out, r)
	}
	return results
}

func waitRank(t *testing.T, cmd *exec.Cmd, out string, r int) *rankResult {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		_ = cmd.Process.Signal(syscall.SIGKILL)
		<-done
		t.Fatalf("rank %d hung", r)
	}
	data, err := os.ReadFile(filepath.Join(out, strconv.Itoa(r)))
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(out, fmt.Sprintf("%d.log", r)))
		t.Fatalf("rank %d left no result: %s", r, log)
	}
	var result rankResult
	require.NoError(t, gob.NewDecoder(bytes.NewReader(data)).Decode(&result))
	return &result
}

// layouts are numbers of ranks, and of those that share the tokens of each micro-batch and the layers. The first four have one of each kind.
var layouts = []struct{ world, context, tensor int }{{2, 1, 1}, {3, 1, 1}, {4, 2, 1}, {4, 1, 2}, {2, 2, 1}, {3, 3, 1}, {2, 1, 2}, {4, 1, 4}, {4, 2, 2}}

// The gradient that several processes sum is that of one process, within 1e-6 of each tensor's norm.
func TestRanksGiveTheSameGradients(t *testing.T) {
	for _, block := range []string{"{}", "{advantage: dr_grpo, aggregation: seq-mean-token-mean, entropy: 0.01}"} {
		one := runRanks(t, rankJob{Kind: "gradients", Seed: 3, Block: block}, 1)[0]
		require.Empty(t, one.Err)
		for _, l := range layouts {
			for _, r := range runRanks(t, rankJob{Kind: "gradients", Seed: 3, Block: block, Context: l.context, Tensor: l.tensor}, l.world) {
				require.Empty(t, r.Err)
				sameGradients(t, one.Gradients, r.Gradients, 1e-6)
			}
		}
	}
}

// Several steps with several updates each: parameters and metrics are those of one process within float noise, and every
// rank ends with the same bits.
func TestRanksTakeTheSameSteps(t *testing.T) {
	for name, j := range map[string]rankJob{
		"several updates": {Block: "{advantage: dr_grpo, epochs: 2, mini_batches: 2, entropy: 0.01}"},
		"critic":          {Block: "{advantage: gae, kl: {coefficient: 0.1, in: reward}}", Critic: true},
		"reference":       {Block: "{kl: {coefficient: 0.1}}"},
		"turns":           {Block: "{advantage: turn}"},
		"adapter":         {Block: "{loss: gspo, epochs: 2}", Adapter: true},
		"cut":             {Block: "{}", Cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			j.Kind, j.Seed, j.To = "steps", 4, 3
			one := runRanks(t, j, 1)[0]
			require.Empty(t, one.Err)
			for _, l := range layouts[:4] {
				j.Context, j.Tensor = l.context, l.tensor
				ranks := runRanks(t, j, l.world)
				for _, r := range ranks {
					require.Empty(t, r.Err)
					require.Equal(t, ranks[0].Parameters, r.Parameters, "rank %d", r.Rank)
					require.Equal(t, one.Steps, r.Steps)
				}
				sameGradients(t, one.Parameters, ranks[0].Parameters, 1e-4) // Adam divides noise by noise where gradients vanish
				require.InDeltaSlice(t, one.Logprobs, ranks[0].Logprobs, 1e-3)
				for i := range one.Metrics {
					require.Equal(t, j.Cut, one.Metrics[i].Filtered == 1, "a trajectory whose end was cut")
					sameMetrics(t, one.Metrics[i], ranks[0].Metrics[i])
				}
			}
		})
	}
}

// FSDP takes ZeRO-1's steps bit for bit: the same sums in the same order, at other times. In bfloat16 rank 0 alone has the float32
// parameters, between the steps.
func TestRanksOverlap(t *testing.T) {
	for name, j := range map[string]rankJob{
		"several updates": {Block: "{advantage: dr_grpo, epochs: 2, mini_batches: 2, entropy: 0.01}"},
		"critic":          {Block: "{advantage: gae, kl: {coefficient: 0.1, in: reward}}", Critic: true, BFloat16: true},
		"adapter":         {Block: "{loss: gspo, epochs: 2}", Adapter: true, BFloat16: true, Shared: true},
		"bfloat16":        {Block: "{advantage: dr_grpo, epochs: 2, mini_batches: 2}", BFloat16: true},
	} {
		t.Run(name, func(t *testing.T) {
			j.Kind, j.Seed, j.To = "steps", 4, 3
			for _, l := range layouts[:4] {
				world := l.world
				j.Sharding, j.Context, j.Tensor = cgo.ZeRO1, l.context, l.tensor
				want := runRanks(t, j, world)[0]
				require.Empty(t, want.Err)
				j.Sharding = cgo.FSDP
				for _, r := range runRanks(t, j, world) {
					require.Empty(t, r.Err)
					require.Equal(t, want.Steps, r.Steps)
					if !j.BFloat16 || r.Rank == 0 {
						require.Equal(t, want.Parameters, r.Parameters, "rank %d of %d", r.Rank, world)
					}
					if r.Rank == 0 {
						require.Equal(t, want.Moments, r.Moments)
						require.Equal(t, want.Metrics, r.Metrics)
						require.Equal(t, want.Written, r.Written)
						require.Equal(t, j.Shared, len(r.Written) > 1)
					}
				}
			}
		})
	}
}

// Memory that all ranks lend between all steps changes no bit of a run, and its state can be saved meanwhile.
func TestLentMemoryKeepsTheBits(t *testing.T) {
	j := rankJob{Kind: "steps", Seed: 4, To: 3, Block: "{advantage: gae, kl: {coefficient: 0.1, in: reward}, epochs: 2}", Critic: true}
	for _, world := range []int{1, 2} {
		for _, sharding := range []cgo.Sharding{cgo.ZeRO1, cgo.FSDP} {
			// With FSDP in bfloat16 the rounded weights are all that a rank above 0 has.
			j.Sharding, j.BFloat16 = sharding, sharding == cgo.FSDP
			j.Lend, j.Save = false, ""
			want := runRanks(t, j, world)
			j.Lend, j.Save = true, t.TempDir()
			got := runRanks(t, j, world)
			for i := range want {
				require.Empty(t, want[i].Err)
				require.Empty(t, got[i].Err)
				require.Equal(t, want[i].Parameters, got[i].Parameters, "rank %d of %d", i, world)
				require.Equal(t, want[i].Moments, got[i].Moments)
				require.Equal(t, want[i].Steps, got[i].Steps)
			}
		}
	}
}

// A step while memory is lent is an error, of a trainer alone too, and reclaiming it mends that.
func TestAStepNeedsItsMemory(t *testing.T) {
	tr := makeTrainer(t, policytest.Make(t, 4), resolveBlock(t, "{}"), tinyConfig())
	require.NoError(t, tr.ReclaimMemory(t.Context()), "nothing is lent")
	require.NoError(t, tr.LendMemory(t.Context()))
	b := someBatch(t, tr, 20, 0.05)
	_, err := tr.Step(t.Context(), b)
	require.ErrorContains(t, err, "the optimizer's memory was released; restore it first")
	require.NoError(t, tr.ReclaimMemory(t.Context()))
	_, err = tr.Step(t.Context(), b)
	require.NoError(t, err)
}

// Calls that an interruption ends, before they begin or between two micro-batches, end on all ranks alike: the run can be saved.
func TestInterruptedCallsLeaveTheRanksTogether(t *testing.T) {
	for _, l := range []struct{ world, context, tensor int }{{2, 1, 1}, {2, 2, 1}, {2, 1, 2}, {4, 2, 2}} {
		j := rankJob{Kind: "steps", Seed: 4, To: 1, Context: l.context, Tensor: l.tensor, Stops: true, Save: t.TempDir()}
		t.Run(fmt.Sprintf("%d ranks, %s", l.world, j.way()), func(t *testing.T) {
			ranks := runRanks(t, j, l.world)
			for _, r := range ranks {
				require.Empty(t, r.Err)
				require.Equal(t, ranks[0].Parameters, r.Parameters)
			}
			require.FileExists(t, filepath.Join(j.Save, optimizerFile))
		})
	}
}

// Rank 0 may open a server before it trains, which takes longer than a collective may.
func TestRanksWaitForRankZeroToBegin(t *testing.T) {
	for _, r := range runRanks(t, rankJob{Kind: "steps", Seed: 4, To: 1, Timeout: 5 * time.Second, Late: 8 * time.Second}, 2) {
		require.Empty(t, r.Err)
		require.Equal(t, int64(1), r.Steps)
	}
}

// A turn's reward of 0 is not the reward of a turn that has none, and a completion that was cut is one on the other ranks too.
func TestOrdersKeepTurnRewards(t *testing.T) {
	zero, one := 0.0, 1.0
	b := Batch{Step: 3, FilterCut: true, Groups: []*trajectory.Group{{
		Task: trajectory.Task{ID: "a", Fields: map[string]any{"list": []any{1}}},
		Trajectories: []*trajectory.Trajectory{
			{ID: "x", Reward: math.NaN(), Turns: []trajectory.Turn{{Reward: &zero}, {}, {Reward: &one}}},
			{ID: "y"},
			{ID: "z", StopReason: trajectory.StopMaxTokens, Turns: []trajectory.Turn{{FinishReason: trajectory.FinishLength}}},
		},
	}}}
	var text bytes.Buffer
	require.NoError(t, gob.NewEncoder(&text).Encode(stepOrder(b, Schedule{LearningRate: 0.5, Kind: "cosine", Total: 7})))
	var o order
	require.NoError(t, gob.NewDecoder(&text).Decode(&o))
	got := o.batch()
	require.Equal(t, 3, got.Step)
	require.Equal(t, Schedule{LearningRate: 0.5, Kind: "cosine", Total: 7}, o.Rates)
	require.Equal(t, "a", got.Groups[0].Task.ID)
	turns := got.Groups[0].Trajectories[0].Turns
	require.Equal(t, []*float64{&zero, nil, &one}, []*float64{turns[0].Reward, turns[1].Reward, turns[2].Reward})
	require.True(t, math.IsNaN(got.Groups[0].Trajectories[0].Reward))
	require.True(t, got.FilterCut)
	for i, cut := range []bool{false, false, true} {
		require.Equal(t, cut, got.Groups[0].Trajectories[i].Cut())
	}
	require.NotNil(t, b.Groups[0].Task.Fields, "the batch itself is left alone")
}

func sameMetrics(t *testing.T, a, b Metrics) {
	t.Helper()
	require.InDelta(t, a.Loss, b.Loss, 1e-4)
	require.InEpsilon(t, a.GradNorm, b.GradNorm, 1e-3)
	require.InDelta(t, a.Entropy, b.Entropy, 1e-4)
	require.InDelta(t, a.MismatchMean, b.MismatchMean, 1e-4)
	require.InDelta(t, a.ESS, b.ESS, 1e-4)
	require.Len(t, b.Samples, len(a.Samples))
	for i := range a.Samples {
		require.Equal(t, a.Samples[i].Trajectory, b.Samples[i].Trajectory)
		require.InDeltaSlice(t, a.Samples[i].Advantages, b.Samples[i].Advantages, 1e-4) // a critic's values are in them
		require.Len(t, b.Samples[i].OldLogprobs, len(a.Samples[i].OldLogprobs))
		for k := range a.Samples[i].OldLogprobs {
			require.InDelta(t, a.Samples[i].OldLogprobs[k], b.Samples[i].OldLogprobs[k], 1e-3)
		}
	}
	require.Equal(t, a.UnpackedTokens, b.UnpackedTokens)
	require.LessOrEqual(t, b.PackedTokens, b.UnpackedTokens)
	require.InDelta(t, a.AdvantageMax, b.AdvantageMax, 1e-4)
	require.Equal(t, a.Filtered, b.Filtered)
	require.InDelta(t, a.KL, b.KL, 1e-4)
	require.InDelta(t, a.ValueLoss, b.ValueLoss, 1e-4)
	require.InDelta(t, a.Explained, b.Explained, 1e-3)
	for _, m := range []*Metrics{&a, &b} {
		m.AdvantageMax, m.KL, m.ValueLoss, m.Explained = 0, 0, 0, 0
		m.Loss, m.GradNorm, m.Entropy, m.MismatchMean, m.MismatchMax, m.MismatchK3, m.ESS = 0, 0, 0, 0, 0, 0, 0
		m.ClipFraction, m.PackedTokens, m.MicroBatches, m.Samples = math.Round(10*m.ClipFraction), 0, 0, nil
	}
	require.Equal(t, a, b)
}

// A checkpoint does not know how many ranks wrote it: weights and optimizer state are exactly what was saved. With the
// same number the run goes on bit for bit, with another one within float noise.
func TestRanksResume(t *testing.T) {
	for _, from := range []int{1, 2} {
		dir := t.TempDir()
		whole := runRanks(t, rankJob{Kind: "steps", Seed: 9, To: 4}, from)[0]
		half := runRanks(t, rankJob{Kind: "steps", Seed: 9, To: 2, Save: dir}, from)[0]
		require.Empty(t, half.Err)
		for _, to := range []int{1, 2, 3} {
			ranks := runRanks(t, rankJob{Kind: "steps", Seed: 1, From: 2, To: 4, Load: dir}, to)
			require.Equal(t, half.Parameters, ranks[0].Loaded)
			require.Equal(t, half.Moments, ranks[0].LoadedMoments)
			require.Equal(t, int64(4), ranks[0].Steps)
			for _, r := range ranks {
				require.Empty(t, r.Err)
				require.Equal(t, ranks[0].Parameters, r.Parameters)
			}
			if from == to {
				require.Equal(t, whole.Parameters, ranks[0].Parameters)
				require.Equal(t, whole.Moments, ranks[0].Moments)
			}
			sameGradients(t, whole.Parameters, ranks[0].Parameters, 1e-4)
		}
	}
}

// So it is where the float32 parameters are spread, and with ZeRO-1's checkpoints; what is trained beside the base is loaded by the trainer.
func TestRanksResumeSpread(t *testing.T) {
	for _, j := range []rankJob{{}, {Adapter: true}} {
		dir := t.TempDir()
		j.Kind, j.Seed, j.To, j.BFloat16, j.Sharding = "steps", 9, 4, true, cgo.FSDP
		whole := runRanks(t, j, 2)[0]
		j.To, j.Save = 2, dir
		half := runRanks(t, j, 2)[0]
		require.Empty(t, half.Err)
		j.From, j.To, j.Load, j.Save = 2, 4, dir, ""
		if j.Seed = 1; j.Adapter {
			j.Seed = 9 // its base is not saved
		}
		for _, to := range []int{1, 2, 3} {
			for _, sharding := range []cgo.Sharding{cgo.ZeRO1, cgo.FSDP} {
				if j.Sharding = sharding; sharding == cgo.ZeRO1 && to != 2 {
					continue
				}
				r := runRanks(t, j, to)[0]
				require.Empty(t, r.Err)
				require.Equal(t, half.Parameters, r.Loaded)
				require.Equal(t, half.Moments, r.LoadedMoments)
				if to == 2 {
					require.Equal(t, whole.Parameters, r.Parameters)
					require.Equal(t, whole.Moments, r.Moments)
				}
			}
		}
	}
}

const ranked = "{advantage: dr_grpo, loss: ranked}"

// An error on one rank is the error of the step on all of them, and names the trajectory whoever computed it.
func TestAFailureOnOneRankEndsAll(t *testing.T) {
	for bad, want := range map[string]string{"infinite": "trajectory g1/2: token ", "gradient": "trajectory g1/2: ", "panic": "index out of range", "error": "refuses"} {
		for _, j := range []rankJob{{}, {Sharding: cgo.FSDP, BFloat16: bad == "error"}, {Context: 2}, {Tensor: 2}} {
			j.Kind, j.Seed, j.To, j.Bad, j.Block = "steps", 6, 1, bad, ranked
			t.Run(bad+" "+j.way(), func(t *testing.T) {
				t.Parallel() // ranks wait for each other's end
				for _, r := range runRanks(t, j, 3+(j.Context+j.Tensor)/2) {
					require.Contains(t, r.Err, want)
					require.Contains(t, r.Err, "trainer: step 8: optimizer step 1 of 1: ")
					require.Equal(t, int64(0), r.Steps)
				}
			})
		}
	}
}

// Where one rank of several that compute a micro-batch fails, the others are told why, and nobody waits for it.
func TestARankThatFailsWithinAMicroBatch(t *testing.T) {
	for _, j := range []rankJob{{Context: 2}, {Context: 2, Sharding: cgo.FSDP}, {Tensor: 2}, {Tensor: 4, Sharding: cgo.FSDP}, {Context: 2, Tensor: 2}} {
		j.Kind, j.Seed, j.To, j.Block, j.Alone, j.Timeout = "steps", 6, 1, ranked, 1, 100*time.Second
		t.Run(j.way(), func(t *testing.T) {
			t.Parallel() // ranks wait for each other's end
			start := time.Now()
			for _, r := range runRanks(t, j, 4) {
				require.Contains(t, r.Err, "this rank alone refuses", "rank %d", r.Rank)
			}
			require.Less(t, time.Since(start), 90*time.Second)
		})
	}
}

// Ranks that compute micro-batches together resume bit for bit, and on their own within float noise.
func TestNeighboursResume(t *testing.T) {
	for _, l := range []struct{ context, tensor int }{{2, 1}, {1, 2}} {
		dir := t.TempDir()
		j := rankJob{Kind: "steps", Seed: 9, To: 4, Context: l.context, Tensor: l.tensor}
		whole := runRanks(t, j, 2)[0]
		require.Empty(t, whole.Err)
		j.To, j.Save = 2, dir
		require.Empty(t, runRanks(t, j, 2)[0].Err)
		j = rankJob{Kind: "steps", Seed: 1, From: 2, To: 4, Load: dir, Context: l.context, Tensor: l.tensor}
		again := runRanks(t, j, 2)[0]
		require.Empty(t, again.Err)
		require.Equal(t, whole.Parameters, again.Parameters)
		require.Equal(t, whole.Moments, again.Moments)
		j.Context, j.Tensor = 0, 0
		apart := runRanks(t, j, 2)[0]
		require.Empty(t, apart.Err)
		sameGradients(t, whole.Parameters, apart.Parameters, 1e-4)
	}
}

// A rank that is killed or stopped within a step: the others end within the deadline with one line that names it.
func TestALostRankIsNamed(t *testing.T) {
	for _, j := range []rankJob{{Kill: 2}, {Stop: 1}, {Kill: 1, Sharding: cgo.FSDP}, {Stop: 2, Sharding: cgo.FSDP, BFloat16: true}, {Kill: 2, Context: 3}, {Stop: 1, Context: 3}, {Kill: 1, Tensor: 2}} {
		j.Kind, j.Seed, j.To, j.Block, j.Timeout = "steps", 6, 1, ranked, 10*time.Second // which the start takes too
		t.Run(fmt.Sprintf("kill %d, stop %d, %s", j.Kill, j.Stop, j.way()), func(t *testing.T) {
			t.Parallel() // ranks wait for the deadline
			start := time.Now()
			cmds, out := startRankJob(t, j, max(3, 2*j.Tensor))
			for r, cmd := range cmds {
				if r == j.Kill+j.Stop {
					continue
				}
				result := waitRank(t, cmd, out, r)
				require.Contains(t, result.Err, fmt.Sprintf("rank %d", j.Kill+j.Stop))
				require.True(t, result.ErrRank)
				require.NotContains(t, result.Err, "\n")
				t.Log(result.Err)
			}
			require.Less(t, time.Since(start), time.Minute)
		})
	}
}

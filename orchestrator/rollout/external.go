package rollout

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/internal/sessionkey"
	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/orchestrator/external"
	"github.com/agentfly/agentfly/trajectory"
)

// External has agents that are programs of their own take the turns of trajectories, over a gateway.
type External struct {
	Gateway *gateway.Gateway
	Runner  external.Runner
	URL     string        // of the gateway, without /v1
	Tokens  int           // that a trajectory may sample; 0: any number
	Time    time.Duration // of a trajectory's agent, until it is told to stop; 0: any
	Secret  []byte        // the keys of sessions follow from it and the trajectory: where agents live on, it must be the same when a run goes on
	Adopt   bool          // agents live on when the process ends
	// Forget drops what was recorded of a trajectory that is not what it was; nil: nothing is recorded.
	Forget func(id string)
}

// key is the key of a trajectory's session.
func (x *External) key(run, id string) string {
	return sessionkey.Of(x.Secret, run+"/"+id)
}

// Forgo has requests of agents that live on be refused whose trajectories, which are those of a run with these ids, do not go on after all. x may be nil.
func (x *External) Forgo(run string, ids ...string) {
	if x != nil && x.Adopt {
		x.Gateway.Forgo(x.keys(run, ids)...)
	}
}

// KnowEnded has agents that live on be told that the results are stored of their trajectories, of a run, which have ended, where they post these again: a
// process may end before it says so. x may be nil.
func (x *External) KnowEnded(run string, ended ...*trajectory.Trajectory) {
	if x == nil {
		return
	}
	if online, ok := x.Runner.(*external.Online); ok && x.Adopt {
		for _, t := range ended {
			if result := gateway.ResultOf(t); result != nil {
				online.Know(x.key(run, t.ID), result)
			}
		}
	}
}

func (x *External) keys(run string, ids []string) []string {
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = x.key(run, id)
	}
	return keys
}

// AwaitAgents has requests of agents that live on wait for their trajectories, which are those with these ids, and no others.
func (r *Sampler) AwaitAgents(ids ...string) {
	if r.External != nil && r.External.Adopt {
		r.External.Gateway.Await(r.External.keys(r.RunName, ids)...)
	}
}

// enter waits for a place for the agent of a trajectory, which is no time of the trajectory. leave gives the place back; it may be called again.
func (r *Sampler) enter(ctx context.Context, recovered *trajectory.Trajectory) (leave func(), err error) {
	if r.External == nil || r.Replay && recovered != nil {
		return func() {}, nil
	}
	if leave, err = r.External.Runner.Enter(ctx); err != nil {
		return nil, &failure{trajectory.OriginAgent, err}
	}
	return leave, nil
}

// external has the agent of one trajectory run to its end, after which it leaves its place. posted is the reward that came with it.
func (r *Sampler) external(ctx context.Context, p Place, t, recovered *trajectory.Trajectory, leave func()) (posted *float64, err error) {
	if r.Replay && recovered != nil {
		return nil, r.resample(ctx, p, t, recovered)
	}
	x, base := r.External, p.base()
	if recovered == base { // nothing of its own is there
		recovered = nil
	}
	if recovered != nil && !goesOn(recovered, base) {
		return nil, &failure{trajectory.OriginRender, &changedError{fmt.Sprintf("orchestrator: %s: what was recorded of it does not begin as the trajectory that it forks off", t.ID)}}
	}
	o := gateway.SessionOptions{
		Name: t.ID, Key: r.External.key(r.RunName, t.ID), Adopt: x.Adopt, Engine: r.RunName + "/" + p.root(), Tree: p.tree.branch(r.Engine), Budget: gateway.Budget{Calls: r.MaxTurns, Tokens: x.Tokens},
		Sampling:   &r.Sampling,
		Parse:      r.Cut == CutParse,
		MaxTotal:   r.MaxTotal,
		Seed:       func(call int) uint64 { return p.requestSeed(r.Seed, call) },
		Trajectory: t, Record: r.Record, Recovered: recovered,
		Rewrite: func() {
			if x.Forget != nil {
				x.Forget(t.ID)
			}
		},
	}
	switch {
	case x.Time > 0 && x.Adopt: // one that waits for its agent
		o.Budget.Time = x.Time
	case x.Time > 0:
		o.Budget.Until = time.Now().Add(x.Time)
	}
	s, err := x.Gateway.Open(o)
	switch {
	case errors.Is(err, gateway.ErrLost):
		return nil, &failure{trajectory.OriginRender, fmt.Errorf("orchestrator: %s: %w", t.ID, err)}
	case err != nil:
		return nil, &failure{trajectory.OriginAgent, err}
	}
	defer s.End()
	w := watchdog.Enter(ctx, "agent", t.ID)
	end, err := x.Runner.Run(ctx, external.Assignment{
		ID: t.ID, Phase: p.Phase, Task: p.Task, URL: x.URL, Key: o.Key, Resumed: x.Adopt && recovered != nil, Result: s.Concluded(), Keep: s.Conclude,
		Hold: s.Hold, Held: s.Held(),
	})
	w.Leave()
	leave()
	became := s.Finish()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(became.Err, engines.ErrForeign):
		return nil, &failure{trajectory.OriginWeights, became.Err}
	case errors.Is(became.Err, gateway.ErrOtherWay):
		return nil, &failure{trajectory.OriginAgent, fmt.Errorf("orchestrator: %s: %w", t.ID, became.Err)}
	case became.Err != nil:
		return nil, &failure{trajectory.OriginStore, became.Err}
	case became.Broke != nil: // the agent had to go on without a reply, or to give up
		return nil, &failure{trajectory.OriginEngine, fmt.Errorf("orchestrator: %w", became.Broke)}
	case err != nil && became.Refusal != nil: // the reason first: what the agent printed of it may be long
		return nil, &failure{trajectory.OriginAgent, fmt.Errorf("orchestrator: %s: %w; %w", t.ID, became.Refusal, err)}
	case err != nil:
		return nil, &failure{trajectory.OriginAgent, fmt.Errorf("orchestrator: %s: %w", t.ID, err)}
	case became.Unasked > 0:
		return nil, &failure{trajectory.OriginAgent, fmt.Errorf("orchestrator: %s: %w: it ended, and %d of the calls that lead to the fork did not come", t.ID, gateway.ErrOtherWay, became.Unasked)}
	case len(t.Turns) == 0 && became.Refusal != nil:
		return nil, &failure{trajectory.OriginAgent, fmt.Errorf("orchestrator: %s: %w; the agent ended and got no reply", t.ID, became.Refusal)}
	case len(t.Turns) == 0:
		return nil, &failure{trajectory.OriginAgent, fmt.Errorf("orchestrator: %s: the agent ended and never called the gateway at %s; it must take its base URL and its key from its environment", t.ID, x.URL)}
	}
	if end.Reward != nil && !(math.Abs(*end.Reward) <= gateway.MaxReward) {
		return nil, &failure{trajectory.OriginAgent, fmt.Errorf("orchestrator: %s: the agent's reward is %g; it must be from %g to %g", t.ID, *end.Reward, -gateway.MaxReward, gateway.MaxReward)}
	}
	if end.Answer != nil {
		r.External.answered(t, *end.Answer)
	}
	if posted = became.Posted; end.Reward != nil {
		sum := *end.Reward
		if posted != nil {
			sum += *posted
		}
		posted = &sum
	}
	_, answer := t.FinalAnswer()
	switch {
	case answer >= 0:
		t.StopReason = trajectory.StopAnswer
	case became.Cut:
		t.StopReason = trajectory.StopMaxTokens
	case became.Refused > 0:
		t.StopReason = trajectory.StopMaxTurns
	default:
		t.StopReason = trajectory.StopNoAction
	}
	return posted, nil
}

// answered makes what the agent wrote into its result the trajectory's answer.
func (x *External) answered(t *trajectory.Trajectory, answer string) {
	for i := range t.Turns {
		t.Turns[i].FinalAnswer, t.Turns[i].AnsweredThisTurn = "", false
	}
	last := &t.Turns[len(t.Turns)-1]
	last.FinalAnswer, last.AnsweredThisTurn = answer, true
	if x.Forget != nil {
		x.Forget(t.ID) // what is stored says otherwise
	}
}

// resample samples the recorded calls of a trajectory once more, and of those that others sampled, or begun, what is its own. What the agent made of them is
// taken as it was recorded.
func (r *Sampler) resample(ctx context.Context, p Place, t, recovered *trajectory.Trajectory) error {
	again, err := resampling{r, p, recovered}.all(ctx, t.ID)
	if err != nil {
		return err
	}
	for _, s := range recovered.Samples {
		t.Samples = append(t.Samples, &trajectory.Sample{Role: s.Role})
	}
	t.StopReason = recovered.StopReason
	for i, turn := range recovered.Turns {
		of, s := recovered.Samples[turn.Sample], t.Samples[turn.Sample]
		if turn.CompletionStart < s.Len() {
			return &failure{trajectory.OriginRender, fmt.Errorf("orchestrator: %s turn %d: its tokens are not in order", p.ID(), i)}
		}
		s.AppendObservation(of.TokenIDs[s.Len():turn.CompletionStart])
		if foreign(turn, t.ID) {
			if err := appendRecorded(p, s, of, turn, i); err != nil {
				return err
			}
			t.Turns = append(t.Turns, turn)
			continue
		}
		c := again[i]
		if err := s.AppendResponse(c.TokenIDs, c.Logprobs, c.Versions); err != nil {
			return &failure{trajectory.OriginEngine, fmt.Errorf("orchestrator: %s turn %d: %w", p.ID(), i, err)}
		}
		end := turn.CompletionEnd
		turn.CompletionEnd, turn.ObservationEnd, turn.EngineSeconds = s.Len(), s.Len(), c.seconds
		turn.FinishReason, turn.CachedTokens = c.FinishReason, c.CachedTokens
		t.Turns = append(t.Turns, turn)
		if s.Len() != end || !slices.Equal(s.TokenIDs, of.TokenIDs[:s.Len()]) {
			return nil // the difference is found by who compares; what follows was asked for with other ids
		}
	}
	return nil
}

// timed is a completion, and how long the engine took.
type timed struct {
	engines.Completion
	seconds float64
}

// resampling samples the completions of a recorded trajectory once more. Their prompts are all in the record.
type resampling struct {
	*Sampler
	place    Place
	recorded *trajectory.Trajectory
}

// all are the completions of the turns that the trajectory with an id sampled itself, by turn.
func (r resampling) all(ctx context.Context, id string) ([]timed, error) {
	again := make([]timed, len(r.recorded.Turns))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var once sync.Once
	var failed error
	for _, chain := range chainsOf(r.recorded, id) {
		all.Go(func() {
			for _, turn := range chain {
				start := time.Now()
				c, err := r.completion(ctx, turn)
				if err != nil {
					once.Do(func() {
						failed = &failure{trajectory.OriginEngine, fmt.Errorf("orchestrator: %s turn %d: %w", r.place.ID(), turn, err)}
						cancel()
					})
					return
				}
				again[turn] = timed{c, time.Since(start).Seconds()}
			}
		})
	}
	all.Wait()
	return again, failed
}

// chainsOf are the turns that a recorded trajectory sampled itself, in chains of turns that can be sampled one after the other: the policy versions of their
// tokens do not fall. Calls side by side end in any order, so that a turn may have tokens of older weights than one before it; those weights stay until
// these tokens are sampled too, and the earlier turn may wait for the newer ones.
func chainsOf(recovered *trajectory.Trajectory, id string) (chains [][]int) {
	var newest []int32 // by chain: the version of its last token
	for i, turn := range recovered.Turns {
		if foreign(turn, id) {
			continue
		}
		versions := recovered.Samples[turn.Sample].PolicyVersion[turn.CompletionStart+turn.BegunTokens() : turn.CompletionEnd]
		k := slices.IndexFunc(newest, func(version int32) bool { return len(versions) == 0 || version <= versions[0] })
		if k < 0 {
			k = len(chains)
			chains, newest = append(chains, nil), append(newest, 0)
		}
		chains[k] = append(chains[k], i)
		if len(versions) > 0 {
			newest[k] = versions[len(versions)-1]
		}
	}
	return chains
}

// completion samples that of a turn, behind what others begun it with.
func (r resampling) completion(ctx context.Context, turn int) (engines.Completion, error) {
	was := r.recorded.Turns[turn]
	begun := beginningOf(r.recorded, turn, was.BegunTokens())
	sampling := r.Sampling
	if was.Incoming != nil {
		sampling.Stop = slices.Concat(sampling.Stop, was.Incoming.Stop)
	}
	sampling.MaxTokens = was.CompletionEnd - was.CompletionStart
	if was.FinishReason == trajectory.FinishStop {
		sampling.MaxTokens = min(r.Sampling.MaxTokens, r.MaxTotal-was.CompletionStart)
	}
	sampling.MaxTokens = max(1, sampling.MaxTokens-len(begun.IDs))
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	c, err := r.Engine.Generate(ctx, engines.Request{
		ID: r.place.ID() + "-" + strconv.Itoa(turn), Session: r.RunName + "/" + r.place.root(), Prompt: slices.Concat(begun.Prompt.IDs, begun.IDs), Sampling: sampling, Seed: was.Seed,
	})
	return begun.Before(c), err
}

package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// Sampler samples trajectories. Its fields do not change while it runs; Sample may be called from many goroutines.
type Sampler struct {
	Engine       engines.Engine
	Renderer     *masks.Renderer
	Decode       func(ids []int32) string // special tokens left out
	Format       agents.Format
	Tools        *tools.Registry
	Reward       rewards.Reward
	World        *World                     // the environment; nil: there is none
	External     *External                  // agents that are programs of their own take the turns; nil: the agent of Format does
	Frozen       func(trajectory.Role) bool // the turns of that role are sampled and not trained; not nil where External is
	Schemas      []json.RawMessage          // OpenAI schemas that the chat template gets; nil when the prompt describes no tools
	Prefix       []trajectory.Message       // system prompt and worked examples
	Sampling     engines.Sampling           // MaxTokens is that of a turn
	MaxTurns     int
	MaxCalls     int           // of tools in a trajectory; 0: any number
	MaxAtOnce    int           // of them in a turn; 0: any number
	MaxTotal     int           // tokens of a trajectory's longest sample
	Timeout      time.Duration // of one completion
	Deadline     time.Duration // of one trajectory with its reward; 0: none
	AgentTimeout time.Duration // of one call of the format; 0: none
	AtOnce       int           // trajectories of one call of Groups that are under way at a time; 0: all
	Cut          string        // what a completion gets that a token limit cut: CutScore, CutZero, CutFilter, CutParse; "" is CutScore
	Trees        *Trees        // Grow samples trees of this kind; nil: it is not called
	ToolsOff     bool          // calls are answered with an error: what is left is what the model does without its tools
	Seed         uint64
	RunName      string // names the run in request ids
	// Record stores what a trajectory grew by in its newest turn, before that is used: for a request, a reward. nil: nowhere.
	Record func(ctx context.Context, t *trajectory.Trajectory) error
	// Recovered is what was recorded of a trajectory by a process that ended: with its end, or some turns to go on after. It is the
	// caller's to remove what a trajectory shall begin anew. nil: nothing.
	Recovered func(id string) (t *trajectory.Trajectory, ended bool)
	// Restart is told of a recovered trajectory that cannot go on, and why: it begins anew. nil: it fails.
	Restart func(id string, err error)
	// Told is told of each trajectory of an evaluation that ended: how many did, of how many. It is safe for concurrent use; nil: nobody is told.
	Told func(done, of int)
	// Replay samples recovered turns once more. What came from outside is taken as it was recorded: results of tools, the
	// reward.
	Replay bool
}

// What a trajectory gets whose completion a token limit cut (rollout.cut). But for CutParse it ends there with the stop reason
// max_tokens, and the completion is neither a call nor an answer.
const (
	CutScore  = "score"  // the rewards score it, as a trajectory without an answer
	CutZero   = "zero"   // its reward is 0
	CutFilter = "filter" // the update leaves it out (overlong filtering, arXiv 2503.14476, section 3.4)
	CutParse  = "parse"  // the completion counts as if the model had ended it
)

// Place says where a trajectory belongs.
type Place struct {
	Step, Group, Index int
	Task               trajectory.Task
	Phase              string            // "train" or the name of an evaluation; part of the seeds
	Branch             trajectory.Branch // in the tree that grows from Index; "" outside of trees
	tree               *growth           // nil outside of trees
}

// in is the place without its task.
func (p Place) in() trajectory.Place {
	return trajectory.Place{Phase: p.Phase, Step: p.Step, Group: p.Group, Index: p.Index, Branch: p.Branch}
}

// ID of the trajectory, unique in a run.
func (p Place) ID() string { return p.in().ID() }

// root is the id of the tree: its branches share the session of an engine, which keeps what they have in common.
func (p Place) root() string {
	p.Branch = ""
	return p.ID()
}

// group names the trajectories of the task: they wait for environments together, those of a tree that begin in the same round too.
func (p Place) group() string {
	p.Index, p.Branch = 0, ""
	return p.ID()
}

// requestSeed derives from the run's seed, the place and the turn, so that it does not depend on timing.
func (p Place) requestSeed(run uint64, turn int) uint64 { return p.in().Seed(run, p.Task.ID, turn) }

// ErrGivenUp is the cause that ends the context of a group which is given up while the run goes on.
var ErrGivenUp = errors.New("orchestrator: the group was given up")

// failure is an error with the part that caused it.
type failure struct {
	origin trajectory.Origin
	err    error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// Sample runs one trajectory to its end and scores it, or returns it as it was recovered, where it had ended. It always returns a
// trajectory: a failure is data.
func (r *Sampler) Sample(ctx context.Context, p Place) *trajectory.Trajectory {
	t := p.trajectory()
	var recovered *trajectory.Trajectory
	if r.Recovered != nil {
		var ended bool
		if recovered, ended = r.Recovered(t.ID); ended {
			return recovered
		}
	}
	if r.Tools != nil {
		defer r.Tools.End(t.ID)
	}
	base := p.base()
	if recovered == nil {
		recovered = base
	}
	err := r.run(ctx, p, t, recovered)
	for tries := 0; ctx.Err() == nil && r.World.retries(err, recovered != base && !r.Replay, &tries); {
		if r.World.wait(ctx, err) != nil {
			break
		}
		if r.World.Forget != nil && !r.Replay {
			r.World.Forget(t.ID, err)
		}
		if r.Tools != nil {
			r.Tools.End(t.ID) // nothing of this attempt is left for the next one
		}
		if t = p.trajectory(); !r.Replay {
			recovered = base
		}
		err = r.run(ctx, p, t, recovered)
	}
	if changed := (*changedError)(nil); r.Restart != nil && recovered != base && errors.As(err, &changed) {
		r.Restart(t.ID, err)
		t = p.trajectory()
		err = r.run(ctx, p, t, base)
	}
	if err != nil {
		origin := trajectory.OriginEngine
		if f := (*failure)(nil); errors.As(err, &f) {
			origin = f.origin
		}
		t.Fail(origin, err.Error())
		t.StopReason = trajectory.StopError
		if ctx.Err() != nil {
			t.StopReason = trajectory.StopCancelled
		}
		if ctx.Err() == nil || errors.Is(context.Cause(ctx), ErrGivenUp) { // perhaps before its session opened. Where the run stops, its agents wait for the process that continues it
			r.External.Forgo(r.RunName, t.ID)
		}
	}
	t.Seconds = time.Since(t.Started).Seconds()
	return t
}

// run samples the turns of a trajectory and scores it, in an environment of its own where there is one.
func (r *Sampler) run(ctx context.Context, p Place, t, recovered *trajectory.Trajectory) error {
	var first, anchor string
	if r.World != nil {
		var err error
		if first, anchor, err = r.World.start(ctx, r.Seed, r.Tools, p, t); err != nil {
			return err
		}
		if r.Replay && recovered != nil { // what it does next was recorded; others wait for it
			r.World.Stage.End(t.ID)
		} else {
			defer r.World.Stage.End(t.ID)
		}
	}
	leave, err := r.enter(ctx, recovered)
	if err != nil {
		return err
	}
	defer leave()
	own, cancel := within(ctx, r.Deadline) // waiting for an environment, or a place, is no time of the trajectory
	defer cancel()
	var posted *float64
	if r.External != nil {
		posted, err = r.external(own, p, t, recovered, leave)
	} else {
		err = r.turns(own, p, t, recovered, opening{openingOf(r.Prefix, p, first), anchor})
	}
	switch {
	case err != nil:
	case recovered != nil && r.Replay:
		t.Reward, t.RewardParts, t.Unscored = recovered.Reward, recovered.RewardParts, recovered.Unscored
	case r.Reward == nil:
		t.Unscored = !slices.ContainsFunc(t.Turns, func(turn trajectory.Turn) bool { return turn.Reward != nil })
	case r.Cut == CutZero && t.Cut():
	default:
		err = r.score(own, p, t, posted)
	}
	if err == nil && r.Cut == CutZero && t.Cut() {
		t.TakeBack()
	}
	if err != nil && own.Err() != nil && ctx.Err() == nil {
		err = &failure{trajectory.OriginDeadline, fmt.Errorf("orchestrator: %s: not done after %v (rollout.timeout), in turn %d: %w", p.ID(), r.Deadline, len(t.Turns), err)}
	}
	return err
}

func (p Place) trajectory() *trajectory.Trajectory {
	t := &trajectory.Trajectory{
		ID: p.ID(), TaskID: p.Task.ID, Group: p.Group, Index: p.Index, Branch: p.Branch, Step: p.Step, Started: time.Now(),
	}
	if base := p.base(); base != nil {
		t.Forked = len(base.Turns)
	}
	if p.tree != nil && p.tree.begun != nil {
		t.ForkedAt = len(p.tree.begun.IDs)
	}
	return t
}

// base is what the trajectory has of the one that it forks off; nil: nothing.
func (p Place) base() *trajectory.Trajectory {
	if p.tree == nil {
		return nil
	}
	return p.tree.base
}

// changedError says that a recovered trajectory has other tokens than it would have now.
type changedError struct{ what string }

func (e *changedError) Error() string { return e.what }

// within is the time of one trajectory; 0: any.
func within(ctx context.Context, deadline time.Duration) (context.Context, context.CancelFunc) {
	if deadline == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, deadline)
}

// turns samples turn after turn. Recovered ones are taken as they were recorded, so that what follows is the same as if
// the process had not ended.
func (r *Sampler) turns(ctx context.Context, p Place, t, recovered *trajectory.Trajectory, o opening) error {
	c := &conversation{renderer: r.Renderer, schemas: r.Schemas, most: r.MaxTotal, opening: o.messages, messages: o.messages}
	if tokens, err := c.begin(t); err != nil {
		return err
	} else if c.sample == nil {
		return &failure{trajectory.OriginRender, fmt.Errorf("orchestrator: %s: the prompt has %d tokens and rollout.max_tokens, the context of the model or its teacher, or engine.cache_tokens ends at %d; raise it or shorten the prompt", p.ID(), tokens, r.MaxTotal)}
	}
	calls := 0 // that the trajectory asked for
	for turn := 0; ; turn++ {
		room := r.MaxTotal - c.sample.Len()
		if room < 1 {
			t.StopReason = trajectory.StopMaxTokens
			return nil
		}
		var record trajectory.Turn
		var err error
		recorded := recovered != nil && turn < len(recovered.Turns)
		if recorded && (!r.Replay || foreign(recovered.Turns[turn], t.ID)) {
			record, err = recall(p, t, recovered, turn)
		} else {
			record, err = r.complete(ctx, p, c.sample, turn, room, c.messages, begunBy(p, t, recovered, turn))
			record.Sample = len(t.Samples) - 1
		}
		if err != nil {
			return err
		}
		cut, prompt := r.cuts(record, recovered, turn), c.text
		seen := r.Engine.Capabilities().TokenIDs // an endpoint wrote a prompt of its own
		record.InThought = seen && agents.OpensThought(prompt) || !seen && agents.EndsThought(record.Completion)
		var parsed agents.Parsed
		if !cut {
			err = ask(ctx, r.AgentTimeout, p, turn, "parse", func(ctx context.Context) (err error) {
				if seen {
					parsed, err = agents.ParseBehind(ctx, r.Format, prompt, record.Completion)
				} else {
					parsed, err = agents.ParseUnseen(ctx, r.Format, record.Completion)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		if recorded && wasCut(record, recovered.Turns[turn], parsed) {
			cut, parsed = true, agents.Parsed{}
		}
		if recorded && r.Replay {
			was := &recovered.Turns[turn]
			record.Results, record.Shared, record.Entropy = was.Results, was.Shared, was.Entropy
		}
		if !recorded || r.Replay {
			record.ParseErrors, record.FinalAnswer, record.AnsweredThisTurn = len(parsed.Errors), parsed.Answer, parsed.HasAnswer
		}
		if !recorded {
			start := time.Now()
			record.Results = r.call(ctx, p, parsed, calls)
			onlyCall(r.Tools, record.Results)
			record.ToolSeconds = time.Since(start).Seconds()
		}
		if recorded && !r.Replay {
			if err := r.redo(ctx, p, &recovered.Turns[turn], turn); err != nil {
				return err
			}
		}
		if r.World != nil {
			if recorded && !r.Replay {
				if err = r.World.catchUp(ctx, r.Tools, p, t, recovered, turn); err == nil {
					r.World.wentOn(p, t, recovered, turn)
				}
			} else if broke := r.World.Stage.Failed(t.ID); broke != nil {
				err = environmentFailed(ctx, p, broke)
			}
			if err != nil {
				return err
			}
			r.World.pay(t, &record, o.anchor)
		}
		if record.Anchor == "" {
			record.Anchor = c.replaced
		}
		calls += len(parsed.Calls)
		conclude(&record)
		stop := trajectory.StopMaxTokens
		if !cut {
			stop, err = r.observe(ctx, p, t, c, &record, calls)
		}
		if cut := ctx.Err(); cut != nil { // a call that was cut off is no result
			return cut
		}
		t.Turns = append(t.Turns, record)
		if err != nil {
			return err
		}
		if err := r.keep(ctx, p, t, recovered); err != nil {
			return err
		}
		if stop != "" {
			t.StopReason = stop
			return nil
		}
	}
}

// cuts tells that a token limit cut the turn's completion, which then ends the trajectory. A turn that was recorded as a call or an
// answer, or as the end for another reason, stays what it was recorded as.
func (r *Sampler) cuts(record trajectory.Turn, recovered *trajectory.Trajectory, turn int) bool {
	if record.FinishReason != trajectory.FinishLength || r.Cut == CutParse {
		return false
	}
	if recovered == nil || turn >= len(recovered.Turns) {
		return true
	}
	was, ended := recovered.Turns[turn], recovered.StopReason != "" && recovered.StopReason != trajectory.StopMaxTokens
	return len(was.Results) == 0 && !was.AnsweredThisTurn && !(ended && turn == len(recovered.Turns)-1)
}

// wasCut tells that a turn whose completion a token limit cut was recorded as cut, though it reads as a call or an answer: the run goes
// on with cut: parse, and its call did not run.
func wasCut(record, was trajectory.Turn, parsed agents.Parsed) bool {
	acts := len(parsed.Calls)+len(parsed.Errors) > 0 || parsed.HasAnswer
	acted := len(was.Results)+was.ParseErrors > 0 || was.AnsweredThisTurn
	return record.FinishReason == trajectory.FinishLength && acts && !acted
}

// recall appends the response of a recorded turn and returns the turn up to it.
func recall(p Place, t, recovered *trajectory.Trajectory, turn int) (trajectory.Turn, error) {
	record := recovered.Turns[turn]
	k := len(t.Samples) - 1
	s := t.Samples[k]
	if record.Sample != k || k >= len(recovered.Samples) || record.CompletionEnd > recovered.Samples[k].Len() || record.CompletionStart != s.Len() || !recovered.Samples[k].Prefix(s.Len()).Equal(s.Prefix(s.Len())) {
		return record, &failure{trajectory.OriginRender, &changedError{fmt.Sprintf("orchestrator: %s turn %d: its prompt is not the one that was recorded; the job's prompt, tools or model changed since", p.ID(), turn)}}
	}
	if err := appendRecorded(p, s, recovered.Samples[k], record, turn); err != nil {
		return record, err
	}
	record.ObservationEnd = record.CompletionEnd
	return record, nil
}

// appendRecorded appends the response of a turn as it was recorded of a sample.
func appendRecorded(p Place, s, of *trajectory.Sample, record trajectory.Turn, turn int) error {
	from, to := record.CompletionStart, record.CompletionEnd
	if err := s.AppendResponse(of.TokenIDs[from:to], of.SamplingLogprobs[from:to], of.PolicyVersion[from:to]); err != nil {
		return &failure{trajectory.OriginStore, fmt.Errorf("orchestrator: %s turn %d: %w", p.ID(), turn, err)}
	}
	return nil
}

// keep records the newest turn, or holds a recovered one against what was recorded.
func (r *Sampler) keep(ctx context.Context, p Place, t, recovered *trajectory.Trajectory) error {
	turn := len(t.Turns) - 1
	if recovered != nil && turn < len(recovered.Turns) {
		is, was := t.Turns[turn], recovered.Turns[turn]
		k, end := is.Sample, is.ObservationEnd
		if was.ObservationEnd != end || !recovered.Samples[k].Prefix(end).Equal(t.Samples[k].Prefix(end)) {
			return &failure{trajectory.OriginRender, &changedError{fmt.Sprintf("orchestrator: %s turn %d: its observation is not the one that was recorded; the job's tools or model changed since", p.ID(), turn)}}
		}
		return nil
	}
	if r.Record == nil {
		return nil
	}
	if err := r.Record(ctx, t); err != nil {
		return &failure{trajectory.OriginStore, err}
	}
	return nil
}

// complete samples one turn and appends exactly what the engine returned, behind what others begun it with; nil: nothing.
func (r *Sampler) complete(ctx context.Context, p Place, s *trajectory.Sample, turn, room int, history []trajectory.Message, begun *gateway.Begun) (trajectory.Turn, error) {
	sampling := r.Sampling
	sampling.MaxTokens = min(sampling.MaxTokens, room)
	record := trajectory.Turn{CompletionStart: s.Len(), Seed: p.requestSeed(r.Seed, turn)}
	prompt := slices.Clip(s.TokenIDs)
	if begun != nil {
		if err := r.begin(p, s, turn, begun); err != nil {
			return record, err
		}
		prompt, record.Begun = append(prompt, begun.IDs...), begun.By
		sampling.MaxTokens = max(1, sampling.MaxTokens-len(begun.IDs)) // a run that goes on with a lower limit has beginnings beyond it: one token ends them
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	start := time.Now()
	id := p.ID() + "-" + strconv.Itoa(turn)
	w := watchdog.Enter(ctx, "engine", id)
	defer w.Leave()
	c, entropy, err := p.tree.generate(w.In(ctx), r.Engine, !r.Replay, engines.Request{
		ID: id, Session: r.RunName + "/" + p.root(), Prompt: prompt, Media: slices.Clip(s.Media), Messages: history, Sampling: sampling, Seed: record.Seed,
	})
	record.EngineSeconds = time.Since(start).Seconds()
	if err == nil && len(c.TokenIDs) == 0 && (r.Engine.Capabilities().TokenIDs || c.FinishReason != trajectory.FinishLength) {
		err = errors.New("the completion is empty")
	}
	if err == nil {
		c = begun.Before(c)
		err = s.AppendResponse(c.TokenIDs, c.Logprobs, c.Versions)
	}
	if err != nil {
		origin := trajectory.OriginEngine
		if errors.Is(err, engines.ErrForeign) {
			origin = trajectory.OriginWeights
		}
		return record, &failure{origin, fmt.Errorf("orchestrator: %s turn %d: %w", p.ID(), turn, err)}
	}
	if p.tree != nil {
		record.Shared, record.Entropy = trajectory.SharedName(p.ID(), turn), entropy
	}
	record.CompletionEnd, record.ObservationEnd = s.Len(), s.Len()
	record.FinishReason, record.CachedTokens = c.FinishReason, c.CachedTokens
	said := c.TokenIDs
	if n := len(said) - 1; n >= 0 && slices.Contains(r.Sampling.StopIDs, said[n]) { // also one that is no special token
		said = said[:n]
	}
	record.Completion = r.Decode(said)
	return record, nil
}

// begin refuses to go on with a turn whose prompt is not the one that its beginning was sampled after, and with an engine that does not take ids.
func (r *Sampler) begin(p Place, s *trajectory.Sample, turn int, begun *gateway.Begun) error {
	switch {
	case !r.Engine.Capabilities().TokenIDs:
		return &failure{trajectory.OriginEngine, fmt.Errorf("orchestrator: %s turn %d: this engine takes no token ids, so it cannot go on within a turn (rollout.tree.rule)", p.ID(), turn)}
	case !begun.Prompt.Equal(s.Prefix(s.Len())):
		return &failure{trajectory.OriginRender, &changedError{fmt.Sprintf("orchestrator: %s turn %d: its prompt is not the one that its beginning was sampled after", p.ID(), turn)}}
	}
	return nil
}

// onFreshStack runs f on a stack of its own. A template needs a deep one, which every trajectory would keep while it waits.
func onFreshStack(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (r *Sampler) score(ctx context.Context, p Place, t *trajectory.Trajectory, posted *float64) error {
	in := rewards.Input{Task: p.Task, Trajectory: t, Posted: posted}
	if r.World != nil {
		in.Episode = episode{r.World.Stage, t.ID}
	}
	score, err := r.Reward.Score(ctx, in)
	if broke := (*environments.Failure)(nil); errors.As(err, &broke) {
		return environmentFailed(ctx, p, err)
	}
	if r.World != nil { // a reward may have asked it
		if broke := r.World.Stage.Failed(t.ID); broke != nil {
			return environmentFailed(ctx, p, broke)
		}
	}
	if err != nil {
		return &failure{trajectory.OriginReward, err}
	}
	t.Reward, t.RewardParts = score.Value, score.Parts
	return nil
}

// Groups samples size trajectories of each task at once and returns them in order. Every trajectory is a goroutine, which calls
// done as it ends, so that several are stored with one commit; nil is none. The error is the first of done.
func (r *Sampler) Groups(ctx context.Context, phase string, step int, tasks []trajectory.Task, size int, done func(*trajectory.Trajectory) error) ([]trajectory.Group, error) {
	return r.GroupsFrom(ctx, Place{Phase: phase, Step: step}, tasks, size, done)
}

// GroupsFrom is Groups for a step that sampled groups before: it counts on from first.Group.
func (r *Sampler) GroupsFrom(ctx context.Context, first Place, tasks []trajectory.Task, size int, done func(*trajectory.Trajectory) error) ([]trajectory.Group, error) {
	groups := make([]trajectory.Group, len(tasks))
	var all sync.WaitGroup
	var once sync.Once
	var failed error
	places := make(chan struct{}, r.AtOnce)
	for g, task := range tasks {
		groups[g] = trajectory.Group{Task: task, Trajectories: make([]*trajectory.Trajectory, size)}
		for i := range size {
			all.Go(func() {
				if r.AtOnce > 0 {
					select {
					case places <- struct{}{}:
						defer func() { <-places }()
					case <-ctx.Done(): // Sample says so
					}
				}
				t := r.Sample(ctx, Place{Step: first.Step, Group: first.Group + g, Index: i, Task: task, Phase: first.Phase})
				groups[g].Trajectories[i] = t
				if done == nil {
					return
				}
				if err := done(t); err != nil {
					once.Do(func() { failed = err })
				}
			})
		}
	}
	all.Wait()
	return groups, failed
}

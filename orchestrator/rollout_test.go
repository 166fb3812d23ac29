package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/scripted"
	"github.com/agentfly/agentfly/jinja"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/tools/calculator"
	"github.com/agentfly/agentfly/trajectory"
)

// letters is a tokenizer of bytes: the id of a token is its byte, and two special tokens follow.
type letters struct{}

const (
	start = 256 // <|im_start|>
	end   = 257 // <|im_end|>
)

func (letters) Encode(text string) []int32 {
	var out []int32
	for len(text) > 0 {
		switch {
		case strings.HasPrefix(text, "<|im_start|>"):
			out, text = append(out, start), text[len("<|im_start|>"):]
		case strings.HasPrefix(text, "<|im_end|>"):
			out, text = append(out, end), text[len("<|im_end|>"):]
		default:
			out, text = append(out, int32(text[0])), text[1:]
		}
	}
	return out
}

func (l letters) EncodeMarked(text, mark string) []int32 {
	var out []int32
	for _, part := range strings.Split(text, mark) { // a mark stands between two bytes of what it interrupts
		out = append(out, l.Encode(part)...)
	}
	return out
}

func (letters) Specials() []string { return []string{"<|im_start|>", "<|im_end|>"} }

func (letters) OtherAdded() []string { return nil }

func (letters) ID(token string) (int32, bool) {
	id, ok := map[string]int32{"<|im_start|>": start, "<|im_end|>": end}[token]
	return id, ok
}

func (letters) Decode(ids []int32, skipSpecial bool) string {
	var b strings.Builder
	for _, id := range ids {
		switch {
		case id < 256:
			b.WriteByte(byte(id))
		case skipSpecial:
		case id == start:
			b.WriteString("<|im_start|>")
		default:
			b.WriteString("<|im_end|>")
		}
	}
	return b.String()
}

const chatML = `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

func decode(ids []int32) string { return letters{}.Decode(ids, true) }

// say is a completion of the model that ends its turn itself.
func say(text string) (engines.Completion, error) {
	return engines.Completion{TokenIDs: append(letters{}.Encode(text), end)}, nil
}

// newRollout makes a rollout whose engine is a script. more tools may be given beside the calculator.
func newRollout(t testing.TB, respond func(r engines.Request) (engines.Completion, error), more ...tools.Tool) *rollout.Sampler {
	t.Helper()
	tmpl, err := jinja.Compile(chatML, jinja.Options{EOSToken: "<|im_end|>"})
	require.NoError(t, err)
	renderer, err := masks.NewRenderer(letters{}, tmpl, masks.Options{})
	require.NoError(t, err)
	registry := tools.NewRegistry(tools.Options{Timeout: 50 * time.Millisecond})
	require.NoError(t, registry.Register(append([]tools.Tool{calculator.New()}, more...)...))
	format, err := agents.NewFormat("tags", registry.Specs(), agents.FormatOptions{})
	require.NoError(t, err)
	answer, err := rewards.Prebuilt().Builder(t.Context(), nil).Make("final_answer", nil)
	require.NoError(t, err)
	reward, err := rewards.NewSum(time.Second, rewards.Weighted{Reward: answer, Weight: 1})
	require.NoError(t, err)
	engine := scripted.New(scripted.Options{Respond: respond, Decode: decode, Version: 7})
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	return &rollout.Sampler{
		Engine: engine, Renderer: renderer, Decode: decode, Format: format, Tools: registry, Reward: reward,
		Prefix:   []trajectory.Message{trajectory.Text("system", "Use it.")},
		Sampling: engines.Sampling{MaxTokens: 64, Temperature: 1, TopP: 1, StopIDs: renderer.StopIDs(), Stop: format.Stops()},
		MaxTurns: 3, MaxTotal: 1000, Timeout: 10 * time.Second, Seed: 5, RunName: "test",
	}
}

func task(id, question, answer string) trajectory.Task {
	return trajectory.Task{ID: id, Prompt: []trajectory.Message{trajectory.Text("user", question)}, Fields: map[string]any{"answer": answer}}
}

// lastTurn is what the model has to continue.
func lastTurn(r engines.Request) string {
	text := letters{}.Decode(r.Prompt, false)
	return text[strings.LastIndex(strings.TrimSuffix(text, "<|im_start|>assistant\n"), "<|im_start|>"):]
}

func TestTwoTurnsToken(t *testing.T) {
	r := newRollout(t, func(r engines.Request) (engines.Completion, error) {
		if strings.Contains(lastTurn(r), "<result>") {
			return say("<answer>5</answer>")
		}
		return engines.Completion{TokenIDs: letters{}.Encode("<calculator>2+3</calculator>"), Logprobs: slices.Repeat([]float32{-0.5}, 28)}, nil
	})
	r.Sampling.Stop = nil
	tr := r.Sample(context.Background(), rollout.Place{Step: 4, Group: 1, Index: 2, Task: task("sum", "2 and 3?", "5"), Phase: "train"})
	require.Empty(t, tr.Err)
	require.Equal(t, "train-4-1-2", tr.ID)
	require.Equal(t, "sum", tr.TaskID)
	require.Equal(t, trajectory.StopAnswer, tr.StopReason)
	require.Equal(t, 1.0, tr.Reward)
	require.Equal(t, map[string]float64{"final_answer": 1}, tr.RewardParts)
	require.Len(t, tr.Samples, 1)
	s := tr.Samples[0]
	require.NoError(t, s.Check())
	// The first turn ended without sampling its end of turn, so the observation begins with it; the second sampled it.
	pieces := []struct {
		text string
		on   bool
	}{
		{"<|im_start|>system\nUse it.<|im_end|>\n<|im_start|>user\n2 and 3?<|im_end|>\n<|im_start|>assistant\n", false},
		{"<calculator>2+3</calculator>", true},
		{"<|im_end|>\n<|im_start|>user\n<result>5</result><|im_end|>\n<|im_start|>assistant\n", false},
		{"<answer>5</answer><|im_end|>", true},
	}
	var ids []int32
	var mask []bool
	for _, p := range pieces {
		piece := letters{}.Encode(p.text)
		ids = append(ids, piece...)
		mask = append(mask, slices.Repeat([]bool{p.on}, len(piece))...)
	}
	require.Equal(t, ids, s.TokenIDs)
	require.Equal(t, mask, s.ResponseMask)
	for i, on := range mask {
		want := int32(-1)
		if on {
			want = 7
		}
		require.Equal(t, want, s.PolicyVersion[i])
	}
	require.Len(t, tr.Turns, 2)
	require.Equal(t, tr.Turns[0].ObservationEnd, tr.Turns[1].CompletionStart)
	require.Equal(t, "<calculator>2+3</calculator>", tr.Turns[0].Completion)
	require.Equal(t, "5", tr.Turns[0].Results[0].Observation)
	require.Equal(t, float32(-0.5), s.SamplingLogprobs[tr.Turns[0].CompletionStart])
}

func TestStopReasons(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(r *rollout.Sampler)
		respond func(r engines.Request) (engines.Completion, error)
		want    trajectory.StopReason
		turns   int
	}{
		"the last turn calls": {nil, func(engines.Request) (engines.Completion, error) { return say("<calculator>1</calculator>") }, trajectory.StopMaxTurns, 3},
		"no call, no answer":  {nil, func(engines.Request) (engines.Completion, error) { return say("well") }, trajectory.StopNoAction, 1},
		"an observation that does not fit": {
			func(r *rollout.Sampler) { r.MaxTotal = 80 },
			func(engines.Request) (engines.Completion, error) { return say("<calculator>1</calculator>") }, trajectory.StopMaxTokens, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRollout(t, c.respond)
			if c.change != nil {
				c.change(r)
			}
			tr := r.Sample(context.Background(), rollout.Place{Task: task("a", "what?", "1")})
			require.Empty(t, tr.Err)
			require.Equal(t, c.want, tr.StopReason)
			require.Len(t, tr.Turns, c.turns)
			require.Zero(t, tr.Reward)
			require.LessOrEqual(t, tr.Samples[0].Len(), max(r.MaxTotal, 100))
		})
	}
}

func TestAPromptThatDoesNotFitIsAFailure(t *testing.T) {
	r := newRollout(t, func(engines.Request) (engines.Completion, error) { return say("x") })
	r.MaxTotal = 20
	tr := r.Sample(context.Background(), rollout.Place{Task: task("a", "what?", "1")})
	require.Equal(t, trajectory.StopError, tr.StopReason)
	require.Equal(t, trajectory.OriginRender, tr.ErrOrigin)
	require.Regexp(t, `^orchestrator: -0-0-0: the prompt has \d+ tokens and rollout.max_tokens, or the context of the model or its teacher, ends at 20; raise it or shorten the prompt$`, tr.Err)
	require.Empty(t, tr.Turns)
}

func TestFailuresAreDataAndTouchNobodyElse(t *testing.T) {
	panics := tools.NewFunc("boom", "panics", func(context.Context, struct {
		X string `json:"x"`
	},
	) (string, error) {
		panic("at /home/somebody/secret.go")
	})
	hangs := tools.NewFunc("slow", "hangs", func(ctx context.Context, _ struct {
		X string `json:"x"`
	},
	) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	})
	r := newRollout(t, func(r engines.Request) (engines.Completion, error) {
		turn := lastTurn(r)
		switch {
		case strings.Contains(turn, "break"):
			return engines.Completion{}, errors.New("the card is on fire")
		case strings.Contains(turn, "panic"):
			return say("<boom>1</boom>")
		case strings.Contains(turn, "hang"):
			return say("<slow>1</slow>")
		case strings.Contains(turn, "positive"):
			return engines.Completion{TokenIDs: []int32{end}, Logprobs: []float32{0.1}}, nil
		}
		return say("<answer>5</answer>")
	}, panics, hangs)
	var questions []trajectory.Task
	for _, q := range []string{"break", "fine", "panic", "hang", "positive"} {
		questions = append(questions, task(q, q, "5"))
	}
	var one sync.Mutex
	var seen []string
	groups, err := r.Groups(context.Background(), "train", 0, questions, 2, func(tr *trajectory.Trajectory) error {
		one.Lock()
		defer one.Unlock()
		seen = append(seen, tr.ID)
		return nil
	})
	require.NoError(t, err)
	require.Len(t, seen, 10)
	require.Len(t, groups, 5)
	for g, group := range groups {
		require.Equal(t, questions[g].ID, group.Task.ID)
		for i, tr := range group.Trajectories {
			require.Equal(t, fmt.Sprintf("train-0-%d-%d", g, i), tr.ID)
			switch group.Task.ID {
			case "break":
				require.Equal(t, trajectory.StopError, tr.StopReason)
				require.Equal(t, trajectory.OriginEngine, tr.ErrOrigin)
				require.Contains(t, tr.Err, "the card is on fire")
				require.NotContains(t, tr.Err, "\n")
			case "positive":
				require.Equal(t, trajectory.OriginEngine, tr.ErrOrigin)
				require.Contains(t, tr.Err, "not a log probability")
			case "panic":
				require.Empty(t, tr.Err)
				require.Equal(t, "Error: boom failed inside; try other arguments", tr.Turns[0].Results[0].Observation)
				require.Equal(t, 1.0, tr.Reward) // it read the error and answered
			case "hang":
				require.Equal(t, "Error: slow took longer than 50ms; ask it for less work", tr.Turns[0].Results[0].Observation)
			default:
				require.Equal(t, 1.0, tr.Reward)
			}
		}
	}
}

func TestARewardThatFailsFailsItsTrajectory(t *testing.T) {
	r := newRollout(t, func(engines.Request) (engines.Completion, error) { return say("<answer>5</answer>") })
	var err error
	r.Reward, err = rewards.NewSum(20*time.Millisecond, rewards.Weighted{Weight: 1, Reward: rewards.NewFunc("picky", func(_ context.Context, in rewards.Input) (float64, error) {
		if in.Task.ID == "bad" {
			panic("no")
		}
		return 0.5, nil
	})})
	require.NoError(t, err)
	groups, err := r.Groups(context.Background(), "train", 0, []trajectory.Task{task("bad", "x", "5"), task("good", "x", "5")}, 1, nil)
	require.NoError(t, err)
	bad, good := groups[0].Trajectories[0], groups[1].Trajectories[0]
	require.Equal(t, trajectory.OriginReward, bad.ErrOrigin)
	require.Equal(t, trajectory.StopError, bad.StopReason)
	require.Contains(t, bad.Err, "rewards: picky: panic: no")
	require.Equal(t, 0.5, good.Reward)
}

func TestToolsOff(t *testing.T) {
	r := newRollout(t, func(r engines.Request) (engines.Completion, error) {
		if strings.Contains(lastTurn(r), "not available") {
			return say("<answer>4</answer>")
		}
		return say("<calculator>2+3</calculator>")
	})
	r.ToolsOff = true
	tr := r.Sample(context.Background(), rollout.Place{Task: task("a", "2 and 3?", "5")})
	require.Equal(t, "Error: the tool is not available", tr.Turns[0].Results[0].Observation)
	require.True(t, tr.Turns[0].Results[0].Failed)
	require.Zero(t, tr.Reward)
}

// The trainable tokens are the sampled ones, whatever the model writes, and each prompt that the engine saw is the
// sequence so far.
func TestTrainableTokensAreTheSampledOnes(t *testing.T) {
	const words = "<calculator>|</calculator>|1+2|<answer>|</answer>|<|im_end|>| |\n|x|(|<result>|Error|é"
	choices := strings.Split(words, "|")
	for seed := range uint64(60) {
		var mu sync.Mutex
		sampled := map[string][][]int32{} // by session
		random := rand.New(rand.NewPCG(seed, 1))
		r := newRollout(t, func(r engines.Request) (engines.Completion, error) {
			mine := rand.New(rand.NewPCG(r.Seed, 2)) // as an engine does: from the request's seed alone
			var ids []int32
			for range 1 + mine.IntN(12) {
				ids = append(ids, letters{}.Encode(choices[mine.IntN(len(choices))])...)
			}
			if len(ids) == 0 {
				ids = []int32{end}
			}
			if mine.IntN(12) == 0 {
				return engines.Completion{}, errors.New("broken")
			}
			return engines.Completion{TokenIDs: ids}, nil
		})
		r.MaxTotal, r.Sampling.MaxTokens, r.MaxTurns = 90+random.IntN(400), 1+random.IntN(40), 1+random.IntN(4)
		inner := r.Engine
		r.Engine = spy{inner, func(q engines.Request, c engines.Completion) {
			mu.Lock()
			defer mu.Unlock()
			sampled[q.Session] = append(sampled[q.Session], q.Prompt, c.TokenIDs)
		}}
		groups, err := r.Groups(context.Background(), "train", int(seed), []trajectory.Task{task("a", "1?", "1"), task("b", "2?", "2")}, 3, nil)
		require.NoError(t, err)
		for _, g := range groups {
			for _, tr := range g.Trajectories {
				turns := sampled["test/"+tr.ID]
				total := 0
				s := tr.Samples[0]
				require.NoError(t, s.Check())
				require.LessOrEqual(t, s.Len(), max(r.MaxTotal, 90))
				for k := 0; k < len(turns); k += 2 {
					prompt, ids := turns[k], turns[k+1]
					require.Equal(t, s.TokenIDs[:len(prompt)], prompt)
					require.Equal(t, s.TokenIDs[len(prompt):len(prompt)+len(ids)], ids)
					require.NotContains(t, s.ResponseMask[len(prompt):len(prompt)+len(ids)], false)
					total += len(ids)
				}
				require.Equal(t, total, s.ResponseTokens(), "seed %d", seed)
			}
		}
	}
}

// spy sees every completion.
type spy struct {
	engines.Engine
	see func(engines.Request, engines.Completion)
}

func (s spy) Generate(ctx context.Context, r engines.Request) (engines.Completion, error) {
	c, err := s.Engine.Generate(ctx, r)
	if err == nil {
		s.see(r, c)
	}
	return c, err
}

func TestNothingIsLeftRunning(t *testing.T) {
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(context.Background())
	r := newRollout(t, func(engines.Request) (engines.Completion, error) { return say("<calculator>1</calculator>") })
	r.MaxTurns, r.MaxTotal = 1000, 1<<20
	r.Engine = spy{r.Engine, func(q engines.Request, _ engines.Completion) {
		if len(q.Prompt) > 500 {
			cancel()
		}
	}}
	groups, err := r.Groups(ctx, "train", 0, []trajectory.Task{task("a", "1?", "1")}, 50, nil)
	require.NoError(t, err)
	for _, tr := range groups[0].Trajectories {
		require.Equal(t, trajectory.StopCancelled, tr.StopReason)
		require.Zero(t, tr.Reward)
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 }, 5*time.Second, 10*time.Millisecond)
}

func TestTrajectoriesRunAtOnce(t *testing.T) {
	var all sync.WaitGroup // ends when every trajectory has reached its tool
	all.Add(64)
	wait := tools.NewFunc("wait", "waits for all", func(ctx context.Context, _ struct {
		X string `json:"x"`
	},
	) (string, error) {
		all.Done()
		done := make(chan struct{})
		go func() { all.Wait(); close(done) }()
		select {
		case <-done:
			return "all", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})
	r := newRollout(t, func(r engines.Request) (engines.Completion, error) {
		if strings.Contains(lastTurn(r), "<result>all</result>") {
			return say("<answer>1</answer>")
		}
		return say("<wait>x</wait>")
	})
	r.Tools = tools.NewRegistry(tools.Options{Timeout: 20 * time.Second})
	require.NoError(t, r.Tools.Register(wait))
	var err error
	r.Format, err = agents.NewFormat("tags", r.Tools.Specs(), agents.FormatOptions{})
	require.NoError(t, err)
	r.Sampling.Stop = r.Format.Stops()
	groups, err := r.Groups(context.Background(), "train", 0, []trajectory.Task{task("a", "1?", "1"), task("b", "1?", "1")}, 32, nil)
	require.NoError(t, err)
	for _, g := range groups {
		for _, tr := range g.Trajectories {
			require.Equal(t, 1.0, tr.Reward, tr.Err)
		}
	}
}

// However many trajectories are asked for, so many are under way at a time; the others hold nothing.
func TestNoMoreTrajectoriesAtATimeThanWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRollout(t, func(engines.Request) (engines.Completion, error) { return say("<answer>1</answer>") })
		var now, most atomic.Int64
		r.Engine = heard{r.Engine, func(engines.Request) {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			now.Add(-1)
		}}
		r.AtOnce = 2
		start := time.Now()
		groups, err := r.Groups(t.Context(), "eval-x", 0, []trajectory.Task{task("a", "a?", "1"), task("b", "b?", "1"), task("c", "c?", "1")}, 2, nil)
		require.NoError(t, err)
		require.Equal(t, 3*time.Second, time.Since(start))
		require.Equal(t, int64(2), most.Load())
		for _, g := range groups {
			for _, tr := range g.Trajectories {
				require.Equal(t, 1.0, tr.Reward)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Millisecond, cancel)
		groups, err = r.Groups(ctx, "eval-x", 0, []trajectory.Task{task("a", "a?", "1")}, 5, nil)
		require.NoError(t, err)
		reasons := map[trajectory.StopReason]int{}
		for _, tr := range groups[0].Trajectories {
			reasons[tr.StopReason]++
		}
		require.Equal(t, map[trajectory.StopReason]int{trajectory.StopAnswer: 2, trajectory.StopCancelled: 3}, reasons, "who waits for a place ends too")
	})
}

func TestSchemasReachThePrompt(t *testing.T) {
	var prompt string
	r := newRollout(t, func(r engines.Request) (engines.Completion, error) {
		prompt = letters{}.Decode(r.Prompt, false)
		return say("<answer>1</answer>")
	})
	data, err := tools.OpenAI(r.Tools.Specs())
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &r.Schemas))
	r.Sample(context.Background(), rollout.Place{Task: task("a", "1?", "1")})
	require.Contains(t, prompt, `"name": "calculator"`) // this template ignores tools, so the system prompt holds them
}

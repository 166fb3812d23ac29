package view

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/agentfly/agentfly/masks/tokenizer"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// num is a number in JSON; null where it is not finite.
type num float64

// MarshalJSON writes the shortest text that reads back the same.
func (n num) MarshalJSON() ([]byte, error) {
	if v := float64(n); !math.IsNaN(v) && !math.IsInf(v, 0) {
		return json.Marshal(v)
	}
	return []byte("null"), nil
}

// floats is a list of numbers of 32 bits in JSON; null for those that are not finite.
type floats []float32

// MarshalJSON writes the shortest texts that read back the same 32 bits.
func (f floats) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, 10*len(f)+2), '[')
	for i, v := range f {
		if i > 0 {
			b = append(b, ',')
		}
		if w := float64(v); math.IsNaN(w) || math.IsInf(w, 0) {
			b = append(b, "null"...)
		} else {
			b = strconv.AppendFloat(b, w, 'g', -1, 32)
		}
	}
	return append(b, ']'), nil
}

// column is a list of numbers in JSON; null for those that are not finite.
type column []float64

// MarshalJSON writes the shortest texts that read back the same.
func (c column) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, 12*len(c)+2), '[')
	for i, v := range c {
		if i > 0 {
			b = append(b, ',')
		}
		if finite(v) {
			b = strconv.AppendFloat(b, v, 'g', -1, 64)
		} else {
			b = append(b, "null"...)
		}
	}
	return append(b, ']'), nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// shownTrajectory is a trajectory as the page gets it.
type shownTrajectory struct {
	Entry    shownEntry     `json:"entry"`
	Task     map[string]any `json:"task"`
	Prompt   []shownMessage `json:"prompt"`
	Parts    map[string]num `json:"parts"`
	Error    string         `json:"error,omitempty"`
	Failure  string         `json:"failure,omitempty"`
	Started  string         `json:"started"`
	Turns    []shownTurn    `json:"turns"`
	Samples  []shownSample  `json:"samples"`
	Siblings []shownEntry   `json:"siblings"` // of its group, itself included
	Tries    []shownTry     `json:"tries"`    // of its task, this one included, in the order of steps
	Ended    bool           `json:"ended"`    // the evaluation that it is of has ended
}

// shownTry is a group of trajectories of one task, which a step or an evaluation sampled.
type shownTry struct {
	Phase string `json:"phase"`
	Step  int    `json:"step"`
	Group int    `json:"group"`
	Tries int    `json:"tries"`
	Mean  *num   `json:"mean,omitempty"` // of those that have a reward; nil: none has
	First string `json:"first"`          // id of the first one
}

type shownMessage struct {
	Role    string            `json:"role"`
	Parts   []trajectory.Part `json:"parts"`
	Thought string            `json:"thought,omitempty"`
	Calls   []shownCall       `json:"calls,omitempty"`
}

type shownTurn struct {
	Role       string          `json:"role,omitempty"`
	Sample     int             `json:"sample"`
	Start      int             `json:"start"` // tokens of the completion
	End        int             `json:"end"`
	Completion string          `json:"completion"`
	Finish     string          `json:"finish"`
	Answer     *string         `json:"answer,omitempty"`
	Engine     num             `json:"engine_seconds"`
	Tools      num             `json:"tool_seconds"`
	Cached     int             `json:"cached"`
	Unread     int             `json:"parse_errors"`
	Reward     *num            `json:"reward,omitempty"`
	Shared     string          `json:"shared,omitempty"` // the trajectory that sampled it, where it is not this one's own
	Begun      []shownBegun    `json:"begun,omitempty"`  // by others
	After      int             `json:"after"`            // the turn that it goes on from; -1: it begins at the prompt
	Entropy    num             `json:"entropy,omitempty"`
	Calls      []shownCall     `json:"calls"`
	Messages   json.RawMessage `json:"messages,omitempty"` // that an agent of its own sent for this turn
}

// shownBegun is a beginning of a completion that another trajectory sampled: its tokens behind those of the one before it.
type shownBegun struct {
	By  string `json:"by"`
	End int    `json:"end"` // tokens of the completion
}

type shownCall struct {
	Tool        string        `json:"tool"`
	Arguments   string        `json:"arguments"`
	Observation string        `json:"observation"`
	Cause       string        `json:"cause,omitempty"`
	Failure     string        `json:"failure,omitempty"`
	Cached      bool          `json:"cached,omitempty"`
	Terminal    bool          `json:"terminal,omitempty"`
	Retries     int           `json:"retries,omitempty"`
	Seconds     num           `json:"seconds"`
	Info        string        `json:"info,omitempty"`
	Outcome     *shownOutcome `json:"outcome,omitempty"`
}

type shownOutcome struct {
	Reward     num    `json:"reward"`
	Terminated bool   `json:"terminated"`
	Truncated  bool   `json:"truncated"`
	Success    bool   `json:"success"`
	State      string `json:"state,omitempty"`
}

// shownSample is a sample in columns, a value a token.
type shownSample struct {
	Role       string   `json:"role,omitempty"`
	IDs        []int32  `json:"ids"`
	Texts      []string `json:"texts"` // "": part of the character that a token before begins
	Mask       []int    `json:"mask"`
	Sampling   floats   `json:"sampling"`   // logprobs of the engine; 0 off the mask; empty: nobody sampled it
	Versions   []int32  `json:"versions"`   // -1 off the mask
	Old        floats   `json:"old"`        // logprobs of the trainer before the update; empty: it was not trained
	Advantages floats   `json:"advantages"` // empty: it was not trained
	Entropy    floats   `json:"entropy"`    // nats, of the trainer's distribution before the update; empty: not stored
	Step       int      `json:"step"`       // that trained it; -1
	Like       int      `json:"like"`       // the sample before it that begins with most of the same tokens; -1: none does
	Shares     int      `json:"shares"`     // how many those are
}

// promptTokens is the role of a prompt that the task does not hold: its tokens as the model read them.
const promptTokens = "prompt"

func shown(r *store.Record, e *entry, decode func([]int32) string) shownTrajectory {
	t := r.Trajectory
	out := shownTrajectory{
		Entry: e.shown(), Task: r.Task.Fields, Parts: map[string]num{}, Error: t.Err, Failure: string(t.Failure),
		Turns: []shownTurn{}, Samples: []shownSample{}, Prompt: []shownMessage{}, Siblings: []shownEntry{}, Tries: []shownTry{},
	}
	if !t.Started.IsZero() {
		out.Started = t.Started.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	for name, v := range t.RewardParts {
		out.Parts[name] = num(v)
	}
	for _, m := range r.Task.Prompt {
		s := shownMessage{Role: m.Role, Parts: m.Content, Thought: m.Reasoning}
		for _, c := range m.ToolCalls {
			s.Calls = append(s.Calls, shownCall{Tool: c.Name, Arguments: string(c.Arguments)})
		}
		out.Prompt = append(out.Prompt, s)
	}
	if len(out.Prompt) == 0 && len(t.Samples) > 0 { // an environment's, or an agent's of its own: what the first turn was given
		first := t.Samples[0].TokenIDs
		if at := slices.Index(t.Samples[0].ResponseMask, true); at >= 0 {
			first = first[:at]
		}
		out.Prompt = append(out.Prompt, shownMessage{Role: promptTokens, Parts: []trajectory.Part{{Type: "text", Text: decode(first)}}})
	}
	for i := range t.Turns {
		out.Turns = append(out.Turns, turn(&t.Turns[i]))
		out.Turns[i].After = after(t.Turns, i)
	}
	for k, s := range t.Samples {
		one := sample(k, s, r.Updates, decode)
		if r.Phase == store.SFT {
			one.Sampling = floats{}
		}
		out.Samples = append(out.Samples, one)
		out.Samples[k].Like, out.Samples[k].Shares = like(t.Samples, k)
	}
	return out
}

// after is the turn that turn i goes on from: the one whose reply stands last in its conversation, as the agent sent it; for an agent of the run's
// own the one before in its sample, and for a sample that it began with a rewritten history the one before. -1: it begins at the prompt.
func after(turns []trajectory.Turn, i int) int {
	if in := turns[i].Incoming; in != nil {
		if in.After < i {
			return in.After
		}
		return -1
	}
	for k := i - 1; k >= 0; k-- {
		if turns[k].Sample == turns[i].Sample {
			return k
		}
	}
	return i - 1
}

// like is the sample before k that begins with most of the same tokens, the first one of several, and how many those are; -1, 0: none does.
func like(samples []*trajectory.Sample, k int) (other, tokens int) {
	other = -1
	mine := samples[k].TokenIDs
	for i, s := range samples[:k] {
		n, most := 0, min(len(mine), len(s.TokenIDs))
		for n < most && mine[n] == s.TokenIDs[n] {
			n++
		}
		if n > tokens {
			other, tokens = i, n
		}
	}
	return other, tokens
}

func turn(t *trajectory.Turn) shownTurn {
	out := shownTurn{
		Role: string(t.Role), Sample: t.Sample, Start: t.CompletionStart, End: t.CompletionEnd, Completion: t.Completion, Finish: string(t.FinishReason),
		Engine: num(t.EngineSeconds), Tools: num(t.ToolSeconds), Cached: t.CachedTokens, Unread: t.ParseErrors, Shared: t.SharedBy(), Entropy: num(t.Entropy), Calls: []shownCall{},
	}
	for _, b := range t.Begun {
		out.Begun = append(out.Begun, shownBegun{trajectory.SharedBy(b.Shared), b.End})
	}
	if t.AnsweredThisTurn {
		out.Answer = &t.FinalAnswer
	}
	if t.Reward != nil {
		reward := num(*t.Reward)
		out.Reward = &reward
	}
	if t.Incoming != nil && json.Valid(t.Incoming.Messages) {
		out.Messages = t.Incoming.Messages
	}
	for i := range t.Results {
		r := &t.Results[i]
		c := shownCall{
			Tool: r.Call.Name, Arguments: string(r.Call.Arguments), Observation: r.Observation, Cause: string(r.Cause), Failure: string(r.Failure),
			Cached: r.Cached, Terminal: r.Terminal, Retries: r.Retries, Seconds: num(r.Duration.Seconds()), Info: string(r.Info),
		}
		if r.Failed && c.Cause == "" {
			c.Cause = "failed"
		}
		if o := r.Outcome; o != nil {
			c.Outcome = &shownOutcome{num(o.Reward), o.Terminated, o.Truncated, o.Success, string(o.State)}
		}
		out.Calls = append(out.Calls, c)
	}
	return out
}

// sample lays out sample k. What was learned is that of its newest update.
func sample(k int, s *trajectory.Sample, updates []store.Update, decode func([]int32) string) shownSample {
	out := shownSample{
		Role: string(s.Role), IDs: s.TokenIDs, Texts: tokenizer.Texts(s.TokenIDs, decode), Mask: make([]int, s.Len()), Sampling: s.SamplingLogprobs, Versions: s.PolicyVersion, Step: -1,
		Old: floats{}, Advantages: floats{}, Entropy: floats{},
	}
	for i, on := range s.ResponseMask {
		if on {
			out.Mask[i] = 1
		}
	}
	for _, u := range updates {
		if u.Sample == k && len(u.OldLogprobs) == s.Len() && len(u.Advantages) == s.Len() {
			out.Old, out.Advantages, out.Entropy, out.Step = u.OldLogprobs, u.Advantages, floats{}, u.Step
			if len(u.Entropy) == s.Len() {
				out.Entropy = u.Entropy
			}
		}
	}
	return out
}

// shownEntry is a line of a list.
type shownEntry struct {
	ID        string `json:"id"`
	Phase     string `json:"phase"`
	Step      int    `json:"step"`
	Group     int    `json:"group"`
	Index     int    `json:"index"`
	Branch    string `json:"branch,omitempty"`
	Forked    int    `json:"forked"`
	ForkedAt  int    `json:"forked_at,omitempty"`
	Task      string `json:"task"`
	Reward    num    `json:"reward"`
	Stop      string `json:"stop"`
	Origin    string `json:"origin,omitempty"`
	Turns     int    `json:"turns"`
	Tokens    int    `json:"tokens"`
	Calls     int    `json:"calls"`
	Failed    int    `json:"failed_calls"`
	Staleness int    `json:"staleness"`
	Trained   int    `json:"trained"`
	Dropped   bool   `json:"dropped,omitempty"`
	Seconds   num    `json:"seconds"`
}

func (e *entry) shown() shownEntry {
	return shownEntry{
		e.ID, e.Phase, e.Step, e.Group, e.Index, string(e.Branch), e.Forked, e.ForkedAt, e.Task, num(e.Reward), e.Stop, e.Origin, e.Turns, e.Tokens, len(e.Calls), e.failedCalls(), e.Staleness, e.TrainedAt, e.Dropped, num(e.Seconds),
	}
}

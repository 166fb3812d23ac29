// Package trajectory holds the records of training: tasks, messages, turns, samples, trajectories and groups.
//
// It is a leaf: it imports nothing of the project. Values are plain data; a Sample is owned by one goroutine
// until its trajectory is finished and is read-only afterwards.
//
// It does not compute anything: what makes and reads the records is other packages'.
package trajectory

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Part is one piece of a message: text, or an image named by URL (data URLs included).
type Part struct {
	Type  string `json:"type"` // "text" or "image"
	Text  string `json:"text,omitempty"`
	Image string `json:"image,omitempty"`
}

// ToolCall is one call that a completion asked for. Arguments is the JSON object as the model wrote it.
type ToolCall struct {
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// Message is one chat message. Its JSON form is OpenAI's: content is a string when it is a single text.
type Message struct {
	Role       string // "system", "user", "assistant", "tool"
	Content    []Part
	Reasoning  string // what a thinking model wrote before its content; empty for others
	ToolCalls  []ToolCall
	ToolCallID string
	Name       string // of the tool, on role "tool"
}

// Text builds a message with one text part.
func Text(role, text string) Message {
	return Message{Role: role, Content: []Part{{Type: "text", Text: text}}}
}

// TextContent joins the text parts. It fails, naming the part, if one is not text.
func (m Message) TextContent() (string, error) {
	var b strings.Builder
	for i, p := range m.Content {
		if p.Type != "text" {
			return "", fmt.Errorf("trajectory: %s message: part %d is %q, only text is supported here", m.Role, i, p.Type)
		}
		b.WriteString(p.Text)
	}
	return b.String(), nil
}

// Task is one problem instance. Fields are the columns of its data line (answer and so on), as decoded from JSON.
type Task struct {
	ID     string         `json:"id"`
	Prompt []Message      `json:"prompt"`
	Fields map[string]any `json:"fields,omitempty"`
}

// FinishReason says why a completion ended (engine, per completion).
type FinishReason string

// The finish reasons that engines report.
const (
	FinishStop   FinishReason = "stop"   // a stop token was sampled or a stop string completed
	FinishLength FinishReason = "length" // max_new_tokens or the context limit was reached
	FinishAbort  FinishReason = "abort"  // the engine was paused with abort, or the request was cancelled
)

// StopReason says why a trajectory ended.
type StopReason string

// The stop reasons of a trajectory.
const (
	StopAnswer     StopReason = "answer"     // the agent gave its final answer
	StopNoAction   StopReason = "no_action"  // a turn held neither a call nor an answer
	StopMaxTurns   StopReason = "max_turns"  // the last allowed turn did not answer
	StopMaxTokens  StopReason = "max_tokens" // the sequence reached rollout.max_tokens, or a completion was cut at its limit
	StopMaxCalls   StopReason = "max_calls"  // it asked for more calls than agent.max_calls
	StopTerminated StopReason = "terminated" // the environment's episode is over
	StopTruncated  StopReason = "truncated"  // a limit of the environment's ended its episode
	StopError      StopReason = "error"      // engine, tool, environment, reward or render failed; see Err
	StopCancelled  StopReason = "cancelled"  // the run was interrupted
	StopRecorded   StopReason = "recorded"   // nothing was sampled: it is a recorded conversation
)

// StopReasons are all of them.
func StopReasons() []StopReason {
	return []StopReason{
		StopAnswer, StopNoAction, StopMaxTurns, StopMaxTokens, StopMaxCalls, StopTerminated, StopTruncated, StopError, StopCancelled, StopRecorded,
	}
}

// ToolResult is what one call returned.
type ToolResult struct {
	Call        ToolCall        `json:"call"`
	Observation string          `json:"observation"`
	Info        json.RawMessage `json:"info,omitempty"`     // what the tool returned for rewards and the record: a JSON object
	Failed      bool            `json:"failed,omitempty"`   // the observation is an error that the model can read
	Cause       Cause           `json:"cause,omitempty"`    // "" where it did not fail
	Failure     Failure         `json:"failure,omitempty"`  // whose doing that is; "" where it did not fail
	Terminal    bool            `json:"terminal,omitempty"` // it ended the trajectory: the observation is the final answer
	Cached      bool            `json:"cached,omitempty"`   // taken from an earlier call of the same arguments
	Retries     int             `json:"retries,omitempty"`  // attempts after the first
	Duration    time.Duration   `json:"duration_ns"`        // waiting for its turn and pauses between attempts included
	Outcome     *Outcome        `json:"outcome,omitempty"`  // of a call that was an action in an environment; nil for others
}

// Outcome is what an environment gave for an action beside the observation.
type Outcome struct {
	Reward     float64 `json:"reward"`               // of this action alone
	Terminated bool    `json:"terminated,omitempty"` // the episode is over: the world's own end
	Truncated  bool    `json:"truncated,omitempty"`  // the episode is over: a limit of the environment's
	Success    bool    `json:"success,omitempty"`    // the goal of the task is reached
	Anchor     string  `json:"anchor,omitempty"`     // names the state after the action; "": its observation names it

	State json.RawMessage `json:"state,omitempty"` // of the environment after the action, from which it can go on; nil: it keeps none
}

// Over tells whether the episode ended.
func (o *Outcome) Over() bool { return o != nil && (o.Terminated || o.Truncated) }

// Fail makes r the result of a call that failed, with what the model reads of it.
func (r *ToolResult) Fail(cause Cause, observation string) {
	r.Failed, r.Cause, r.Failure, r.Observation = true, cause, cause.Failure(), observation
}

// Turn is prompt → completion → observation. Offsets index the token ids of its sample.
type Turn struct {
	Sample           int          `json:"sample"`               // index into Trajectory.Samples
	CompletionStart  int          `json:"completion_start"`     // the prompt of the turn is TokenIDs[:CompletionStart]
	CompletionEnd    int          `json:"completion_end"`       // exclusive
	ObservationEnd   int          `json:"observation_end"`      // exclusive; equals CompletionEnd when nothing was observed
	Completion       string       `json:"completion"`           // decoded, special tokens left out
	InThought        bool         `json:"in_thought,omitempty"` // the prompt opened a thought, which the completion goes on with; an older program did not store it
	FinishReason     FinishReason `json:"finish_reason"`        //
	Results          []ToolResult `json:"results,omitempty"`    // in the order of the calls
	Seed             uint64       `json:"seed"`                 // of the request; derives from run, task, trajectory and turn
	CachedTokens     int          `json:"cached_tokens"`        // prompt tokens that the engine had in its cache
	EngineSeconds    float64      `json:"engine_seconds"`       //
	ToolSeconds      float64      `json:"tool_seconds"`         //
	ParseErrors      int          `json:"parse_errors"`         // calls that could not be parsed
	FinalAnswer      string       `json:"final_answer,omitempty"`
	AnsweredThisTurn bool         `json:"answered"`           // FinalAnswer is valid
	Role             Role         `json:"role,omitempty"`     // of the agent whose turn it is; "" where a trajectory has one
	Incoming         *Incoming    `json:"incoming,omitempty"` // how an agent that is a program of its own asked for it; nil: the run's own agent did

	// What only some estimators read. An environment fills in the first two, a tree rollout the third.
	Reward *float64 `json:"reward,omitempty"` // paid at the end of the turn, in addition to the trajectory's reward, which leaves it out; nil: none
	Anchor string   `json:"anchor,omitempty"` // names the state before the turn, as an environment or a history that a tool replaced does; "" is the text of the observation before it
	Shared string   `json:"shared,omitempty"` // turns of a group with the same name were sampled once, by the trajectory that SharedBy names; "": its own alone
	Begun  []Begun  `json:"begun,omitempty"`  // by whom its completion was begun, if by others: the tokens behind theirs are those that SharedBy sampled

	Entropy float64 `json:"entropy,omitempty"` // nats a token, the mean over the first tokens of the completion; 0: not measured
}

// Begun is a beginning of a turn's completion that another trajectory of the tree sampled, for a turn of its own.
type Begun struct {
	Shared string `json:"shared"` // name of that turn
	End    int    `json:"end"`    // tokens of the completion up to its end; it begins where the one before it ends
}

// Said is the completion, with the <think> in front with which its prompt opened a thought.
func (t *Turn) Said() string {
	if t.InThought {
		return "<think>" + t.Completion
	}
	return t.Completion
}

// BegunTokens is how many of the completion's first tokens others sampled.
func (t *Turn) BegunTokens() int {
	if len(t.Begun) == 0 {
		return 0
	}
	return t.Begun[len(t.Begun)-1].End
}

// Cut tells that a token limit of the job's cut the completion. One that ends at a smaller limit of its agent's own is what the agent asked for.
func (t *Turn) Cut() bool {
	in := t.Incoming
	return t.FinishReason == FinishLength && !(in != nil && in.OwnLimit && t.CompletionEnd-t.CompletionStart >= in.MaxTokens)
}

// Sampled is how many tokens the trajectory that SharedBy names sampled for the turn.
func (t *Turn) Sampled() int { return t.CompletionEnd - t.CompletionStart - t.BegunTokens() }

// SharedName is the name of a turn in a tree: of what a trajectory sampled.
func SharedName(id string, turn int) string { return id + ":" + strconv.Itoa(turn) }

// SharedBy is the id of the trajectory that sampled what has that name; "" is that of "".
func SharedBy(name string) string { return name[:max(0, strings.LastIndexByte(name, ':'))] }

// SharedBy is the id of the trajectory that sampled the turn; "": that whose turn it is.
func (t *Turn) SharedBy() string { return SharedBy(t.Shared) }

// Incoming is how an agent asked for a turn over the gateway.
type Incoming struct {
	Dialect string          `json:"dialect"`         // the API: chat, completions, responses or messages
	Digest  string          `json:"digest"`          // of the canonical request, in hexadecimal: what is asked for again after a restart has the same
	Asked   json.RawMessage `json:"asked,omitempty"` // the parameters that it asked for, beside its conversation; what was applied is the job's
	Tools   bool            `json:"tools,omitempty"` // it offered tools
	Stop    []string        `json:"stop,omitempty"`  // the stop strings that it asked for
	Role    Role            `json:"role,omitempty"`  // that the job's rules give it; "": none fits
	After   int             `json:"after"`           // the last turn of the sample that it joined, else the turn whose reply stands last in its conversation; -1: none
	Call    int             `json:"call,omitempty"`  // the number of the call in its session, from 1: the reply's ids follow from it; 0: an older program did not store it

	Created int64 `json:"created,omitempty"` // when it came, in seconds since 1970, which the reply tells; 0: an older program did not store it

	// Spent is how many seconds of the session's budget of time were spent when its reply was there, where that budget begins with the first call.
	Spent float64 `json:"spent,omitempty"`

	Holder string `json:"holder,omitempty"` // of the session's key, where it was handed to agents that come for tasks

	Choice string `json:"choice,omitempty"` // of tools: none, required or named; "": auto
	Serial bool   `json:"serial,omitempty"` // one call a reply was asked for
	Prompt string `json:"prompt,omitempty"` // of a completion that was asked for with a text
	// MaxTokens is the most that the call could sample, of what it asked for and the job, its budget and the context allow; 0: an older program
	// did not store it.
	MaxTokens int `json:"max_tokens,omitempty"`
	// OwnLimit says that MaxTokens is what it asked for, less than the others allow; an older program did not store it.
	OwnLimit bool `json:"own_limit,omitempty"`
	// Unapplied are the parameters that were not applied: those that asked for a form of the reply (response_format in every dialect, tool_choice,
	// structured_outputs), because the policy samples freely, so that what it learns from is its own distribution, and chat_template_kwargs, because
	// the job decides how prompts are rendered. Held are forms that the reply was held to: its logprobs are those of the tokens that the form left.
	Unapplied []string `json:"unapplied,omitempty"`
	Held      []string `json:"held,omitempty"`

	Whole    bool              `json:"whole,omitempty"`    // Messages are the whole conversation, not what is behind the reply of After
	Messages json.RawMessage   `json:"messages,omitempty"` // as the agent sent them: a list of Message
	Schemas  []json.RawMessage `json:"schemas,omitempty"`  // of the tools, with Whole; without it those of After
}

// Sent are the messages that came with the call; nil: none did, or they cannot be read.
func (in *Incoming) Sent() (messages []Message) {
	if in == nil || json.Unmarshal(in.Messages, &messages) != nil {
		return nil
	}
	return messages
}

// Texts are those that came with the call: what messages say and think, the arguments of their calls, and the text that was to be completed.
func (in *Incoming) Texts() (out []string) {
	for _, m := range in.Sent() {
		for _, p := range m.Content {
			out = append(out, p.Text)
		}
		out = append(out, m.Reasoning)
		for _, c := range m.ToolCalls {
			out = append(out, string(c.Arguments))
		}
	}
	if in != nil {
		out = append(out, in.Prompt)
	}
	return out
}

// Posted is what an agent, or who judges it, posted for a trajectory over HTTP: a reward, or the agent's result.
type Posted struct {
	ID     string          `json:"id,omitempty"`     // that its sender gave it, so that it counts once; "": none
	Turn   int             `json:"turn"`             // that the reward is for; -1: the trajectory
	Reward float64         `json:"reward,omitempty"` //
	End    json.RawMessage `json:"end,omitempty"`    // the agent's result, with which the trajectory ends; nil: it is a reward
}

// Trajectory is the record of one rollout of one task.
type Trajectory struct {
	ID          string             `json:"id"`
	TaskID      string             `json:"task_id"`
	Group       int                `json:"group"`               // index of its group in the step
	Index       int                `json:"index"`               // index in its group
	Branch      Branch             `json:"branch,omitempty"`    // in the tree that grows from Index; "" outside of trees
	Forked      int                `json:"forked,omitempty"`    // turns that it has of the branch it forks off: its own begin there
	ForkedAt    int                `json:"forked_at,omitempty"` // tokens that it has of the completion of the next turn of that branch, with which its first own turn begins; 0: it forks between turns
	Step        int                `json:"step"`                // the step it was sampled for, from 0; of an evaluation the steps before it
	Turns       []Turn             `json:"turns"`
	Samples     []*Sample          `json:"-"`                // stored apart: see the store
	Posted      []Posted           `json:"posted,omitempty"` // in the order in which it came
	Reward      float64            `json:"reward"`
	RewardParts map[string]float64 `json:"reward_parts,omitempty"`
	Unscored    bool               `json:"unscored,omitempty"` // the job has no rewards, and nobody posted one for its turns
	Unpaid      bool               `json:"unpaid,omitempty"`   // its turns were paid while it ran, and that was taken back at its end
	StopReason  StopReason         `json:"stop_reason"`
	Err         string             `json:"err,omitempty"`        // why it failed, in one line; empty unless Failed. With StopError and StopCancelled it never is
	ErrOrigin   Origin             `json:"err_origin,omitempty"` // the part of the run that Err comes from
	Failure     Failure            `json:"failure,omitempty"`    // whose doing Err is; "" without one
	Started     time.Time          `json:"started"`
	Seconds     float64            `json:"seconds"`
}

// Fail records an error of that origin, whose text is not empty. Its StopReason is the caller's: a trajectory that fails after it was sampled, as one
// that the teacher has no logprobs of does, keeps the one that it has.
func (t *Trajectory) Fail(origin Origin, text string) {
	t.Err, t.ErrOrigin, t.Failure = text, origin, origin.Failure()
}

// Failed tells whether the trajectory failed or was cancelled, so that it has no reward and nothing is learned from it.
func (t *Trajectory) Failed() bool { return t.Err != "" }

// Return is all that the trajectory was paid: its reward, and the rewards of its turns.
func (t *Trajectory) Return() float64 {
	sum := t.Reward
	for i := range t.Turns {
		if r := t.Turns[i].Reward; r != nil {
			sum += *r
		}
	}
	return sum
}

// Scored tells whether Return is a reward: a trajectory that failed has none, a recorded conversation was scored by nobody, and neither is what was
// sampled for a job without rewards.
func (t *Trajectory) Scored() bool {
	return !t.Failed() && t.StopReason != StopRecorded && !t.Unscored
}

// Owns tells whether the trajectory sampled its turn k, and its tools ran for it. What a tree shares is counted where it was sampled.
func (t *Trajectory) Owns(k int) bool {
	by := t.Turns[k].SharedBy()
	return by == "" || by == t.ID
}

// TakeBack takes back what turns were paid. A store that recorded the turns before finds so by Unpaid.
func (t *Trajectory) TakeBack() {
	for i := range t.Turns {
		t.Unpaid = t.Unpaid || t.Turns[i].Reward != nil
		t.Turns[i].Reward = nil
	}
}

// LastOutcome is what an environment gave for the last action; nil without one.
func (t *Trajectory) LastOutcome() *Outcome {
	for i := len(t.Turns) - 1; i >= 0; i-- {
		for k := len(t.Turns[i].Results) - 1; k >= 0; k-- {
			if o := t.Turns[i].Results[k].Outcome; o != nil {
				return o
			}
		}
	}
	return nil
}

// FinalAnswer returns the answer of the last turn that gave one, and that turn's index, or "", -1.
func (t *Trajectory) FinalAnswer() (string, int) {
	for i := len(t.Turns) - 1; i >= 0; i-- {
		if t.Turns[i].AnsweredThisTurn {
			return t.Turns[i].FinalAnswer, i
		}
	}
	return "", -1
}

// Last is the last turn of the agent itself, of others but for discarded ones where it has none; -1: there is no such turn.
func (t *Trajectory) Last() int {
	last := -1
	for i := len(t.Turns) - 1; i >= 0; i-- {
		switch t.Turns[i].Role {
		case RoleDiscarded:
		case RoleAuxiliary:
			last = max(last, i)
		default:
			return i
		}
	}
	return last
}

// Own are the turns of the agent itself, of others but for discarded ones where it has none: what a trajectory is judged by that a program of its own
// made, whose titles and thrown replies are no part of its work.
func (t *Trajectory) Own() (turns []Turn) {
	last := t.Last()
	for i, turn := range t.Turns {
		if turn.Role != RoleDiscarded && (turn.Role != RoleAuxiliary || t.Turns[last].Role == RoleAuxiliary) {
			turns = append(turns, t.Turns[i])
		}
	}
	return turns
}

// Cut tells that a token limit cut the last completion, the turn Last, and ended the trajectory there: what that completion holds is neither a
// call nor an answer. Of an agent that is a program of its own the gateway decides that when the trajectory ends, and nothing else gives it the
// stop reason.
func (t *Trajectory) Cut() bool {
	if len(t.Turns) == 0 || t.StopReason != StopMaxTokens {
		return false
	}
	last := t.Turns[len(t.Turns)-1]
	return last.Incoming != nil || last.FinishReason == FinishLength && len(last.Results) == 0 && !last.AnsweredThisTurn
}

// Trained is t with the tokens of the turns that are not trained off the response mask; t itself where all are. The turns whose role frozen names are
// not, nor those that were discarded; nil names none. What is not trained is shared with t.
func (t *Trajectory) Trained(frozen func(Role) bool) *Trajectory {
	out := t
	for _, turn := range t.Turns {
		if turn.Role != RoleDiscarded && (turn.Role == "" || frozen == nil || !frozen(turn.Role)) {
			continue
		}
		if out == t {
			all := *t
			out, all.Samples = &all, slices.Clone(t.Samples)
		}
		if out.Samples[turn.Sample] == t.Samples[turn.Sample] {
			s := *t.Samples[turn.Sample]
			s.ResponseMask, s.SamplingLogprobs, s.PolicyVersion = slices.Clone(s.ResponseMask), slices.Clone(s.SamplingLogprobs), slices.Clone(s.PolicyVersion)
			out.Samples[turn.Sample] = &s
		}
		s := out.Samples[turn.Sample]
		for i := turn.CompletionStart; i < turn.CompletionEnd; i++ {
			s.ResponseMask[i], s.SamplingLogprobs[i], s.PolicyVersion[i] = false, 0, -1
		}
	}
	return out
}

// SamplesAfter are the samples as they were after the first turns, with what those observed.
func (t *Trajectory) SamplesAfter(turns int) []*Sample {
	var ends []int // of samples, which turns begin in their order and go on in any
	for _, turn := range t.Turns[:turns] {
		ends = append(ends, make([]int, max(0, turn.Sample+1-len(ends)))...)
		ends[turn.Sample] = turn.ObservationEnd
	}
	var out []*Sample
	for k, of := range t.Samples[:min(len(ends), len(t.Samples))] {
		end, prefix := ends[k], of.Prefix(ends[k])
		out = append(out, &Sample{
			Role: of.Role, TokenIDs: prefix.IDs, ResponseMask: of.ResponseMask[:end], SamplingLogprobs: of.SamplingLogprobs[:end], PolicyVersion: of.PolicyVersion[:end], Media: prefix.Media,
		})
	}
	return out
}

// ResponseTokens counts the tokens that the policy sampled, over all samples.
func (t *Trajectory) ResponseTokens() int {
	n := 0
	for _, s := range t.Samples {
		n += s.ResponseTokens()
	}
	return n
}

// Group is the trajectories of one task that share a baseline.
type Group struct {
	Task         Task
	Trajectories []*Trajectory
	Greedy       *Trajectory // of the same task by the same policy version at temperature 0; nil unless the estimator asks
}

// LowestVersion is the oldest policy version of the tokens that an update would train, which leaves out the roles that frozen names; nil: none. -1: there
// are no such tokens.
func (g Group) LowestVersion(frozen func(Role) bool) int32 {
	lowest := int32(-1)
	for _, tr := range g.Trajectories {
		if tr.Failed() {
			continue
		}
		for _, s := range tr.Trained(frozen).Samples {
			for i, on := range s.ResponseMask {
				if on && (lowest < 0 || s.PolicyVersion[i] < lowest) {
					lowest = s.PolicyVersion[i]
				}
			}
		}
	}
	return lowest
}

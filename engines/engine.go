// Package engines defines the contract of a sampler: token ids in; sampled ids, their logprobs and the policy
// version that sampled each of them out. Implementations: engines/local (libtorch, in process), engines/vllm (real
// servers), engines/openai (text endpoints), engines/scripted (unit tests only), and those that a program adds to the Registry.
//
// It does not sample, and it does not know what is sampled for: conversations, tools and rewards are packages
// orchestrator/rollout, tools and rewards.
package engines

import (
	"context"
	"errors"

	"github.com/agentfly/agentfly/trajectory"
)

// Sampling are the parameters of one request. Every field is always sent: no server default enters silently.
type Sampling struct {
	MaxTokens   int      // most tokens to sample; at least 1
	Temperature float64  // 0 is greedy: the argmax, with the logprobs of temperature 1
	TopP        float64  // (0, 1]; 1 is off
	TopK        int      // 0 is off
	MinP        float64  // [0, 1); 0 is off
	StopIDs     []int32  // sampling one ends the completion; it is part of the returned ids
	Stop        []string // completing one in the decoded text ends the completion; its tokens are part of the returned ids

	// Of the rest vLLM's meaning: what is sampled, and the logprobs that are told, are those of the changed distribution, greedily too.
	MinTokens  int     // so many are sampled before a stop id can be, or a stop string counts; 0 is off
	Presence   float64 // [-2, 2] less for the logit of each token that was sampled in this completion; 0 is off
	Frequency  float64 // [-2, 2] less for each time that it was
	Repetition float64 // above 0: divides positive logits of tokens in prompt and completion, multiplies negative ones; 0 and 1 are off
}

// Penalized tells whether the parameters change the logits of single tokens.
func (s *Sampling) Penalized() bool {
	return s.MinTokens > 0 || s.Presence != 0 || s.Frequency != 0 || s.Repeats()
}

// Repeats tells whether there is a repetition penalty.
func (s *Sampling) Repeats() bool { return s.Repetition != 0 && s.Repetition != 1 }

// Request asks for one completion.
type Request struct {
	ID      string  // names the request in errors and logs
	Session string  // requests of one trajectory share it (prefix reuse, replica affinity)
	Prompt  []int32 // [P], not empty; the engine does not keep it after Generate returns
	// Media stand behind placeholders of Prompt; their contents are in the parts of Messages, in the same order. An engine without
	// Capabilities.Media refuses them with ErrMedia. What an engine keeps of a prompt is found again by trajectory.Prefix, so that
	// two images with the same placeholders are never taken for each other.
	Media []trajectory.Medium
	// Messages are the conversation that Prompt renders, for engines without TokenIDs; the others do not look at them.
	Messages []trajectory.Message
	Sampling Sampling //
	Seed     uint64   // the same seed, prompt, parameters and weights give the same completion
	// Constraint holds the completion to a form; nil is none. An engine without Capabilities.Constraints refuses it. The excluded tokens
	// leave the distribution before temperature and truncation, so that Logprobs are those of what is left.
	Constraint Constraint
	// Sampled is how many of the prompt's last tokens are the beginning of this completion, sampled with the same seed: it goes
	// on after them as if it had not ended there. Only the local engine can.
	Sampled int
	// Top is how many of the likeliest tokens Completion.Top tells at each place, at most Capabilities.Top and below the vocabulary, whose
	// last token the others tell; 0: none. What is sampled is the same whatever it is.
	Top int
}

// Completion is what was sampled. TokenIDs, Logprobs and Versions are parallel, [n].
type Completion struct {
	TokenIDs     []int32                 // includes the stop token if and only if it was sampled; empty only without the capability TokenIDs, where it was cut
	Logprobs     []float32               // of the distribution that was sampled (after temperature and truncation)
	Versions     []int32                 // the policy version that sampled each token
	FinishReason trajectory.FinishReason //
	CachedTokens int                     // prompt tokens that were not computed again
	// Top are the likeliest tokens at each place, most likely first: [n][Request.Top], nil where the request asks for none. Their logprobs
	// are of the same distribution as Logprobs; -Inf is what truncation excludes. A place may lack the last of them if a token was sampled
	// there that is none of them: a vLLM server's reply has no room for both where Request.Top is all that it may tell.
	Top [][]Alternative
}

// Weights describe one update. Apply is set when engine and trainer share parameters: the engine calls it at a barrier
// between decode steps, so that nobody reads the parameters meanwhile. Otherwise Path names a Hugging Face folder (or a
// PEFT adapter's) that stays as it is until the next Update returns, and Probe proves that the engine computes with it.
//
// Tensors, where they are set, hold the same weights without a folder, for engines that ask for them; Path is empty then.
type Weights struct {
	Version int32
	Path    string
	Tensors Tensors
	Apply   func(ctx context.Context) error
	Probe   *Probe
}

// Constraint is a form that completions may be held to (package grammar). It is safe for concurrent use.
type Constraint interface {
	Match() Matcher // at the beginning of a completion
}

// Matcher stands behind the tokens of one completion. An engine calls it from one goroutine at a time.
type Matcher interface {
	// Allowed tells which tokens may come next, a bit each: word id/64, bit id%64; the caller must not change or keep them. end: the
	// completion may end here, which a stop id does; where nothing may come next and there is no stop id, it ends by itself.
	Allowed() (tokens []uint64, end bool, err error)
	// Take goes on behind a token that Allowed had and that is no stop id.
	Take(id int32) error
}

// Probe is a sequence and what the trainer computes for it with the new weights.
type Probe struct {
	TokenIDs  []int32   // [P], P >= 2
	Logprobs  []float32 // [P-1] of each token but the first given those before it, at temperature 1
	Tolerance float64   // of the difference between engine and trainer in a logprob, in nats; above 0. vllm.Compare has the rule
}

// Capabilities say what an engine can do; the trainer refuses an engine without TokenIDs or WeightUpdates.
type Capabilities struct {
	TokenIDs         bool // prompts and completions are token ids with logprobs
	WeightUpdates    bool // Update moves to other weights; without it the engine samples for rollout and eval, with its own model
	SharedParameters bool // Weights.Apply is honoured; with WeightUpdates
	BatchInvariant   bool // a request's tokens and logprobs are the same bits whatever runs beside it
	Media            bool // requests may have Media
	Constraints      bool // requests may have a Constraint
	Top              int  // the largest Request.Top: likeliest tokens that Generate tells at each place; 0: none
	MaxModelLen      int  // prompt plus completion
}

// Engine samples completions. All methods are safe for concurrent use.
type Engine interface {
	// Generate blocks until the completion ends or ctx is done. A cancelled request frees its place at once.
	// A prompt that leaves no room for a token is ErrTooLong.
	Generate(ctx context.Context, r Request) (Completion, error)
	// Update moves to new weights: pause, load, resume. On error the old weights serve on or nothing does, never a mix.
	// Without the capability WeightUpdates it is an error.
	Update(ctx context.Context, w Weights) error
	Capabilities() Capabilities
	// Close ends running requests with ErrClosed and is idempotent.
	Close() error
}

// Logprober is an engine that tells how likely given tokens are: what `inspect score --engine` and proofs of weight updates ask.
type Logprober interface {
	// Logprobs takes text only. It returns log p(ids[t+1] | ids[0..t]) at temperature 1, untruncated: [len(ids)-1]. ids holds at least 2.
	Logprobs(ctx context.Context, ids []int32) ([]float32, error)
}

// Sleeper is an engine that gives its accelerator's memory to the trainer between two rollouts.
type Sleeper interface {
	// Sleep returns when the memory is free. Nothing is sampled then until an Update, which wakes the engine; requests wait.
	// After an error nothing is sampled before an Update that succeeds.
	Sleep(ctx context.Context) error
}

// Streamer is an engine that hands tokens out as they are sampled: what a server needs.
type Streamer interface {
	// Stream is Generate that calls on with each new piece of the completion, in order, at least one token each, from its
	// own goroutine: on may block without holding the engine up, and is not called after Stream returned. After an error
	// the pieces are what was sampled until then. on must not keep the slice. What is told of a token d says: r.Top is 0.
	Stream(ctx context.Context, r Request, d Detail, on func([]Token)) (Completion, error)
}

// Loaded is an engine that tells how busy it is: what `agentfly status` and the page show.
type Loaded interface {
	// Load is a line for each server, or one for an engine in this process. It may be called after Close.
	Load() []Load
}

// Load is how busy an engine is, or one of its servers.
type Load struct {
	Server  string // its address; "": in this process
	Running int    // requests that it works on
	Slots   int    // how many it works on at once; a vLLM server is sent more while another is away
	Waiting int    // requests that have no slot; 0 for a server among several, which is chosen when it has one
	Down    string // why it takes no requests; "": it does
}

// Detail says what a stream tells of each token.
type Detail struct {
	Raw bool // logprobs are at temperature 1 and untruncated, instead of the distribution that was sampled
	Top int  // number of most likely tokens to list
}

// Token is one sampled token of a stream.
type Token struct {
	ID      int32
	Logprob float32       // as Detail.Raw says
	Version int32         // policy version that sampled it
	Top     []Alternative // [Detail.Top] most likely first, of the same distribution as Logprob; -Inf for what truncation excludes
}

// Alternative is a token that could have been sampled, or was.
type Alternative struct {
	ID      int32
	Logprob float32
}

// Errors that callers tell apart with errors.Is.
var (
	ErrTooLong = errors.New("engines: prompt is too long for the model's context")
	ErrClosed  = errors.New("engines: engine is closed")
	// ErrRefused: the server says that the request itself is wrong, such as a token that its model does not know. It would say
	// so again.
	ErrRefused = errors.New("engines: the request was refused")
	// ErrConstraint: the request has a Constraint, and the engine cannot hold to one.
	ErrConstraint = errors.New("engines: this engine does not constrain decoding")
	// ErrMedia: the request has media, and the engine takes text only.
	ErrMedia = errors.New("engines: this engine takes text only, the prompt has media; use a model and an engine that take images, or leave them out")
	// ErrStreamTop: the request of a stream has a Top, which its Detail is to say.
	ErrStreamTop = errors.New("engines: a stream tells the likeliest tokens with each token, as Detail.Top asks; leave Request.Top at 0")
	// ErrForeign: somebody else changed the weights that the engine samples with. It stays: the run must end, because what it
	// samples is no longer its own policy's.
	ErrForeign = errors.New("engines: the weights are another run's")
)

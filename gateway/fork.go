package gateway

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

// Tree says where in a tree a session's trajectory grows. Its turns are named, so that other trajectories of the tree may have them too.
//
// An agent that forks begins anew, with the same task. The calls before the fork get the replies that were recorded, if and only if they ask for the same;
// then the agent is where the other one was, if it is a function of its replies, and the next call is sampled.
type Tree struct {
	Base  *trajectory.Trajectory // the turns of the trajectory that it forks off, up to the fork; nil: none
	Ahead []string               // digests of what that one asked for behind the fork: a call of an agent that makes several at once may be one of them
	Begun *Begun                 // what the reply begins with that it forks within; nil: it forks between calls
	// Generate asks the engine, and measures the entropy of a completion's first tokens; nil: the gateway's engine, and nothing is measured.
	Generate func(ctx context.Context, q engines.Request) (c engines.Completion, entropy float64, err error)
}

// Begun is the beginning of a turn's completion that another trajectory of the tree sampled.
type Begun struct {
	Incoming *trajectory.Incoming // how the turn was asked for; nil: by the run's own agent
	Prompt   trajectory.Prefix    // that it was sampled after
	By       []trajectory.Begun   // who sampled it
	IDs      []int32              // [n]
	Logprobs []float32            // [n] sampling logprobs
	Versions []int32              // [n]
}

// Before is the whole completion: the beginning, and what an engine sampled after it. The receiver is nil where there is no beginning.
func (b *Begun) Before(c engines.Completion) engines.Completion {
	if b != nil {
		c.TokenIDs, c.Logprobs, c.Versions = slices.Concat(b.IDs, c.TokenIDs), slices.Concat(b.Logprobs, c.Logprobs), slices.Concat(b.Versions, c.Versions)
	}
	return c
}

// ErrOtherWay says that an agent does not do again before a fork what was recorded, so that its trajectory cannot fork there.
var ErrOtherWay = errors.New("the agent does not do again what was recorded before the fork (agent.deterministic)")

// ErrLost says that a trajectory cannot fork, because what was recorded before the fork cannot be read.
var ErrLost = errors.New("gateway: what was recorded before the fork cannot be read: an older program recorded it, or the template of the model changed since")

// fork is what a session knows of its place in a tree.
type fork struct {
	*Tree
	turns int // of Base
}

// forkOf is the place of a session in a tree; nil where there is none.
func forkOf(t *Tree) *fork {
	if t == nil {
		return nil
	}
	f := &fork{Tree: t}
	if t.Base != nil {
		f.turns = len(t.Base.Turns)
	}
	return f
}

// generate asks the engine for a completion.
func (f *fork) generate(ctx context.Context, engine engines.Engine, q engines.Request) (c engines.Completion, entropy float64, err error) {
	if f == nil || f.Generate == nil {
		c, err = engine.Generate(ctx, q)
		return c, 0, err
	}
	return f.Generate(ctx, q)
}

// prompt is the one that the reply was begun after which it forks within, where a request asks for the same; nil: it does not.
func (f *fork) prompt(q asked) []int32 {
	if f == nil || f.Begun == nil || f.Begun.Incoming.Digest != hex.EncodeToString(q.Digest[:]) {
		return nil
	}
	return f.Begun.Prompt.IDs
}

// beginning is what the reply to a new call begins with; nil: nothing.
func (f *fork) beginning(l *calls, q asked, p prompt) *Begun {
	if f == nil || f.Begun == nil || l.begun() || f.Begun.Incoming.Digest != hex.EncodeToString(q.Digest[:]) || !slices.Equal(f.Begun.Prompt.IDs, p.ids) {
		return nil
	}
	return f.Begun
}

// name names a turn of the trajectory with that id, where it is its own.
func (f *fork) name(turn *trajectory.Turn, id string, index int) {
	if by := turn.SharedBy(); f != nil && (by == "" || by == id) {
		turn.Shared = trajectory.SharedName(id, index)
	}
}

// before is how many calls that were recorded before the fork did not come again, the one that it forks within among them.
func (f *fork) before(l *calls) (n int) {
	if f == nil {
		return 0
	}
	if f.Begun != nil && !l.begun() {
		n++
	}
	for _, c := range l.byNumber {
		if c.coming {
			n++
		}
	}
	return n
}

// begins has a new call be sampled, and tells what its reply begins with. It refuses a call that the agent did not make there: the fork is not behind it, it
// does not go on after what was sampled behind the fork, and the other trajectory did not make it behind the fork.
func (s *Session) begins(c *call, q asked, p prompt) (*Begun, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.fork
	b := f.beginning(&s.calls, q, p)
	if c.begun = b != nil; c.begun || f.before(&s.calls) == 0 || p.after >= f.turns || slices.Contains(f.Ahead, hex.EncodeToString(q.Digest[:])) {
		return b, nil
	}
	number, in := f.turns+1, (*trajectory.Incoming)(nil)
	if f.Begun != nil {
		in = f.Begun.Incoming
	}
	if c := s.calls.next(); c != nil {
		number, in = c.turn+1, s.growth.t.Turns[c.turn].Incoming
	}
	err := fmt.Errorf("%w: call %d asks for something else than was recorded: %s", ErrOtherWay, number, s.growth.difference(q, in))
	s.faults.fails(err)
	return nil, otherWay(err)
}

// otherWay is what an agent reads that went another way. It is of a status that clients do not try again.
func otherWay(err error) error {
	return &dialects.Error{Status: http.StatusBadRequest, Message: err.Error(), Code: "other_way"}
}

// difference says in which way a request is not the one that was recorded.
func (g *growth) difference(q asked, was *trajectory.Incoming) string {
	if q.dialect != was.Dialect {
		return fmt.Sprintf("it is of the API %s, recorded is %s", q.dialect, was.Dialect)
	}
	if was.Prompt != q.Prompt.Text {
		return fmt.Sprintf("its prompt is %q, recorded is %q", wording.Clip(q.Prompt.Text, told), wording.Clip(was.Prompt, told))
	}
	recorded, schemas := g.conversation(was)
	for i := range max(len(recorded), len(q.Messages)) {
		is, before := "none", "none"
		if i < len(q.Messages) {
			is = inShort(q.Messages[i])
		}
		if i < len(recorded) {
			before = inShort(recorded[i])
		}
		if i < min(len(recorded), len(q.Messages)) && keyOf(recorded[i], true) == keyOf(q.Messages[i], true) {
			continue
		}
		return fmt.Sprintf("message %d is %s, recorded is %s", i+1, is, before)
	}
	if !slices.EqualFunc(schemas, q.Tools, func(a, b json.RawMessage) bool { return dialects.Canonical(a) == dialects.Canonical(b) }) {
		return "it offers other tools"
	}
	if dialects.Canonical(q.Asked) != dialects.Canonical(was.Asked) {
		return fmt.Sprintf("its parameters are %s, recorded are %s", wording.Clip(string(q.Asked), told), wording.Clip(string(was.Asked), told))
	}
	return "its messages are the same, written in another way, such as with other ids of calls"
}

// told is how much of a text an error tells, in characters.
const told = 200

func inShort(m trajectory.Message) string {
	text, _ := json.Marshal(m) // of texts and JSON that was read
	return wording.Clip(string(text), told)
}

// conversation is what a recorded call was asked with: messages and tools.
func (g *growth) conversation(of *trajectory.Incoming) (messages []trajectory.Message, tools []json.RawMessage) {
	tools = of.Schemas
	if before := g.reply(of.After); !of.Whole && before != nil {
		messages, tools = append(slices.Clone(before.sent), before.echo), before.tools
	}
	var more []trajectory.Message
	_ = json.Unmarshal(of.Messages, &more) // it was read when the session began
	return append(messages, more...), tools
}

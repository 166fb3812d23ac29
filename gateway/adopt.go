package gateway

import (
	"cmp"
	"encoding/hex"
	"encoding/json"

	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/trajectory"
)

// adopt makes the recorded turns those of the trajectory, and what was said in them known, so that an agent that lived on goes on: its next call
// joins the sample of the one before, and its last one gets the recorded reply if it comes again. It returns how many turns were adopted.
func (s *Session) adopt(r *trajectory.Trajectory) (adopted int) {
	replies := make([]*said, len(r.Turns))
	for i, was := range r.Turns {
		in := was.Incoming
		if in == nil || was.Sample >= len(r.Samples) || in.After >= i || !in.Whole && (in.After < 0 || replies[in.After] == nil) {
			return i // a record of another program; what stands behind it is asked for anew
		}
		number := s.calls.numberOf(in)
		c := &call{id: callName(s.o.Name, number), number: number, created: s.gate.Now(), done: make(chan struct{}), adopted: true}
		digest, err := hex.DecodeString(in.Digest)
		if err != nil || copy(c.digest[:], digest) != len(c.digest) {
			return i
		}
		var messages []trajectory.Message
		if json.Unmarshal(in.Messages, &messages) != nil {
			return i
		}
		q := asked{
			Request: &dialects.Request{
				Messages: messages, Tools: in.Schemas, Stop: in.Stop, Parallel: !in.Serial, Prompt: dialects.Prompt{Text: in.Prompt},
				Choice: dialects.Choice{Mode: dialects.ChoiceMode(cmp.Or(in.Choice, string(dialects.ChoiceAuto)))},
			},
			dialect: in.Dialect,
		}
		of := r.Samples[was.Sample]
		p := prompt{ids: of.TokenIDs[:was.CompletionStart], text: in.Prompt, history: messages, after: in.After}
		k := s.growth.history.keyOf(messages)
		switch {
		case !in.Whole:
			before := replies[in.After]
			q.Tools = before.tools
			reply := masks.Reply{History: before.history, Tools: q.Tools, Completion: before.completion, Results: messages, Sampled: before.sampled, Prompt: before.text}
			p.history = reply.Messages()
			if _, p.text, err = s.gate.Renderer.Continue(reply); err != nil {
				return i
			}
			k = before.asked.with(keyOf(before.echo, s.growth.history.thoughts))
			for _, m := range messages {
				k = k.with(keyOf(m, s.growth.history.thoughts))
			}
		case messages != nil:
			if _, p.text, err = s.gate.Renderer.Prompt(messages, q.Tools, true); err != nil {
				return i
			}
		}
		if p.schemas, p.format, err = s.prompts.tools(q); err != nil {
			return i
		}
		done := engines.Completion{
			TokenIDs: of.TokenIDs[was.CompletionStart:was.CompletionEnd], Logprobs: of.SamplingLogprobs[was.CompletionStart:was.CompletionEnd],
			Versions: of.PolicyVersion[was.CompletionStart:was.CompletionEnd], FinishReason: was.FinishReason, CachedTokens: was.CachedTokens,
		}
		turn := was
		turn.Role, turn.FinalAnswer, turn.AnsweredThisTurn = "", "", false
		if c.reply, err = s.append(c, q, p, turn, done, k); err != nil {
			return i
		}
		close(c.done)
		s.calls.add(c)
		s.recovered.taken++
		replies[i] = s.growth.newest
		s.spending.adopt()
	}
	return len(r.Turns)
}

package gateway

import (
	"encoding/hex"
	"encoding/json"
	"strconv"

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
		c := &call{id: s.name(s.arrived), number: s.arrived, created: s.gate.Now(), done: make(chan struct{}), adopted: true}
		digest, err := hex.DecodeString(in.Digest)
		if err != nil || copy(c.digest[:], digest) != len(c.digest) {
			return i
		}
		var messages []trajectory.Message
		if json.Unmarshal(in.Messages, &messages) != nil {
			return i
		}
		q := asked{Request: &dialects.Request{Messages: messages, Tools: in.Schemas, Stop: in.Stop, Parallel: true}, dialect: in.Dialect}
		of := r.Samples[was.Sample]
		p := prompt{ids: of.TokenIDs[:was.CompletionStart], history: messages, after: in.After}
		k := s.history.keyOf(messages)
		if !in.Whole {
			before := replies[in.After]
			q.Tools = before.tools
			p.history = (&masks.Reply{History: before.history, Completion: before.completion, Results: messages}).Messages()
			k = before.asked.with(keyOf(before.echo, s.history.thoughts))
			for _, m := range messages {
				k = k.with(keyOf(m, s.history.thoughts))
			}
		}
		if p.schemas, p.format, err = s.toolsOf(q); err != nil {
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
		s.arrived++
		s.calls[c.digest] = c
		s.taken++
		replies[i] = s.newest
		s.granted++
	}
	return len(r.Turns)
}

// name is that of a call.
func (s *Session) name(number int) string { return s.o.Name + "-" + strconv.Itoa(number) }

package gateway

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/trajectory"
)

// adopt makes the recorded turns those of the trajectory, and what was said in them known, so that an agent that lived on goes on: its next call
// joins the sample of the one before, and its last one gets the recorded reply if it comes again. It returns how many turns were adopted. forked: they are
// of the trajectory that this one forks off, and its agent makes all of their calls again.
func (s *Session) adopt(r *trajectory.Trajectory, forked bool) (adopted int) {
	for i, was := range r.Turns {
		in := was.Incoming
		if in == nil || was.Sample >= len(r.Samples) || in.After >= i || !in.Whole && s.growth.reply(in.After) == nil {
			return i // a record of another program; what stands behind it is asked for anew
		}
		number := s.calls.numberOf(in)
		c := &call{session: s.o.Name, number: number, created: s.gate.Now(), done: make(chan struct{}), adopted: !forked, coming: forked}
		c.asks.dialect = in.Dialect
		if by := was.SharedBy(); by != "" {
			c.session = by
		}
		if c.id = callName(c.session, number); in.Created > 0 {
			c.created = time.Unix(in.Created, 0)
		}
		digest, err := hex.DecodeString(in.Digest)
		if err != nil || copy(c.asks.digest[:], digest) != len(c.asks.digest) {
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
		p := prompt{ids: of.TokenIDs[:was.CompletionStart], text: in.Prompt, history: messages, sent: messages, after: in.After}
		k := s.growth.history.keyOf(messages)
		switch {
		case !in.Whole:
			before := s.growth.reply(in.After)
			q.Tools = before.tools
			if s.prompts.goOn(&p, before, q.Tools, messages, messages) != nil && s.prompts.goOn(&p, before, q.Tools, messages, dialects.Combined(messages, false)...) != nil {
				return i
			}
			p.ids = of.TokenIDs[:was.CompletionStart]
			k = before.asked.with(keyOf(before.echo, s.growth.history.thoughts))
			for _, m := range messages {
				k = k.with(keyOf(m, s.growth.history.thoughts))
			}
		case messages != nil:
			if s.prompts.begin(&p, q.Tools, messages) != nil && s.prompts.begin(&p, q.Tools, dialects.Combined(messages, true)...) != nil {
				return i
			}
			p.ids = of.TokenIDs[:was.CompletionStart]
		}
		if p.schemas, p.format, err = s.prompts.tools(q); err != nil {
			return i
		}
		done := engines.Completion{
			TokenIDs: of.TokenIDs[was.CompletionStart:was.CompletionEnd], Logprobs: of.SamplingLogprobs[was.CompletionStart:was.CompletionEnd],
			Versions: of.PolicyVersion[was.CompletionStart:was.CompletionEnd], FinishReason: was.FinishReason, CachedTokens: was.CachedTokens,
		}
		before := s.growth.reply(in.After)
		if before != nil {
			before.behind++
		}
		turn := was
		turn.Role, turn.FinalAnswer, turn.AnsweredThisTurn = "", "", false
		if c.reply, err = s.append(c, q, p, turn, done, k); err != nil || s.growth.t.Turns[i].Sample != was.Sample {
			return i
		}
		close(c.done)
		s.calls.add(c)
		if !forked {
			s.calls.goesOn(s.growth.t.Turns[i].Incoming.After)
		}
		s.recovered.taken++
		spent := in.Spent
		if forked { // by another trajectory
			spent = 0
		}
		s.spending.adopt(spent)
	}
	return len(r.Turns)
}

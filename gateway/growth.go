package gateway

import (
	"encoding/json"
	"slices"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/trajectory"
)

// growth is the trajectory that a session grows, and what later calls may go on after.
type growth struct {
	t       *trajectory.Trajectory
	parse   bool // SessionOptions.Parse
	history history
	replies []*said // of the turns; nil: to no conversation
}

// add makes a turn of a completion that was checked: of the sample that its prompt extends, or of a new one. asked is the key of its conversation,
// echoes are the messages by which a client may repeat the reply. It returns the turn's index. turn.Incoming stays as it is.
func (g *growth) add(q asked, p prompt, turn trajectory.Turn, done engines.Completion, reply dialects.Reply, echoes []trajectory.Message, asked key) int {
	k := g.extended(p.ids)
	if k < 0 {
		g.t.Samples = append(g.t.Samples, &trajectory.Sample{})
		k = len(g.t.Samples) - 1
	} else {
		turn.Incoming = g.goesBehind(turn.Incoming, k)
	}
	sample := g.t.Samples[k]
	sample.AppendObservation(p.ids[sample.Len():])
	turn.CompletionStart = sample.Len()
	_ = sample.AppendResponse(done.TokenIDs, done.Logprobs, done.Versions) // checked
	turn.CompletionEnd, turn.ObservationEnd = sample.Len(), sample.Len()
	turn.Sample, turn.InThought = k, agents.OpensThought(p.text)
	content := reply.Content
	if q.Messages == nil { // it has its thought
		_, content = offThought(p.text, content)
	}
	ended := turn.FinishReason == trajectory.FinishStop || turn.FinishReason == trajectory.FinishLength && (g.parse || !turn.Cut())
	turn.AnsweredThisTurn = len(reply.Calls) == 0 && content != "" && ended
	turn.FinalAnswer = ""
	if turn.AnsweredThisTurn {
		turn.FinalAnswer = answerIn(content)
	}
	index := len(g.t.Turns)
	g.t.Turns = append(g.t.Turns, turn)
	g.replies = append(g.replies, nil)
	if q.Messages != nil {
		g.replies[index] = &said{
			turn: index, schemas: p.schemas, tools: q.Tools, history: p.history, sent: p.sent, text: p.text, completion: turn.Completion,
			ids: slices.Clip(sample.TokenIDs), sampled: slices.Clip(sample.TokenIDs[turn.CompletionStart:]),
		}
		g.history.add(asked, echoes, g.replies[index])
	}
	return index
}

// goesBehind is how a call was asked for, which joins a sample, and so goes on after that sample's last turn: its words may fit several replies, and those of
// a completion fit none.
func (g *growth) goesBehind(in *trajectory.Incoming, sample int) *trajectory.Incoming {
	last := len(g.t.Turns) - 1
	for g.t.Turns[last].Sample != sample {
		last--
	}
	if in.After == last {
		return in
	}
	out := *in
	before, now := g.reply(in.After), g.reply(last)
	if !in.Whole && !g.history.same(before, now) { // the messages are those behind the other reply
		messages, schemas := g.conversation(in)
		out.Messages, _ = json.Marshal(messages)
		out.Whole, out.Schemas = true, schemas
	}
	if before != nil {
		before.behind--
	}
	if now != nil {
		now.behind++
	}
	out.After = last
	return &out
}

// reply is that of a turn, as later calls go on after it; nil: there is none, or it is to no conversation.
func (g *growth) reply(turn int) *said {
	if turn < 0 || turn >= len(g.replies) {
		return nil
	}
	return g.replies[turn]
}

// extended is the longest sample that a prompt begins with; -1: none.
func (g *growth) extended(ids []int32) int {
	k := -1
	for i, sample := range g.t.Samples {
		if n := sample.Len(); n < len(ids) && (k < 0 || n > g.t.Samples[k].Len()) && slices.Equal(sample.TokenIDs, ids[:n]) {
			k = i
		}
	}
	return k
}

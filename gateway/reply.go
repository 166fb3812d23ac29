package gateway

import (
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/trajectory"
)

// readReply takes a completion apart as its client reads it, and returns the messages by which the client may repeat it; none where it asked with a text.
func readReply(session, model string, c *call, q asked, p prompt, text string, done engines.Completion) (r dialects.Reply, echoes []trajectory.Message) {
	r = dialects.Reply{
		ID: c.id, Model: model, Created: c.created, Finish: dialects.FinishStop,
		Usage: dialects.Usage{Prompt: len(p.ids), Cached: done.CachedTokens, Completion: len(done.TokenIDs)},
	}
	if done.FinishReason != trajectory.FinishStop {
		r.Finish = dialects.FinishLength
	}
	for _, stop := range q.Stop { // the text ends before the first of them; those of the policy's own format are part of it
		if at := strings.Index(text, stop); at >= 0 && stop != "" {
			text, r.Stop = text[:at], stop
		}
	}
	if q.Messages == nil { // its client goes on with what was sampled, put behind the prompt
		r.Content = text
		return r, nil
	}
	thought, rest := offThought(p.text, text)
	r.Reasoning = thought
	if p.format != nil {
		splitter := agents.NewSplitter(p.format, !q.Parallel)
		var content []byte
		for _, piece := range append(splitter.Push(rest), splitter.End()...) {
			if piece.Call != nil {
				call := *piece.Call
				call.ID = callID(p.format, session, c.number, len(r.Calls))
				r.Calls = append(r.Calls, call)
			}
			content = append(content, piece.Content...)
		}
		rest = string(content)
	}
	r.Content = rest
	if len(r.Calls) > 0 && r.Finish == dialects.FinishStop {
		r.Finish = dialects.FinishCalls
	}
	echo := trajectory.Message{Role: "assistant", Reasoning: r.Reasoning, ToolCalls: r.Calls, Content: []trajectory.Part{{Type: "text", Text: r.Content}}}
	echoes = append(echoes, echo)
	if r.Stop != "" { // some clients put it back
		echo.Content = []trajectory.Part{{Type: "text", Text: r.Content + r.Stop}}
		echoes = append(echoes, echo)
	}
	return r, echoes
}

// offThought takes the thought off a completion: one that the prompt opened, or that the completion begins with. Of a thought that does not end, nothing
// is left.
func offThought(prompt, text string) (thought, rest string) {
	whole := text
	if agents.OpensThought(prompt) {
		whole = thinkOpen + text
	}
	if !strings.HasPrefix(strings.TrimSpace(whole), thinkOpen) {
		return "", text
	}
	thought, rest, _ = cutThought(whole)
	return strings.TrimSpace(thought), strings.TrimLeft(rest, "\r\n")
}

// callID names a call of a reply. It is the same when the reply is recalled.
func callID(f agents.Format, session string, call, n int) string {
	name := session + "/" + strconv.Itoa(call)
	if ids, ok := f.(agents.CallIDs); ok {
		return ids.CallID(hashOf(name + "/" + strconv.Itoa(n)))
	}
	k := hashOf(name)
	return "call_" + hex.EncodeToString(k[:8]) + strconv.Itoa(n)
}

// answerIn is the body of <answer>…</answer> where a reply has one, as for the run's own agents, else the whole.
func answerIn(text string) string {
	if _, after, ok := strings.Cut(text, "<answer>"); ok {
		if body, _, closed := strings.Cut(after, "</answer>"); closed {
			return strings.TrimSpace(body)
		}
	}
	return strings.TrimSpace(text)
}

package trainer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"

	"github.com/agentfly/agentfly/trajectory"
)

// observed names the state before turn k by the texts that came back before it: the results of the calls of the turn before, or the messages behind
// the reply that an agent over the gateway goes on after. Texts and not tokens, so that the name is the same whether the turn goes on with a sample or
// begins one, whose prompt repeats all that was said before. ok is false where nothing came back: the turn's prompt is its state.
func observed(t *trajectory.Trajectory, k int) (name string, ok bool) {
	h := sha256.New()
	add := func(texts ...string) {
		for _, text := range texts {
			h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(text)))) // so that two texts are not taken for one
			h.Write([]byte(text))
		}
		ok = true
	}
	switch in := t.Turns[k].Incoming; {
	case in != nil && in.After >= 0:
		var messages []trajectory.Message
		if json.Unmarshal(in.Messages, &messages) != nil {
			return "", false
		}
		for i := len(messages) - 1; i >= 0 && messages[i].Role != "assistant"; i-- {
			add(messages[i].Role)
			for _, p := range messages[i].Content {
				add(p.Type, p.Text, p.Image)
			}
		}
	case in == nil && k > 0:
		for _, r := range t.Turns[k-1].Results {
			add(r.Observation)
		}
	}
	return string(h.Sum(nil)), ok
}

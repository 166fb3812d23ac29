package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/trajectory"
)

// talk is a conversation that a random agent holds.
type talk struct {
	messages []map[string]any
	tools    bool
	turn     int // its last reply's, by seed; -1: none
}

func (c *talk) clone() *talk {
	out := *c
	out.messages = nil
	for _, m := range c.messages {
		out.messages = append(out.messages, maps.Clone(m))
	}
	return &out
}

// wanderer is an agent that does to its history what agents do.
type wanderer struct {
	b     *bench
	rng   *rand.Rand
	talks []*talk
	asked map[uint64][]int32 // prompts of the engine's requests, by seed
	mu    sync.Mutex
	goes  map[uint64]uint64 // of a call that only appended to its conversation, the call before
}

// say answers with random words, calls and thoughts, seeded by the request.
func (w *wanderer) say(q engines.Request) (engines.Completion, error) {
	w.mu.Lock()
	w.asked[q.Seed] = q.Prompt
	w.mu.Unlock()
	rng := rand.New(rand.NewPCG(q.Seed, 9))
	text := fmt.Sprintf("word%d ", rng.IntN(6))
	if rng.IntN(3) == 0 {
		text = fmt.Sprintf("<think>\nhm %d </think>\n\n%s", rng.IntN(3), text)
	}
	if rng.IntN(2) == 0 {
		text += fmt.Sprintf(`<tool_call>{"name":"calculator","arguments":{"b":%d.0,"a": 1}}</tool_call>`, rng.IntN(3))
	}
	if rng.IntN(8) == 0 {
		return rollouttest.SayCut(text)
	}
	return rollouttest.Say(text)
}

// ask sends a conversation and appends the reply, as some client would write it.
func (w *wanderer) ask(c *talk, headers ...string) {
	q := map[string]any{"messages": c.messages}
	if c.tools {
		q["tools"] = calculator
	}
	body, err := json.Marshal(q)
	require.NoError(w.b.t, err)
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", bytes.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+testKey)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	out := httptest.NewRecorder()
	w.b.gate.ServeHTTP(out, r)
	require.Equal(w.b.t, http.StatusOK, out.Code, out.Body)
	var reply struct {
		ID      string `json:"id"`
		Choices []struct {
			Message map[string]any `json:"message"`
		} `json:"choices"`
	}
	require.NoError(w.b.t, json.Unmarshal(out.Body.Bytes(), &reply))
	number := 0
	_, err = fmt.Sscanf(reply.ID[strings.LastIndex(reply.ID, "-")+1:], "%d", &number)
	require.NoError(w.b.t, err)
	m := reply.Choices[0].Message
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.turn >= 0 {
		w.goes[uint64(100+number)] = uint64(c.turn)
	}
	c.turn = 100 + number
	switch w.rng.IntN(4) {
	case 0:
		delete(m, "reasoning_content")
	case 1:
		if m["content"] == nil {
			m["content"] = ""
		}
	case 2:
		if text, ok := m["content"].(string); ok {
			m["content"] = " " + text + "\n"
		}
	}
	c.messages = append(c.messages, m)
}

// next are the messages that follow a reply.
func (w *wanderer) next(c *talk) {
	last := c.messages[len(c.messages)-1]
	calls, _ := last["tool_calls"].([]any)
	for _, call := range calls {
		c.messages = append(c.messages, tool(call.(map[string]any)["id"].(string), fmt.Sprint("result ", w.rng.IntN(3))))
	}
	if len(calls) == 0 || w.rng.IntN(4) == 0 {
		c.messages = append(c.messages, user(fmt.Sprint("and ", w.rng.IntN(3))))
	}
}

func (w *wanderer) step() {
	c := w.talks[w.rng.IntN(len(w.talks))]
	switch n := w.rng.IntN(12); {
	case n < 6: // the loop goes on
		w.next(c)
		w.ask(c)
	case n == 6: // an earlier message is edited
		own := c.clone()
		at := w.rng.IntN(len(own.messages))
		own.messages[at]["content"] = fmt.Sprint("edited ", w.rng.IntN(3))
		own.turn = -1
		w.next(own)
		w.ask(own)
		w.talks = append(w.talks, own)
	case n == 7: // compaction
		own := &talk{messages: []map[string]any{c.messages[0], user("summary: " + fmt.Sprint(w.rng.IntN(3)))}, tools: c.tools, turn: -1}
		w.ask(own)
		w.talks = append(w.talks, own)
	case n == 8: // sent again
		own := c.clone()
		own.messages, own.turn = own.messages[:len(own.messages)-1], -1
		if own.messages[len(own.messages)-1]["role"] == "assistant" {
			return
		}
		w.ask(own, "X-Stainless-Retry-Count", fmt.Sprint(w.rng.IntN(2)))
		w.talks = append(w.talks, own)
	case n == 9: // a branch
		own := c.clone()
		at := w.rng.IntN(len(own.messages)) + 1
		own.messages, own.turn = append(own.messages[:at], user(fmt.Sprint("otherwise ", w.rng.IntN(3)))), -1
		w.ask(own)
		w.talks = append(w.talks, own)
	case n == 10: // two at once
		one, two := c.clone(), c.clone()
		for _, t := range []*talk{one, two} {
			w.next(t)
			t.turn = -1
		}
		var both sync.WaitGroup
		both.Go(func() { w.ask(one) })
		both.Go(func() { w.ask(two) })
		both.Wait()
		w.talks = append(w.talks, one, two)
	default: // a sub-agent, or a title without tools
		own := &talk{messages: []map[string]any{{"role": "system", "content": "You help."}, user(fmt.Sprint("part ", w.rng.IntN(3)))}, tools: w.rng.IntN(2) == 0, turn: -1}
		w.ask(own)
		w.talks = append(w.talks, own)
	}
}

// Whatever an agent does to its history: a call joins a sample if and only if its prompt is that sample's ids and more; the ids of a turn are those that
// the engine was asked with and gave; nothing else is trained; and a conversation that only grows stays one sample, as long as no other call went
// on after the same reply. It is no other where the process is killed in between.
func TestRandomHistories(t *testing.T) {
	rounds := 600
	if testing.Short() {
		rounds = 50
	}
	if n := os.Getenv("AGENTFLY_HISTORIES"); n != "" {
		var err error
		rounds, err = strconv.Atoi(n)
		require.NoError(t, err)
	}
	joined, grown := 0, 0
	for seed := range uint64(rounds) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			j, g := wander(t, seed)
			joined, grown = joined+j, grown+g
		})
	}
	require.Greater(t, joined, 2*rounds, "calls that went on in a sample")
	require.Greater(t, grown, rounds, "calls that had to")
	t.Logf("%d calls joined a sample", joined)
}

// wander holds one random history against what a gateway made of it.
func wander(t *testing.T, seed uint64) (joined, grown int) {
	w := &wanderer{rng: rand.New(rand.NewPCG(seed, 1)), asked: map[uint64][]int32{}, goes: map[uint64]uint64{}}
	history := gateway.AsSampled
	if seed%3 == 0 {
		history = gateway.AsSent
	}
	var told *trajectory.Trajectory
	set := func(o *gateway.Options, s *gateway.SessionOptions) {
		o.History, s.Recovered, s.Adopt = history, told, told != nil
	}
	w.b = newBench(t, w.say, set)
	first := &talk{messages: []map[string]any{user("begin")}, tools: seed%2 == 0, turn: -1}
	w.ask(first)
	w.talks = []*talk{first}
	for n := range 5 + w.rng.IntN(30) {
		if seed%4 == 1 && n%8 == 7 { // the process is killed, and the agent lives on
			was := w.b
			told = was.told
			w.b = newBench(t, w.say, set)
			require.Equal(t, told.Samples, w.b.told.Samples)
			w.b.sampled = was.sampled
		}
		w.step()
	}
	w.b.session.Finish()
	w.b.check()
	return w.check(history)
}

// check builds the samples anew from what the engine was asked and gave.
func (w *wanderer) check(history gateway.History) (joined, grown int) {
	t := w.b.told
	var samples [][]int32
	last := map[int]uint64{} // seed of the newest turn of a sample
	newest := map[int]int{}  // turn of a sample
	for k, turn := range t.Turns {
		prompt := w.asked[turn.Seed]
		s := t.Samples[turn.Sample]
		require.Equal(w.b.t, prompt, s.TokenIDs[:turn.CompletionStart], "turn %d", k)
		at := -1
		for i, ids := range samples {
			if len(ids) < len(prompt) && slices.Equal(ids, prompt[:len(ids)]) && (at < 0 || len(ids) > len(samples[at])) {
				at = i
			}
		}
		whole := s.TokenIDs[:turn.CompletionEnd]
		before, grew := w.goes[turn.Seed]
		if at < 0 {
			require.Equal(w.b.t, len(samples), turn.Sample, "turn %d begins a sample", k)
			samples = append(samples, whole)
		} else {
			require.Equal(w.b.t, at, turn.Sample, "turn %d", k)
			require.Equal(w.b.t, newest[at], turn.Incoming.After, "turn %d goes on after the last turn of the sample that it joins", k)
			samples[at] = whole
			joined++
		}
		if grew && history == gateway.AsSampled {
			was := slices.IndexFunc(t.Turns[:k], func(o trajectory.Turn) bool { return o.Seed == before })
			twin := func(o trajectory.Turn) bool { // it said the same, so that nobody can tell which one goes on
				return strings.HasPrefix(shown(o.Completion), shown(t.Turns[was].Completion))
			}
			if last[t.Turns[was].Sample] == before {
				why := func() string {
					return fmt.Sprintf("turn %d only goes on after turn %d, after turn %d:\n%s\n\n%s", k, was, turn.Incoming.After,
						rollouttest.Letters{}.Decode(t.Samples[t.Turns[was].Sample].TokenIDs, false), rollouttest.Letters{}.Decode(s.TokenIDs, false))
				}
				twins := 0
				for _, o := range t.Turns[:k] {
					if twin(o) {
						twins++
					}
				}
				if require.True(w.b.t, turn.Incoming.After >= 0 && twin(t.Turns[turn.Incoming.After]), "%s", why()); twins == 1 {
					require.Equal(w.b.t, t.Turns[was].Sample, turn.Sample, "%s", why())
				}
				grown++
			}
		}
		last[turn.Sample], newest[turn.Sample] = turn.Seed, k
	}
	require.Len(w.b.t, t.Samples, len(samples))
	return joined, grown
}

// shown is a completion without its thought.
func shown(text string) string {
	if _, after, ok := strings.Cut(text, "</think>"); ok {
		text = after
	}
	return strings.TrimSpace(text)
}
